"""`sticky restart`: a new daemon takes over, and nobody who is connected, starts or asks notices more than a moment."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import requests
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from sticky.cli.client import Admin
from sticky.cli.problems import Status
from tests.integration.daemon_case import APPS, ECHO, DaemonCase, server
from tests.integration.running_daemon import ROOT, until

COUNTER = json.dumps([sys.executable, str(APPS / "counter.py"), "{port}"])


class RestartCase(DaemonCase):
    workers = 1
    drain_timeout = 300  #: the old one must not leave before a test is through with it, however slow the machine is

    def serve(self, config: str, env: dict[str, str] | None = None) -> None:
        daemon = f"[daemon]\nworkers = {self.workers}\ndrain_timeout = {self.drain_timeout}\n\n"
        super().serve(daemon + config, {"PYTHONPATH": str(ROOT), **(env or {})})
        self.addCleanup(self.kill_daemons)

    def lock_pid(self) -> int:
        """Whoever is in charge."""
        return int((self.folder / "state" / "lock").read_text())

    def kill_daemons(self) -> None:
        """The first one is the case's own; later ones are not its children."""
        for pid in self.daemons():
            os.kill(pid, signal.SIGKILL)

    def daemons(self) -> list[int]:
        found = [self.daemon.pid] if self.daemon.alive() else []  # its command line may be that of `preloading`
        for entry in Path("/proc").iterdir():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if b"sticky" in words and str(self.folder / "state").encode() in words:
                    found.append(int(entry.name))
            except (OSError, ValueError):
                continue
        return list(dict.fromkeys(found))

    def restart(self, status: int = 0) -> str:
        return self.sticky("restart", "--state-dir", str(self.folder / "state"), status=status)

    @contextmanager
    def journal_in_the_way(self) -> Iterator[None]:
        """Whoever opens it now cannot: where its index belongs there is something else. Who has it open does not notice."""
        index = self.folder / "state" / "journal.db-shm"
        index.rename(index.with_name("kept"))
        index.mkdir()
        yield
        index.rmdir()

    def restarted(self) -> int:
        """Restart, and the new one's pid."""
        before = self.lock_pid()
        self.restart()
        after = self.lock_pid()
        self.assertNotEqual(after, before)
        return after

    def stop(self, pid: int) -> None:
        os.kill(pid, signal.SIGTERM)
        until("it ends", lambda: pid not in self.daemons())


class RestartTests(RestartCase):
    def test_sessions_and_containers_go_on_and_the_old_one_ends(self) -> None:
        self.serve(server("one", COUNTER))
        token = self.token()
        container, count = self.get(token).text.split()
        old, processes = self.lock_pid(), self.children()
        new = self.restarted()
        self.http.close()
        self.assertEqual(self.get(token).text.split(), [container, str(int(count) + 1)])
        self.assertEqual(self.children(), processes)
        until("the old one has ended", lambda: old not in self.daemons())
        self.assertEqual(self.get(token).status_code, 200)
        self.assertEqual(self.start().status_code, 200)
        self.stop(new)
        self.assertEqual(self.children(), [])

    def test_an_open_websocket_stays_through_two_restarts_and_its_session_does_not_idle_out(self) -> None:
        """Whoever serves it goes from the second daemon to the third."""
        self.serve(server("one", ECHO))
        token = self.token(**{"x-modal-server-session-idle-timeout": "1"})
        opened = self.websocket(token)
        self.restarted()
        self.restarted()
        deadline = time.monotonic() + 4
        while time.monotonic() < deadline:
            opened.send("there?")
            while opened.recv(timeout=60) != "there?":
                pass
        self.http.close()
        self.assertEqual(self.get(token).status_code, 200)
        opened.close()
        fields = {"Modal-Authorization": f"Bearer {token}"}
        url = f"{self.url}/_modal/sessions/status"
        until("then it does", lambda: self.http.get(url, headers=fields, timeout=5).status_code == 410)

    def test_a_plain_servers_websocket_stays_and_keeps_its_container(self) -> None:
        self.serve(server("one", ECHO, sessioned=False, scaledown_window=2))
        bearer = {"Authorization": f"Bearer {self.bearer}"}
        until("it serves", lambda: requests.get(self.url, headers=bearer, timeout=30).status_code == 200, 120)
        opened = connect(self.url.replace("http", "ws") + "/ws", additional_headers=bearer)
        self.addCleanup(opened.close)
        opened.recv(timeout=30)
        (container,) = self.children()
        self.restarted()
        deadline = time.monotonic() + 4  # twice the window
        while time.monotonic() < deadline:
            opened.send("there?")
            self.assertEqual(opened.recv(timeout=30), "there?")
        self.assertEqual(self.children(), [container])
        self.assertEqual(requests.get(self.url, timeout=30).status_code, 401)
        self.assertEqual(requests.get(self.url, headers=bearer, timeout=30).status_code, 200)
        # A worker says a moment after the answer that a request is over.
        admin = Admin(self.folder / "state")
        until("the WebSocket alone counts", lambda: admin.status()["servers"][0]["sessions"]["in_flight"] == 1)
        opened.close()
        until("then it goes", lambda: not self.children(), within=60)

    def test_terminate_in_the_new_one_reaches_the_websocket_in_the_old_one(self) -> None:
        self.serve(server("one", ECHO))
        token = self.token()
        opened = self.websocket(token)
        self.restarted()
        self.http.close()
        fields = {"Authorization": f"Bearer {self.bearer}", "x-modal-server-session-token": token}
        url = f"{self.url}/_modal/sessions/terminate"
        answer = self.http.post(url, headers={**fields, "x-modal-server-session-grace": "0"}, timeout=30)
        self.assertEqual(answer.status_code, 200)
        with self.assertRaises(ConnectionClosed) as closed:
            while True:
                opened.recv(timeout=60)
        assert closed.exception.rcvd is not None
        self.assertEqual((closed.exception.rcvd.code, closed.exception.rcvd.reason), (4410, "terminated"))

    def test_no_request_fails_and_no_start_is_refused_meanwhile(self) -> None:
        self.serve(server("one", COUNTER, max_concurrency=1000))
        tokens = [self.token() for _ in range(3)]
        stop, answered = threading.Event(), [0]
        faults: list[object] = []

        def load(token: str, fresh: bool) -> None:
            http = requests.Session()
            while not stop.is_set():
                try:
                    answer = http.get(self.url, headers={"Modal-Authorization": f"Bearer {token}"}, timeout=90)
                    if answer.status_code != 200:
                        faults.append(("get", answer.status_code, answer.text))
                    answered[0] += 1
                except requests.RequestException as error:
                    faults.append(("get", fresh, repr(error)))
                if fresh:
                    http.close()

        def starts() -> None:
            fields = {"Authorization": f"Bearer {self.bearer}", "Connection": "close"}
            while not stop.is_set():
                try:
                    url = f"{self.url}/_modal/sessions/start"
                    answer = requests.post(url, headers=fields, timeout=90)
                    if answer.status_code != 200:
                        faults.append(("start", answer.status_code, answer.text))
                except requests.RequestException as error:
                    faults.append(("start", repr(error)))

        threads = [threading.Thread(target=load, args=(token, True)) for token in tokens]
        threads += [threading.Thread(target=load, args=(tokens[0], False)), threading.Thread(target=starts)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(3):
                self.restarted()
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        self.assertEqual(faults, [])
        self.assertGreater(answered[0], 20)

    def test_a_new_daemon_that_does_not_start_changes_nothing_and_says_why(self) -> None:
        self.serve(server("one", COUNTER))
        token = self.token()
        config = self.folder / "sticky.toml"
        good, pid = config.read_text(), self.lock_pid()
        config.write_text(good + "nonsense = 1\n")
        self.assertIn("nonsense", self.restart(status=Status.USAGE))
        self.assertEqual(self.lock_pid(), pid)
        self.assertEqual(self.get(token).status_code, 200)
        self.assertEqual(self.start().status_code, 200)
        config.write_text(good)
        self.restarted()
        self.http.close()
        self.assertEqual(self.get(token).status_code, 200)

    def test_a_new_daemon_that_fails_while_it_takes_over_leaves_the_old_one_in_charge(self) -> None:
        self.serve(server("one", COUNTER))
        token, pid = self.token(), self.lock_pid()
        count = int(self.get(token).text.split()[1])
        with self.journal_in_the_way():
            self.assertIn("cannot open the journal", self.restart(status=Status.USAGE))
        self.assertEqual(self.lock_pid(), pid)
        self.assertEqual(int(self.get(token).text.split()[1]), count + 1)

    def test_a_new_daemon_that_cannot_have_its_admin_port_leaves_the_old_one_in_charge(self) -> None:
        self.serve(server("one", COUNTER))
        token, pid = self.token(), self.lock_pid()
        count = int(self.get(token).text.split()[1])
        config = self.folder / "sticky.toml"
        good = config.read_text()
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            listen = f'[daemon]\nadmin_listen = ["tcp:{port}:interface=127.0.0.1"]\n'
            config.write_text(good.replace("[daemon]\n", listen, 1))
            self.assertIn("cannot open the admin port", self.restart(status=Status.USAGE))
        self.assertEqual(self.lock_pid(), pid)
        self.assertEqual(int(self.get(token).text.split()[1]), count + 1)
        self.assertEqual(self.start().status_code, 200)
        self.restarted()
        socket.create_connection(("127.0.0.1", port), 5).close()

    def test_a_crash_of_the_new_one_is_a_crash_like_any_other(self) -> None:
        self.serve(server("one", COUNTER))
        token = self.token()
        container = self.get(token).text.split()[0]
        new = self.restarted()
        os.kill(new, signal.SIGKILL)
        until("all are gone", lambda: not self.daemons())
        self.run_daemon({"PYTHONPATH": str(ROOT)})
        self.assertEqual(self.get(token).text.split()[0], container)


class RestartWithWorkersTests(RestartTests):
    workers = 2
