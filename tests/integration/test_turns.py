"""A `serial` Server over a real daemon: requests of one session one at a time, WebSockets beside them."""

from __future__ import annotations

import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from tests.integration.daemon_case import APPS, DaemonCase, server
from tests.integration.running_daemon import until

GATED = json.dumps([sys.executable, str(APPS / "gated.py"), "{port}"])


class TurnTests(DaemonCase):
    """The app answers /wait once somebody has asked /go of another session, and counts how many it serves at once."""

    def test_requests_of_one_session_never_overlap_and_sessions_never_wait_on_each_other(self) -> None:
        self.serve(server("one", GATED, serial=True))
        token, other = self.token(), self.token()
        with ThreadPoolExecutor(4) as pool:
            answers = [pool.submit(self.get, token, "/wait") for _ in range(3)]
            until("one is served", lambda: self.get(other, "/inside").text == "1")
            for _ in range(3):
                until("only one is served", lambda: self.get(other, "/inside").text == "1")
                self.get(other, "/go")
            self.assertEqual([answer.result().text for answer in answers], ["1", "1", "1"])

    def test_who_waits_too_long_is_told_so_and_terminate_refuses_the_rest(self) -> None:
        self.serve(server("one", GATED, serial=True, session_wait_timeout=1))
        token, other = self.token(), self.token()
        with ThreadPoolExecutor(4) as pool:
            first = pool.submit(self.get, token, "/wait")
            until("one is served", lambda: self.get(other, "/inside").text == "1")
            busy = self.get(token, "/wait")
            self.assertEqual((busy.status_code, busy.json()["error"]), (429, "session_busy"))
            self.assertIn("Retry-After", busy.headers)
            self.get(other, "/go")
            self.assertEqual(first.result().status_code, 200)

    def test_terminate_refuses_who_waits(self) -> None:
        self.serve(server("one", GATED, serial=True))
        token, other = self.token(), self.token()
        with ThreadPoolExecutor(4) as pool:
            first = pool.submit(self.get, token, "/wait")
            until("one is served", lambda: self.get(other, "/inside").text == "1")
            waiting = pool.submit(self.get, token, "/wait")
            status = f"{self.url}/_modal/sessions/status"
            fields = {"Modal-Authorization": f"Bearer {token}"}
            until("two are in flight", lambda: self.http.get(status, headers=fields).json()["in_flight"] == 2)
            self.terminate(token)
            refused = waiting.result()
            self.assertEqual((refused.status_code, refused.json()["error"]), (410, "terminated"))
            self.get(other, "/go")
            self.assertEqual(first.result().status_code, 200)

    def test_a_client_that_leaves_the_line_frees_its_place(self) -> None:
        self.serve(server("one", GATED, serial=True))
        token, other = self.token(), self.token()
        gone = threading.Event()
        with ThreadPoolExecutor(4) as pool:
            first = pool.submit(self.get, token, "/wait")
            until("one is served", lambda: self.get(other, "/inside").text == "1")

            def impatient() -> None:
                try:
                    self.http.get(f"{self.url}/wait", headers={"Modal-Authorization": f"Bearer {token}"}, timeout=0.5)
                except OSError:
                    gone.set()

            pool.submit(impatient).result()
            self.assertTrue(gone.is_set())
            last = pool.submit(self.get, token, "/inside")
            self.get(other, "/go")
            self.assertEqual((first.result().text, last.result().text), ("1", "0"))
