"""docs/http.md is what the code does: its calls, its fields and its members."""

from __future__ import annotations

import re
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from sticky.control import bodies
from sticky.control.calls import CALLS
from sticky.control.document import document, words
from sticky.core.values import ContainerId, SessionId
from sticky.edge.wire import Names
from sticky.isticky import Credentials, QueuePosition, SessionStatus

PAGE = Path(__file__).parents[2] / "docs" / "http.md"
GIVEN = Credentials(session=SessionId("sd-1"), token="t", idle_timeout=60.0, expires_at=1.0, created=True)
STATUS = SessionStatus(
    session=SessionId("sd-1"),
    state="active",
    in_flight=0,
    idle_timeout=60.0,
    idle_left=59.0,
    age_left=100.0,
    owner="dev",
    container=ContainerId("ct-1"),
    created_ago=1.0,
    name="notebook",
)
CONTROL = Path(bodies.__file__).parent


class DocumentTests(SynchronousTestCase):
    def test_the_page_is_up_to_date(self) -> None:
        hint = "out of date: python -m sticky.control.document > docs/http.md"
        self.assertEqual(PAGE.read_text("utf-8"), document(), hint)

    def test_every_call_is_there_and_no_other_one(self) -> None:
        self.assertEqual(set(words(Names())), set(CALLS))

    def test_the_members_are_those_of_the_answers(self) -> None:
        said = {path: [member.name for member in each.gives] for path, each in words(Names()).items()}
        self.assertEqual(said[b"sessions/start"], list(bodies.credentials(GIVEN)))
        self.assertEqual(said[b"sessions/status"], list(bodies.status(STATUS)))
        self.assertEqual(said[b"sessions/extend"], said[b"sessions/status"])
        self.assertEqual(said[b"sessions"], list(bodies.page([STATUS], 1)))
        for member in bodies.queued(QueuePosition(1, 1.0, 1.0), None):
            self.assertIn(f"`{member}`", words(Names())[b"sessions/start"].more)

    def test_every_field_that_a_call_reads_is_there(self) -> None:
        source = "".join(path.read_text() for path in (CONTROL / "calls.py", CONTROL / "parameters.py"))
        read = set(re.findall(r"[\w.]*names\.(\w+)", source)) - {"control"}
        self.assertGreater(len(read), 3)
        for name in read:
            self.assertIn(f"`{getattr(Names(), name).decode()}`", document())

    def test_another_brand_has_its_own_names(self) -> None:
        page = document(Names("acme"))
        self.assertIn("## `POST /_acme/sessions/start`", page)
        self.assertIn("x-acme-server-session-grace", page)
