"""What an operator decides is answered when every worker goes by it, an earlier daemon that serves its last connections as well."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from typing import Any

from sticky.cli.client import Admin
from tests.integration.daemon_case import APPS, DaemonCase, server
from tests.integration.running_daemon import ROOT, until
from tests.integration.test_restart import RestartCase
from tests.integration.test_workers import TWO, WorkersCase

COUNTER = json.dumps([sys.executable, str(APPS / "counter.py"), "{port}"])
GATED = json.dumps([sys.executable, str(APPS / "gated.py"), "{port}"])
DRAINS = "[daemon]\ndrain_timeout = 600\n\n"
TRIES = 16  #: fresh connections, so that each of two workers is sure to be asked
REFUSED = {401, 429}  #: 429 once a worker has been offered too many wrong ones


class ToldCase(WorkersCase):
    def serve(self, config: str, env: dict[str, str] | None = None) -> None:
        super().serve(config, env)
        until(
            "both serve",
            lambda: [one["state"] for one in self.admin.status()["workers"]] == ["serving"] * 2,
            within=120,
        )

    def ask_all(self, token: str, **headers: str) -> set[int]:
        """What the workers say to this token."""
        said = set()
        for _ in range(TRIES):
            self.http.close()
            said.add(self.get(token, **headers).status_code)
        return said

    @property
    def admin(self) -> Admin:
        return Admin(self.folder / "state")


class ToldTests(ToldCase):
    def test_a_rotation_of_keys(self) -> None:
        self.serve(TWO + server("one", COUNTER))
        for _ in range(3):
            before = self.token()
            self.assertEqual(self.ask_all(before), {200})
            self.assertEqual(self.admin.call("POST", "/v1/keys/rotate", body={})["cut_off"], [])
            after = self.token()
            self.assertEqual((self.ask_all(after), self.ask_all(before)), ({200}, {200}))
            self.assertEqual(self.admin.call("POST", "/v1/keys/rotate", body={"revoke": True})["cut_off"], [])
            self.assertLessEqual(self.ask_all(after) | self.ask_all(before), REFUSED)
            self.assertEqual(self.ask_all(self.token()), {200})

    def test_a_deploy(self) -> None:
        self.serve(TWO + server("one", COUNTER, hosts=["one.localhost"]))
        for names in (("one", "two"), ("two",), ("one", "two", "three")):
            tables = [server(name, COUNTER, hosts=[f"{name}.localhost"]) for name in names]
            (self.folder / "sticky.toml").write_text(TWO + "".join(tables))
            self.assertEqual(self.admin.call("POST", "/v1/deploy", body={}, timeout=60)["cut_off"], [])
            for name in ("one", "two", "three"):
                said = self.ask_all("none", Host=f"{name}.localhost")
                if name in names:
                    self.assertLessEqual(said, REFUSED)
                else:
                    self.assertEqual(said, {404})

    def test_a_revoked_proxy_token(self) -> None:
        self.serve(TWO + server("one", COUNTER))
        made = self.admin.call("POST", "/v1/tokens", body={"owner": "alice"})
        self.bearer = made["bearer"]
        self.assertEqual({self.fresh_start() for _ in range(4)}, {200})
        self.admin.call("POST", f"/v1/tokens/{made['id']}/revoke")
        self.assertLessEqual({self.fresh_start() for _ in range(TRIES)}, REFUSED)

    def fresh_start(self) -> int:
        self.http.close()
        return self.start().status_code

    def test_a_worker_that_hangs_is_named_and_ended_and_nobody_goes_by_the_earlier_key(self) -> None:
        self.serve(TWO + server("one", COUNTER))
        token = self.token()
        self.assertEqual(self.ask_all(token), {200})
        hanging = self.workers()[0]
        named = next(one["name"] for one in self.admin.status()["workers"] if one["pid"] == hanging)
        os.kill(hanging, signal.SIGSTOP)
        self.addCleanup(self.wake, hanging)
        done = self.admin.call("POST", "/v1/keys/rotate", body={"revoke": True}, timeout=60)
        self.assertEqual(done["cut_off"], [named])
        until("it is gone", lambda: hanging not in self.workers())
        until("another one is there", lambda: len(self.workers()) == 2)
        until("it serves", lambda: all(one["state"] == "serving" for one in self.admin.status()["workers"]))
        self.assertLessEqual(self.ask_all(token), REFUSED)

    def wake(self, pid: int) -> None:
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass


class StatusTests(ToldCase):
    def test_workers_are_shown_with_what_they_hold_and_how_often_they_were_started_again(self) -> None:
        self.serve(TWO + server("one", json.dumps([sys.executable, str(APPS / "echo_ws.py"), "{port}"])))
        opened = [self.websocket(self.token()) for _ in range(3)]

        def workers() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = self.admin.status()["workers"]
            return found

        def sums() -> tuple[int, ...]:
            return tuple(sum(one[what] for one in workers()) for what in ("websockets", "in_flight", "sessions"))

        until("all are seen", lambda: sums() == (3, 3, 3), within=30)
        self.assertEqual(sorted(one["pid"] for one in workers()), self.workers())
        self.assertEqual([(one["name"], one["restarts"]) for one in workers()], [("worker-1", 0), ("worker-2", 0)])
        os.kill(next(one["pid"] for one in workers() if one["name"] == "worker-2"), signal.SIGKILL)
        until("it was started again", lambda: [one["restarts"] for one in workers()] == [0, 1], within=30)
        until("it serves", lambda: all(one["state"] == "serving" for one in workers()), within=30)
        for one in opened:
            one.close()
        until("nothing is held", lambda: sums() == (0, 0, 0), within=30)


class EarlierDaemonTests(RestartCase):
    def test_it_goes_by_keys_and_servers_of_the_new_one(self) -> None:
        """On a connection that it serves still: its first request waits, and those behind it are looked at when their turn comes."""
        DaemonCase.serve(self, DRAINS + server("one", GATED, hosts=["one.localhost"]), {"PYTHONPATH": str(ROOT)})
        self.addCleanup(self.kill_daemons)
        old, before = self.lock_pid(), self.token("one.localhost")
        port = int(self.url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=120) as kept:
            kept.sendall(asks("/wait", before) + asks("/inside", before))
            until("it waits", lambda: self.get(before, "/inside", Host="one.localhost").text == "1", within=60)
            self.restarted()
            self.http.close()
            admin = Admin(self.folder / "state")
            self.assertEqual([(one["pid"], one["state"]) for one in admin.status()["workers"]], [(old, "leaving")])
            config = self.folder / "sticky.toml"
            tables = [server(name, GATED, hosts=[f"{name}.localhost"]) for name in ("one", "two")]
            config.write_text(DRAINS + "".join(tables))
            self.assertEqual(admin.call("POST", "/v1/deploy", body={}, timeout=120)["cut_off"], [])
            self.assertEqual(admin.call("POST", "/v1/keys/rotate", body={"revoke": True}, timeout=60)["cut_off"], [])
            after, other = self.token("one.localhost"), self.token("two.localhost")
            kept.sendall(asks("/inside", after) + asks("/inside", other, "two.localhost"))
            self.assertEqual(self.get(after, "/go", Host="one.localhost").status_code, 200)
            self.assertEqual([status_of(kept) for _ in range(4)], [200, 401, 200, 200])


def asks(path: str, token: str, host: str = "one.localhost") -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\nModal-Authorization: Bearer {token}\r\n\r\n".encode()


def status_of(kept: socket.socket) -> int:
    """Of the next answer; all of it is read."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += kept.recv(1)
        assert head, "the connection was closed"
    length = next(int(line.split(b":")[1]) for line in head.lower().splitlines() if line.startswith(b"content-length:"))
    while length:
        length -= len(kept.recv(length))
    return int(head.split()[1])
