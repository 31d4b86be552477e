"""Several worker processes behind one port: sessions as with one, and a worker's death takes nothing along but its connections."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from pathlib import Path

import requests
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.integration import test_plain_servers, test_turns
from tests.integration.daemon_case import APPS, ECHO, DaemonCase, server
from tests.integration.running_daemon import until

COUNTER = json.dumps([sys.executable, str(APPS / "counter.py"), "{port}"])
TWO = "[daemon]\nworkers = 2\n\n"


class WorkersCase(DaemonCase):
    def workers(self) -> list[int]:
        """Pids of the daemon's worker processes."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and b"sticky.worker" in (entry / "cmdline").read_bytes():
                    status = (entry / "status").read_text()
                    if f"PPid:\t{self.daemon.pid}\n" in status and "State:\tZ" not in status:
                        found.append(int(entry.name))
            except OSError:  # gone meanwhile
                continue
        return sorted(found)

    def spread(self, token: str) -> None:
        """Ask on so many fresh connections that each worker is sure to have served this session."""
        for _ in range(32):
            self.http.close()
            self.assertEqual(self.get(token).status_code, 200)


class WorkerTests(WorkersCase):
    def test_sessions_are_the_same_whatever_worker_a_connection_reaches(self) -> None:
        self.serve(TWO + server("one", COUNTER))
        token = self.token()
        containers = set()
        for count in range(1, 33):
            self.http.close()  # a new connection, which the kernel gives to either worker
            container, seen = self.get(token).text.split()
            containers.add(container)
            self.assertEqual(int(seen), count)
        self.assertEqual(len(containers), 1)
        self.assertEqual(len(self.workers()), 2)

    def test_a_terminated_session_is_refused_by_every_worker_once_that_is_answered(self) -> None:
        self.serve(TWO + server("one", COUNTER))
        for _ in range(3):
            token = self.token()
            self.spread(token)
            self.assertEqual(self.terminate(token).status_code, 200)
            for _ in range(16):
                self.http.close()
                refused = self.get(token)
                self.assertEqual((refused.status_code, refused.json()["error"]), (410, "terminated"))

    def test_a_websocket_counts_and_is_closed_with_the_session(self) -> None:
        self.serve(TWO + server("one", ECHO))
        token = self.token(**{"x-modal-server-session-idle-timeout": "60"})
        sockets = [self.websocket(token) for _ in range(4)]
        fields = {"Modal-Authorization": f"Bearer {token}"}

        def status() -> dict[str, object]:
            answer = self.http.get(f"{self.url}/_modal/sessions/status", headers=fields, timeout=60)
            self.assertEqual(answer.status_code, 200, answer.text)
            found: dict[str, object] = answer.json()
            return found

        until("all four are seen", lambda: status()["in_flight"] == 4)
        self.assertEqual(self.terminate(token).status_code, 200)
        for one in sockets:
            one.send("still")
            one.recv(timeout=60)
        for one in sockets:
            one.close()
        until("it ends with the last", lambda: self.get(token).json().get("error") == "terminated")

    def test_it_expires_when_nothing_is_in_flight_in_any_worker(self) -> None:
        self.serve(TWO + server("one", COUNTER))
        token = self.token(**{"x-modal-server-session-idle-timeout": "1"})
        self.spread(token)
        fields = {"Modal-Authorization": f"Bearer {token}"}
        url = f"{self.url}/_modal/sessions/status"
        until("it expires", lambda: self.http.get(url, headers=fields, timeout=60).status_code == 410)
        self.assertEqual(self.get(token).json()["error"], "idle_timeout")

    def test_a_start_tells_how_it_stands_through_a_worker(self) -> None:
        self.serve(TWO + server("one", COUNTER))
        events = self.start(Accept="text/event-stream")
        self.assertEqual(events.headers["content-type"].partition(";")[0], "text/event-stream")
        self.assertIn("event: started", events.text)
        self.assertEqual(self.start(**{"x-modal-server-session-idle-timeout": "soon"}).status_code, 400)
        self.bearer = "wk-nobody.ws-" + "a" * 32
        self.assertEqual(self.start().status_code, 401)

    def test_a_worker_that_is_killed_is_replaced_and_no_session_nor_waiting_connection_is_lost(self) -> None:
        self.serve(TWO + server("one", COUNTER))
        token = self.token()
        self.spread(token)
        before = self.workers()
        os.kill(before[0], signal.SIGKILL)
        count = int(self.get_again(token))
        until("another one is there", lambda: len(self.workers()) == 2 and before[0] not in self.workers())
        for further in range(1, 17):
            self.http.close()
            self.assertEqual(int(self.get_again(token)), count + further)
        for pid in self.workers():
            os.kill(pid, signal.SIGSTOP)
            self.addCleanup(self.wake, pid)
        port = int(self.url.rpartition(":")[2])
        waiting = [socket.create_connection(("127.0.0.1", port)) for _ in range(8)]
        for one in waiting:
            self.addCleanup(one.close)
            one.sendall(f"GET / HTTP/1.1\r\nHost: a\r\nModal-Authorization: Bearer {token}\r\n\r\n".encode())
        for pid in self.workers():
            os.kill(pid, signal.SIGKILL)
        for one in waiting:
            one.settimeout(60)
            self.assertTrue(one.recv(4096).startswith(b"HTTP/1.1 200"))

    def get_again(self, token: str) -> str:
        """As a client that tries again when its connection breaks."""
        for _ in range(5):
            try:
                return self.get(token).text.split()[1]
            except requests.ConnectionError:
                continue
        raise AssertionError("no answer in five attempts")

    def test_leases_of_a_worker_that_is_killed_are_free(self) -> None:
        self.serve(TWO + server("one", ECHO))
        token = self.token(**{"x-modal-server-session-idle-timeout": "1"})
        opened = [self.websocket(token) for _ in range(8)]
        for pid in self.workers():
            os.kill(pid, signal.SIGKILL)
        for one in opened:
            one.close()
        until("it expires", lambda: self.get_again_status(token) == 410)

    def get_again_status(self, token: str) -> int:
        try:
            fields = {"Modal-Authorization": f"Bearer {token}"}
            url = f"{self.url}/_modal/sessions/status"
            return self.http.get(url, headers=fields, timeout=60).status_code
        except requests.ConnectionError:
            return 0

    def test_a_worker_that_hangs_is_cut_off_when_a_session_is_terminated(self) -> None:
        self.serve(TWO + server("one", COUNTER))
        token = self.token()
        self.spread(token)
        hanging = self.workers()[0]
        os.kill(hanging, signal.SIGSTOP)
        self.addCleanup(lambda: self.wake(hanging))
        self.http.close()

        def terminated() -> bool:
            try:
                fields = {"Authorization": f"Bearer {self.bearer}", "x-modal-server-session-token": token}
                url = f"{self.url}/_modal/sessions/terminate"
                answer = requests.post(url, headers=fields, timeout=3)
            except requests.RequestException:  # it was the hanging one that has the connection
                return False
            self.assertIn(answer.status_code, (200, 404))
            return True

        until("it is terminated", terminated)
        until("the hanging one is gone", lambda: hanging not in self.workers())
        until("another one is there", lambda: len(self.workers()) == 2)

    def wake(self, pid: int) -> None:
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass

    def test_workers_end_with_their_daemon(self) -> None:
        self.serve(TWO + server("one", COUNTER))
        self.token()
        until("both run", lambda: len(self.workers()) == 2)
        workers = self.workers()
        self.daemon.kill()
        until("they are gone", lambda: not any(Path(f"/proc/{pid}/cwd").exists() for pid in workers))
        self.run_daemon()
        self.assertEqual(self.get(self.token()).status_code, 200)

    def test_a_tidy_stop_closes_websockets_and_takes_workers_along(self) -> None:
        self.serve(TWO + server("one", ECHO))
        opened = [self.websocket(self.token()) for _ in range(4)]
        workers = self.workers()
        self.assertIn(self.daemon.stop(), (0, -signal.SIGTERM))
        for one in opened:
            with self.assertRaises(ConnectionClosed) as closed:
                while True:
                    one.recv(timeout=60)
            assert closed.exception.rcvd is not None
            self.assertEqual((closed.exception.rcvd.code, closed.exception.rcvd.reason), (1001, "server_stopped"))
        self.assertFalse(any(Path(f"/proc/{pid}/cwd").exists() for pid in workers))


class TurnsThroughWorkersTests(test_turns.TurnTests):
    """Requests of one session take turns whatever worker they come to."""

    def serve(self, config: str, env: dict[str, str] | None = None) -> None:
        super().serve(TWO + config, env)

    def get(self, token: str | None, path: str = "/", **headers: str) -> requests.Response:
        return super().get(token, path, Connection="close", **headers)


class PlainServersThroughWorkersTests(test_plain_servers.PlainServerTests):
    """Requests of a Server without sessions are let in, led, counted and cut whatever worker they come to."""

    def serve(self, config: str, env: dict[str, str] | None = None) -> None:
        super().serve(TWO + config, env)

    def change(self, config: str) -> None:
        super().change(TWO + config)

    def ask(self, path: str = "/", **headers: str) -> requests.Response:
        return super().ask(path, Connection="close", **headers)

    def test_a_worker_that_dies_gives_back_what_it_had_in_flight(self) -> None:
        self.serve(server("one", ECHO, sessioned=False, unauthenticated=True))
        self.up()
        opened = [connect(self.url.replace("http", "ws") + "/ws") for _ in range(8)]
        until("all count", lambda: self.in_flight() == 8, within=60)
        for pid in WorkersCase.workers(self):  # type: ignore[arg-type]
            os.kill(pid, signal.SIGKILL)
        for one in opened:
            with self.assertRaises(ConnectionClosed):
                while True:
                    one.recv(timeout=30)
        until("nothing is in flight", lambda: self.in_flight() == 0, within=60)
        self.assertEqual(self.up().status_code, 200)
