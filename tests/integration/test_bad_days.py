"""Bad input and bad days against a real daemon: real children, real sockets, a stepped clock."""

from __future__ import annotations

import json
import socket
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import requests
from twisted.trial.unittest import SynchronousTestCase
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from sticky.cli.client import Admin
from tests.integration.daemon_case import COOKIE, ECHO, PYTHON, DaemonCase, server
from tests.integration.running_daemon import Daemon, until

FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")


class CredentialTests(DaemonCase):
    def test_every_wrong_credential_is_refused_with_its_own_answer(self) -> None:
        self.serve(server("one", ECHO, hosts=["one.localhost"]) + server("two", ECHO, hosts=["two.localhost"]))
        token = self.token("one.localhost")
        payload = token.split(".")[2]
        forged = token.replace(payload, payload[:-2] + ("AA" if payload[-2:] != "AA" else "BB"))
        here = {"Host": "one.localhost"}
        self.assertEqual(self.get(token, **here).status_code, 200)
        cases = [
            ("no token", self.get(None, **here), 401, "no_credential"),
            ("forged", self.get(forged, **here), 401, "bad_credential"),
            ("garbage", self.get("garbage", **here), 401, "bad_credential"),
            ("another server's", self.get(token, Host="two.localhost"), 403, "wrong_server"),
            ("unknown host", self.get(token, Host="three.localhost"), 404, "unknown_host"),
            ("no proxy token", self.http.post(f"{self.url}/_modal/sessions/start", headers=here, timeout=5), 401, None),
        ]
        for name, answer, status, code in cases:
            self.assertEqual(answer.status_code, status, name)
            self.assertEqual(answer.headers["cache-control"], "no-store", name)
            if code is not None:
                self.assertEqual(answer.json()["error"], code, name)
            self.assertNotIn(token, answer.text, name)
        self.http.headers.update(here)
        self.assertEqual(self.terminate(token).status_code, 200)
        after = self.get(token, **here)
        self.assertEqual((after.status_code, after.json()["error"]), (410, "terminated"))
        self.assertEqual(self.terminate(token).status_code, 404)
        self.assertNotIn(token, self.daemon.output())
        self.assertNotIn(self.bearer.split(".")[1], self.daemon.output())
        until("refusals are logged", lambda: '" 410 ' in self.daemon.output())
        self.assertNotIn('" 0 ', self.daemon.output(), "a request was logged before its status was known")

    def test_two_different_cookies_are_refused_and_said(self) -> None:
        self.serve(server("one", ECHO))
        answer = self.get(None, Cookie=f"{COOKIE}={self.token()}; {COOKIE}=another")
        self.assertEqual((answer.status_code, answer.json()["error"]), (401, "bad_credential"))
        self.assertIn("two different session cookies", answer.json()["message"])

    def test_two_hundred_starts_of_one_owner_at_once(self) -> None:
        self.serve(server("one", ECHO, max_containers=2, max_concurrency=50, queue_timeout=8))
        with ThreadPoolExecutor(200) as clients:
            answers = list(clients.map(lambda _: self.start_alone(), range(200)))
        granted = [answer.json()["token"] for answer in answers if answer.status_code == 200]
        refused = [answer for answer in answers if answer.status_code != 200]
        self.assertEqual((len(granted), len(refused)), (100, 100))
        self.assertEqual({(answer.status_code, answer.json()["error"]) for answer in refused}, {(503, "queue_timeout")})
        self.assertTrue(all(int(answer.headers["retry-after"]) >= 1 for answer in refused))
        homes = Counter(self.get(token).text for token in granted)
        self.assertEqual(sorted(homes.values()), [50, 50])

    def start_alone(self) -> requests.Response:
        """A client with a connection of its own."""
        fields = {"Authorization": f"Bearer {self.bearer}"}
        return requests.post(f"{self.url}/_modal/sessions/start", headers=fields, timeout=90)

    def test_idle_timeouts_that_make_no_sense_are_400(self) -> None:
        self.serve(server("one", ECHO))
        for wrong in ("0", "-1", "abc", "1e9", "1000000000", "1.5", ""):
            answer = self.start(**{"x-modal-server-session-idle-timeout": wrong})
            self.assertEqual((wrong, answer.status_code), (wrong, 400))
            self.assertEqual(answer.json()["error"], "bad_idle_timeout")

    def test_a_websocket_by_cookie_from_a_foreign_page_is_refused(self) -> None:
        self.serve(server("one", ECHO))
        token = self.token()
        address = self.url.replace("http", "ws") + "/ws"
        fields = {"Cookie": f"{COOKIE}={token}"}
        with self.assertRaises(InvalidStatus) as refusal:
            connect(address, additional_headers=fields, origin="https://evil.example")  # type: ignore[call-overload]
        self.assertEqual(refusal.exception.response.status_code, 403)
        self.assertEqual(json.loads(refusal.exception.response.body)["error"], "bad_origin")
        own = connect(address, additional_headers=fields, origin=self.url)  # type: ignore[call-overload]
        self.addCleanup(own.close)
        own.recv()
        own.send("hello")
        self.assertEqual(own.recv(), "hello")


class IdleTests(DaemonCase):
    def test_a_session_ends_when_idle_but_never_while_its_websocket_is_open(self) -> None:
        self.serve(server("one", ECHO))
        token = self.token(**{"x-modal-server-session-idle-timeout": "1"})
        opened = self.websocket(token)
        greeted = opened.recv()
        time.sleep(1.5)  # longer than the idle timeout, by the real clock of a real daemon
        opened.send("still here")
        self.assertEqual(opened.recv(), "still here")
        self.assertEqual(self.get(token).text, greeted)
        opened.close()
        until("the session ends", lambda: self.get_after(1.3, token).status_code == 410)
        self.assertEqual(self.get(token).json()["error"], "idle_timeout")

    def get_after(self, seconds: float, token: str) -> requests.Response:
        time.sleep(seconds)  # a request sooner would restart the idle clock
        return self.get(token)

    def test_a_session_is_warned_before_it_is_reclaimed_and_may_be_extended(self) -> None:
        self.serve(server("one", ECHO))
        token = self.token(**{"x-modal-server-session-idle-timeout": "3"})
        fields = {"Modal-Authorization": f"Bearer {token}"}
        there = f"{self.url}/_modal/sessions"
        wanted = {**fields, "Accept": "text/event-stream"}
        with self.http.get(f"{there}/status?warning=2", headers=wanted, stream=True, timeout=30) as told:
            self.assertEqual(told.headers["content-type"], "text/event-stream")
            names = (line[7:] for line in told.iter_lines(chunk_size=1, decode_unicode=True) if line[:7] == "event: ")
            self.assertEqual([next(names), next(names)], ["status", "warning"])
            with requests.post(f"{there}/extend", headers=fields, timeout=30) as extended:
                self.assertEqual((extended.status_code, extended.json()["idle_left"]), (200, 3))
            # Nothing uses it any more: the open answer does not keep it alive.
            self.assertEqual(list(names), ["warning", "ended"])
        self.assertEqual(self.get(token).json()["error"], "idle_timeout")

    def test_an_ended_session_tells_browsers_by_close_code_and_others_by_status(self) -> None:
        self.serve(server("one", ECHO))
        token = self.token()
        self.terminate(token)
        with self.assertRaises(InvalidStatus) as refusal:
            self.websocket(token)
        self.assertEqual(refusal.exception.response.status_code, 410)
        opened = self.websocket(token, origin=self.url)
        with self.assertRaises(ConnectionClosed):
            opened.recv(timeout=60)
        self.assertEqual((opened.close_code, opened.close_reason), (4410, "terminated"))


class ContainerTests(DaemonCase):
    def refused(self, *, within: float = 30.0) -> dict[str, str]:
        begun = time.monotonic()
        answer = self.start()
        self.assertLess(time.monotonic() - begun, within)
        self.assertEqual(answer.status_code, 503, answer.text)
        self.assertIn("retry-after", answer.headers)
        return dict(answer.json())

    def test_a_command_that_does_not_exist(self) -> None:
        self.serve(server("one", '["no-such-command", "{port}"]'))
        self.assertEqual(self.refused()["error"], "containers_failing")
        self.assertIn("no-such-command", self.daemon.output())

    def test_a_command_that_exits_at_once_and_what_it_said(self) -> None:
        self.serve(server("one", '["sh", "-c", "echo out of cheese; exit 3", "{port}"]'))
        self.assertEqual(self.refused()["error"], "containers_failing")
        self.assertIn("out of cheese", self.daemon.output())
        self.assertIn("status 3", self.daemon.output())

    def test_a_command_that_never_opens_its_port(self) -> None:
        self.serve(server("one", '["sleep", "600"]', startup_timeout=1, queue_timeout=2))
        self.assertEqual(self.refused()["error"], "queue_timeout")

    def test_a_start_up_timeout_is_called_so_in_the_answer_the_log_and_the_status(self) -> None:
        self.serve(server("one", '["sleep", "600"]', startup_timeout=0.3))
        refusal = self.refused()
        self.assertEqual(refusal["error"], "containers_failing")
        self.assertIn("startup_timeout", refusal["message"])
        self.assertIn("was not ready within startup_timeout", self.daemon.output())
        (status,) = Admin(self.folder / "state").status()["servers"]
        self.assertEqual({end["detail"] for end in status["ended"]}, {"startup_timeout"})

    def test_one_that_listens_elsewhere_is_told_where_it_should_in_the_answer_the_log_and_the_command(self) -> None:
        listens = "import socket, time; s = socket.create_server(('127.0.0.1', 0)); time.sleep(600)"
        self.serve(server("one", json.dumps([PYTHON, "-c", listens]), startup_timeout=1.5))
        said = (
            r"nothing of it listens on port \d+ of 127\.0\.0\.1, which is PORT in its environment and \{port\} in its command; "
            r"it listens on port \d+ of 127\.0\.0\.1: set port = \d+ if it cannot take another"
        )
        self.assertRegex(self.refused()["message"], rf"\(startup_timeout: {said}\)")
        self.assertRegex(self.daemon.output(), rf"was not ready within startup_timeout: {said}; ended by SIGTERM")
        (status,) = Admin(self.folder / "state").status()["servers"]
        self.assertRegex(status["ended"][0]["message"], said)

    def test_containers_that_die_soon_after_they_are_ready_fail_like_those_that_never_are(self) -> None:
        dying = (
            "import os, socket, time; s = socket.create_server(('127.0.0.1', int(os.environ['PORT']))); time.sleep(0.5)"
        )
        self.serve(server("one", json.dumps([PYTHON, "-c", dying]), max_concurrency=1))
        for _ in range(30):
            answer = self.start()
            if answer.status_code != 200:
                break
        self.assertEqual((answer.status_code, answer.json()["error"]), (503, "containers_failing"))
        self.assertIn("(exited)", answer.json()["message"])

    def test_a_port_that_a_foreign_server_holds_does_not_count(self) -> None:
        foreign = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(foreign.close)
        port = foreign.getsockname()[1]
        self.serve(server("one", '["sleep", "600"]', port=port, startup_timeout=1, queue_timeout=2))
        self.assertEqual(self.refused()["error"], "queue_timeout")

    def test_a_container_that_is_killed_ends_its_sessions_and_the_next_start_gets_another(self) -> None:
        self.serve(server("one", ECHO, max_concurrency=1))
        first, second = self.token(), self.token()
        ours, theirs = self.websocket(first), self.websocket(second)
        container = ours.recv()
        theirs.recv()
        self.kill_container(str(container))
        with self.assertRaises(ConnectionClosed):
            ours.recv(timeout=60)
        self.assertEqual((ours.close_code, ours.close_reason), (1011, "container_lost"))
        # Its connections are gone a moment before the process is: until then the answer is 503, to be asked again.
        gone = until("the session is over", lambda: self.over(first))
        self.assertEqual(gone, (410, "container_lost"))
        theirs.send("untouched")
        self.assertEqual(theirs.recv(), "untouched")
        self.assertEqual(self.get(self.token()).status_code, 200)

    def over(self, token: str) -> tuple[int, str] | None:
        answer = self.get(token)
        return None if answer.status_code == 503 else (answer.status_code, answer.json()["error"])

    def test_containers_come_with_sessions_and_go_when_nobody_plays(self) -> None:
        self.serve(server("one", ECHO, scaledown_window=2))
        self.assertEqual(self.children(), [])
        token = self.token()
        self.assertEqual(len(self.children()), 1)
        self.terminate(token)
        until("the container is gone", lambda: not self.children())
        until("the log says why", lambda: "ended: scaled down, nobody needed it; " in self.daemon.output())


class StopTests(DaemonCase):
    def test_sigterm_closes_websockets_with_1001_and_leaves_nothing_behind(self) -> None:
        self.serve(server("one", ECHO, max_concurrency=1, max_containers=2))
        sockets = [self.websocket(self.token()) for _ in range(2)]
        for opened in sockets:
            opened.recv()
        self.assertEqual(len(self.children()), 2)
        self.daemon.stop()
        self.assertEqual(self.daemon.output().count("ended: the daemon stops; "), 2)
        for opened in sockets:
            with self.assertRaises(ConnectionClosed):
                opened.recv(timeout=60)
            self.assertEqual((opened.close_code, opened.close_reason), (1001, "server_stopped"))
        self.assertEqual(self.children(), [])

    def test_an_ephemeral_daemon_that_is_killed_takes_its_containers_along(self) -> None:
        self.serve("[daemon]\nephemeral = true\n" + server("one", ECHO))
        self.token()
        self.assertEqual(len(self.children()), 1)
        self.daemon.kill()
        until("the containers are gone", lambda: not self.children())


class ClockTests(DaemonCase):
    def test_a_wall_clock_that_is_stepped_back_an_hour_delays_nothing(self) -> None:
        offset = Path(self.mktemp()).resolve()
        offset.write_text("+0\n")
        self.serve(
            server("one", ECHO),
            env={
                "LD_PRELOAD": str(FAKETIME),
                "FAKETIME_TIMESTAMP_FILE": str(offset),
                "FAKETIME_NO_CACHE": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            },
        )
        token = self.token(**{"x-modal-server-session-idle-timeout": "5"})
        before = self.start().json()["expires_at"]
        offset.write_text("-3600\n")
        begun = time.monotonic()
        self.assertEqual(self.get(token).status_code, 200)
        after = self.start().json()["expires_at"]
        self.assertLess(after, before - 3000, "the step did not reach the daemon, so this test shows nothing")
        until("the session expires", lambda: self.look(token) == 410)
        self.assertGreater(time.monotonic() - begun, 4.5)

    def look(self, token: str) -> int:
        """The status call touches no clock."""
        fields = {"Modal-Authorization": f"Bearer {token}"}
        return self.http.get(f"{self.url}/_modal/sessions/status", headers=fields, timeout=5).status_code

    if not FAKETIME.exists():
        test_a_wall_clock_that_is_stepped_back_an_hour_delays_nothing.skip = "faketime is not installed"  # type: ignore[attr-defined]


class ImportTests(SynchronousTestCase):
    def test_an_app_whose_import_deletes_a_file_cannot_reach_the_daemons(self) -> None:
        folder = Path(self.mktemp()).resolve()
        folder.mkdir()
        (folder / "app.py").write_text(
            "import os, sys, sticky\n"
            "here = os.path.dirname(__file__)\n"
            "open(os.path.join(here, 'importers'), 'a').write(f'{os.getpid()}\\n')\n"
            "if os.path.basename(sys.argv[0]) == 'twistd': os.remove(os.path.join(here, 'precious'))\n"
            "app = sticky.App('planted')\n"
            "@app.server()\n@sticky.sessioned()\nclass Server:\n"
            "    @sticky.enter()\n    def start(self): pass\n"
        )
        (folder / "precious").touch()
        daemon = Daemon(folder, "--app", str(folder / "app.py"))
        self.addCleanup(daemon.stop)
        daemon.url()
        self.assertTrue((folder / "precious").exists())
        importers = (folder / "importers").read_text().split()
        self.assertTrue(importers)
        self.assertNotIn(str(daemon.pid), importers)
