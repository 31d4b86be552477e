"""Named sessions over a real daemon: get or create, expiry, release, and a crash in between."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor

import requests

from tests.integration.daemon_case import APPS, DaemonCase, server
from tests.integration.running_daemon import until

COUNTER = json.dumps([sys.executable, str(APPS / "counter.py"), "{port}"])
NAME = "x-modal-server-session-name"


class NameTests(DaemonCase):
    def use(self, name: str = "notebook", **fields: str) -> requests.Response:
        return self.start(**{NAME: name, **fields})

    def release(self, name: str = "notebook") -> requests.Response:
        fields = {"Authorization": f"Bearer {self.bearer}", NAME: name}
        return self.http.post(f"{self.url}/_modal/sessions/release", headers=fields, timeout=10)

    def count(self, token: str) -> int:
        answer = self.get(token)
        self.assertEqual(answer.status_code, 200, answer.text)
        return int(answer.text.split()[1])

    def test_first_uses_at_the_same_moment_make_one_session(self) -> None:
        self.serve(server("one", COUNTER))
        with ThreadPoolExecutor(8) as pool:
            answers = [answer.json() for answer in pool.map(lambda _: self.use(), range(8))]
        self.assertEqual(len({answer["session_id"] for answer in answers}), 1)
        self.assertEqual([self.count(answer["token"]) for answer in answers], list(range(1, 9)))
        self.assertFalse(self.use().json()["created"])

    def test_rule_16_a_crash_of_the_daemon_forgets_neither_a_live_name_nor_an_expired_one(self) -> None:
        self.serve(server("one", COUNTER))
        first = self.use().json()
        self.count(first["token"])
        ended = self.use("gone").json()
        self.terminate(ended["token"])
        self.daemon.kill()
        self.run_daemon()
        again = self.use().json()
        self.assertEqual((again["session_id"], again["created"]), (first["session_id"], False))
        self.assertEqual(self.count(again["token"]), 2)
        refused = self.use("gone")
        self.assertEqual((refused.status_code, refused.json()["error"]), (410, "session_expired"))
        self.assertEqual(refused.json()["reason"], "terminated")

    def test_an_expired_name_is_free_once_released_and_stays_free_over_a_crash(self) -> None:
        self.serve(server("one", COUNTER))
        self.use(**{"x-modal-server-session-idle-timeout": "1"})
        until("it expires", lambda: self.use().status_code == 410)
        self.assertEqual(self.use().json()["reason"], "idle_timeout")
        self.assertEqual(self.release().status_code, 200)
        self.assertEqual(self.release().status_code, 404)
        self.daemon.kill()
        self.run_daemon()
        self.assertTrue(self.use().json()["created"])

    def test_a_name_dies_with_a_container_that_died_while_no_daemon_ran(self) -> None:
        self.serve(server("one", COUNTER))
        token = self.use().json()["token"]
        container = self.get(token).text.split()[0]
        self.daemon.kill()
        self.kill_container(container)
        self.run_daemon()
        self.assertEqual(self.use().json()["reason"], "container_lost")
