"""What becomes of a `Session` at the end of its block, and how it shows itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace

from twisted.trial.unittest import SynchronousTestCase

import sticky
from sticky import exception
from sticky.sdk.calling import Carriers
from sticky.sdk.calls import sandboxes, session
from sticky.sdk.calls.sandboxes import HURRY_TIME, Sandboxes
from sticky.sdk.daemon import Daemon
from sticky.sdk.steps import Ask, Failure, Reply

TOKEN = "st-secret"
STARTED = Reply(200, b'{"session_id": "sd-1", "token": "st-secret"}')


@sticky.remote
def work() -> None: ...


class Wire:
    """A daemon's answers, one after the other, and what it was asked."""

    def __init__(self, *answers: Reply | Failure) -> None:
        self.answers = list(answers)
        self.asked: list[Ask] = []
        self.pauses: list[float] = []
        self.threads: set[int] = set()

    def send(self, ask: Ask) -> Reply | Failure:
        self.asked.append(ask)
        self.threads.add(threading.get_ident())
        return self.answers.pop(0)

    def named(self, server: str | None) -> Sandboxes:
        environ = {"STICKY_URL": "https://calls.example.org", "STICKY_PROXY_TOKEN": "wk-a.ws-b"}
        name = sandboxes.name_of(server)
        carriers = Carriers(send=self.send, sleep=self.pauses.append)
        return Sandboxes(name, name, Daemon(environ), carriers=carriers)

    @property
    def paths(self) -> Sequence[str]:
        return [ask.url.rpartition("/")[2] for ask in self.asked]


class BlockTests(SynchronousTestCase):
    def wire(self, *answers: Reply | Failure) -> Wire:
        wire = Wire(*answers)
        self.patch(session, "named", wire.named)
        return wire

    def test_a_session_without_a_name_ends_with_its_block(self) -> None:
        wire = self.wire(STARTED, Reply(200, b"{}"))
        with sticky.Session() as one:
            one.credential()
        self.assertEqual(wire.paths, ["start", "terminate"])
        self.assertIn(TOKEN, wire.asked[1].headers.values())

    def test_nothing_starts_afresh_in_silence_after_it(self) -> None:
        wire = self.wire(STARTED, Reply(200, b"{}"))
        for used in (True, False):
            with sticky.Session() as one:
                if used:
                    one.credential()
            error = self.assertRaises(exception.SessionExpiredError, one.credential)
            self.assertEqual((error.reason, error.detail), ("terminated", None))
        self.assertEqual(wire.paths, ["start", "terminate"])

    def test_one_with_a_name_stays_and_may_be_used_on(self) -> None:
        wire = self.wire(STARTED)
        with sticky.Session("notebook") as one:
            one.credential()
        self.assertEqual(one.credential(), TOKEN)
        self.assertEqual(wire.paths, ["start"])

    def test_one_that_is_over_already_is_not_ended_again(self) -> None:
        wire = self.wire(STARTED)
        with sticky.Session() as one:
            one.expire(one.credential(), "container_lost", "exited")
        self.assertEqual(self.assertRaises(exception.SessionExpiredError, one.credential).reason, "container_lost")
        self.assertEqual(wire.paths, ["start"])

    def test_a_connection_that_comes_back_after_the_block_is_closed(self) -> None:
        self.wire(STARTED, Reply(200, b"{}"))
        connections = [SimpleNamespace(closed=False) for _ in range(2)]
        for connection in connections:
            connection.close = partial(setattr, connection, "closed", True)
        with sticky.Session() as one:
            one.credential()
            one.give_back(connections[0])  # type: ignore[arg-type]
            self.assertFalse(connections[0].closed)
        one.give_back(connections[1])  # type: ignore[arg-type]
        self.assertEqual([connection.closed for connection in connections], [True, True])

    def test_release_after_the_block_makes_it_new(self) -> None:
        wire = self.wire(STARTED, Reply(200, b"{}"), Reply(404, b"{}"), STARTED)
        with sticky.Session() as one:
            one.credential()
        one.release()
        one.credential()
        self.assertEqual(wire.paths, ["start", "terminate", "terminate", "start"])

    def test_that_it_could_not_be_ended_is_told_where_nothing_else_is(self) -> None:
        wire = self.wire(STARTED, Failure("refused"), Reply(401, b'{"error": "bad_credential"}'))

        def block() -> None:
            with sticky.Session() as one:
                one.credential()

        self.assertRaises(exception.AuthError, block)
        self.assertEqual(wire.pauses, [0.5])

    def test_an_error_of_the_block_is_not_hidden_and_waits_for_one_attempt_only(self) -> None:
        for answer, told in ((Failure("refused"), "in the one attempt: refused"), (Reply(500, b"{}"), "answered 500")):
            wire = self.wire(STARTED, answer)

            def block() -> None:
                with sticky.Session() as one:
                    one.credential()
                    raise KeyboardInterrupt

            error = self.assertRaises(KeyboardInterrupt, block)
            (note,) = error.__notes__
            self.assertIn("could not be ended", note)
            self.assertIn(told, note)
            self.assertNotIn(TOKEN, note)
            self.assertEqual((wire.paths, wire.pauses), (["start", "terminate"], []))
            self.assertEqual(wire.asked[1].timeout, HURRY_TIME)

    def test_an_error_of_a_block_whose_session_ends_has_no_note(self) -> None:
        self.wire(STARTED, Reply(200, b"{}"))

        def block() -> None:
            with sticky.Session() as one:
                one.credential()
                raise ZeroDivisionError

        self.assertFalse(hasattr(self.assertRaises(ZeroDivisionError, block), "__notes__"))

    def test_an_asynchronous_block_ends_it_too_and_not_on_the_loops_thread(self) -> None:
        wire = self.wire(STARTED, Reply(200, b"{}"))

        async def block() -> str:
            async with sticky.Session() as one:
                return await asyncio.to_thread(one.credential)

        self.assertEqual(asyncio.run(block()), TOKEN)
        self.assertEqual(wire.paths, ["start", "terminate"])
        self.assertNotIn(threading.get_ident(), wire.threads)


class ReprTests(SynchronousTestCase):
    def test_a_session_says_which_it_is_and_how_far_and_no_token(self) -> None:
        self.patch(session, "named", Wire(STARTED, STARTED).named)
        one, other = sticky.Session(), sticky.Session("notebook", server="big")
        self.assertEqual(repr(one), "<sticky.Session without a name on 'calls', not begun>")
        one.credential()
        other.credential()
        self.assertEqual(repr(other), "<sticky.Session 'notebook' on 'big', begun>")
        one.expire(TOKEN, "container_lost", "exited")
        self.assertEqual(repr(one), "<sticky.Session without a name on 'calls', over (container_lost)>")

    def test_functions_say_what_they_run(self) -> None:
        named = f"{__name__}.work"
        self.assertEqual(repr(work), f"<sticky.remote {named}>")
        self.assertEqual(
            repr(work.bind(sticky.Session())),
            f"<sticky.remote {named} in <sticky.Session without a name on 'calls', not begun>>",
        )
