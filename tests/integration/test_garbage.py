"""Sessions come and go without a trace: what reference counts do not free waits for the collector, which looks rarely."""

from __future__ import annotations

import json
import os
import signal
from functools import partial
from pathlib import Path

from tests.integration.daemon_case import ECHO, server
from tests.integration.running_daemon import ROOT, until
from tests.integration.test_workers import COUNTER, TWO, WorkersCase

AT_START = Path(__file__).with_name("at_start")
ROUNDS = 30
#: Objects that a process may leave that do not come with each session, but with time or with a container.
FEW = ROUNDS // 2


class GarbageTests(WorkersCase):
    def observed(self, config: str) -> None:
        """A daemon that can be asked what it leaves to the collector."""
        self.told = Path(self.mktemp()).resolve()
        self.told.mkdir()
        path = os.pathsep.join([str(AT_START), str(ROOT), os.environ.get("PYTHONPATH", "")])
        self.serve(config, {"PYTHONPATH": path, "STICKY_TEST_GARBAGE": str(self.told)})

    def tell(self, number: signal.Signals) -> dict[str, dict[str, int]]:
        """Signal the daemon and its workers, and wait for what each has to say."""
        processes = {"daemon": self.daemon.pid} | {f"worker {pid}": pid for pid in self.workers()}
        found = {}
        for name, pid in processes.items():
            path = self.told / f"{pid}.json"
            path.unlink(missing_ok=True)
            os.kill(pid, number)
            until(f"{name} has said what it leaves", path.exists)
            found[name] = json.loads(path.read_text())
        return found

    def round(self) -> None:
        """A session's life, with connections that each worker may have got."""
        token = self.token()
        for _ in range(3):
            self.http.close()
            self.assertEqual(self.get(token).status_code, 200)
        self.http.close()
        self.assertEqual(self.terminate(token).status_code, 200)
        self.assertEqual(self.get(token).status_code, 410)

    def serves(self, token: str | None) -> bool:
        return self.get(token).status_code == 200

    def nothing_stays(self) -> None:
        """Of whatever was done since the collector was turned off."""
        for name, kinds in self.tell(signal.SIGUSR2).items():
            ours = {kind: count for kind, count in kinds.items() if kind.startswith("sticky.")}
            self.assertEqual(ours, {}, f"{name}: {kinds}")
            self.assertLess(sum(kinds.values()), FEW, f"{name}: {kinds}")

    def test_sessions_and_their_requests_leave_nothing_to_it(self) -> None:
        for config in (server("one", COUNTER), TWO + server("one", COUNTER)):
            self.observed(config)
            for _ in range(3):
                self.round()
            self.tell(signal.SIGUSR1)
            for _ in range(ROUNDS):
                self.round()
            self.nothing_stays()
            self.daemon.stop()

    def test_requests_that_take_turns_and_those_of_plain_servers_leave_nothing_to_it(self) -> None:
        for settings in ({"serial": True}, {"sessioned": False, "unauthenticated": True}):
            self.observed(TWO + server("one", COUNTER, **settings))
            token = self.token() if "serial" in settings else None
            until("a container is there", partial(self.serves, token))
            self.tell(signal.SIGUSR1)
            for _ in range(ROUNDS):
                self.http.close()
                self.assertEqual(self.get(token).status_code, 200)
            self.nothing_stays()
            self.daemon.stop()

    def test_websockets_leave_nothing_to_it(self) -> None:
        self.observed(TWO + server("one", ECHO))
        for collects in (True, False):
            for _ in range(3 if collects else ROUNDS):
                token = self.token()
                opened = self.websocket(token)
                opened.send("here")
                opened.recv(timeout=60)
                opened.close()
                self.assertEqual(self.terminate(token).status_code, 200)
            if collects:
                self.tell(signal.SIGUSR1)
        self.nothing_stays()
