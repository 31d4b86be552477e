"""How `sticky serve` ends at each stage: Ctrl-C (130), a closed terminal (129), SIGKILL. Nothing is left, and its port is free."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess

from tests.integration.running_daemon import until
from tests.integration.test_cli import DEADLINE
from tests.integration.test_cli_endings import SLOW_APP, STAGES, EndingCase

#: Programs that know nothing of who started them: they would stay.
STUBBORN = """
import os, subprocess, sys
import sticky

app = sticky.App("stubborn")


@app.server(port=None, min_containers=1)
@sticky.sessioned()
class Server:
    @sticky.enter()
    def start(self):
        for port in (os.environ["PORT"], "0"):
            command = [sys.executable, "-m", "http.server", port, "--bind", "127.0.0.1"]
            subprocess.Popen(command, start_new_session=True)
"""


def a_port() -> int:
    """One that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


class ServeCase(EndingCase):
    def setUp(self) -> None:
        super().setUp()
        self.port = a_port()

    def serve(self) -> subprocess.Popen[str]:
        self.log = (self.folder / "serve.log").open("ab")
        self.addCleanup(self.log.close)
        where = f"tcp:{self.port}:interface=127.0.0.1"
        return self.popen("serve", "app.py", "--listen", where, stdout=self.log, stderr=self.log)

    def said(self) -> str:
        return (self.folder / "serve.log").read_text(errors="replace")

    def daemon(self) -> int:
        """Its process, once it answers."""

        def asked() -> int:
            child = self.popen("status", "--json")
            out, _ = child.communicate(timeout=DEADLINE)
            return int(json.loads(out)["daemon"]["pid"]) if child.returncode == 0 else 0

        return until("the daemon answers", asked, DEADLINE)

    def nothing_is_left(self) -> None:
        until("nothing is left", lambda: not self.left(), DEADLINE)

    def ends(self, child: subprocess.Popen[str], number: int, status: int) -> None:
        os.killpg(child.pid, number)
        self.assertEqual(status, child.wait(DEADLINE), self.said())
        self.assertNotIn("KeyboardInterrupt", self.said())


class InterruptTests(ServeCase):
    def test_while_the_app_is_imported(self) -> None:
        (self.folder / "app.py").write_text(SLOW_APP)
        child = self.serve()
        self.until_there("importing")
        self.ends(child, signal.SIGINT, 130)
        self.nothing_is_left()

    def test_while_a_session_is_there(self) -> None:
        (self.folder / "app.py").write_text(STAGES.format(exit_takes=0, main_takes=0))
        child = self.serve()
        self.daemon()
        self.run_("sessions", "start")
        self.ends(child, signal.SIGINT, 130)
        self.assertTrue((self.folder / "stopping").exists(), "its exit hooks have run")
        self.nothing_is_left()

    def test_while_a_change_is_looked_at(self) -> None:
        (self.folder / "app.py").write_text(STAGES.format(exit_takes=0, main_takes=0))
        child = self.serve()
        self.daemon()
        (self.folder / "app.py").write_text(SLOW_APP)
        self.until_there("importing")
        self.ends(child, signal.SIGINT, 130)
        self.nothing_is_left()

    def test_again_while_it_stops(self) -> None:
        (self.folder / "app.py").write_text(STAGES.format(exit_takes=60, main_takes=0))
        child = self.serve()
        self.daemon()
        self.run_("sessions", "start")
        os.killpg(child.pid, signal.SIGINT)
        self.until_there("stopping")
        self.ends(child, signal.SIGINT, 130)

    def test_a_closed_terminal_is_an_end_like_it(self) -> None:
        (self.folder / "app.py").write_text(STAGES.format(exit_takes=0, main_takes=0))
        child = self.serve()
        self.daemon()
        self.run_("sessions", "start")
        self.ends(child, signal.SIGHUP, 129)
        self.nothing_is_left()


class KillTests(ServeCase):
    def test_the_daemon_goes_with_it_and_the_next_one_has_the_port(self) -> None:
        (self.folder / "app.py").write_text(STUBBORN)
        child = self.serve()
        first = self.daemon()
        until("its programs run", lambda: len(self.left()) >= 5, DEADLINE)  # serve, daemon, container, two of that
        child.kill()
        child.wait(DEADLINE)
        self.nothing_is_left()
        second = self.serve()
        self.assertNotEqual(first, self.daemon())
        self.ends(second, signal.SIGINT, 130)
        self.nothing_is_left()

    def test_a_run_that_is_killed_takes_its_daemon_along(self) -> None:
        child = self.run_stages()
        self.until_there("started")
        child.kill()
        child.communicate(timeout=DEADLINE)
        self.nothing_is_left()
