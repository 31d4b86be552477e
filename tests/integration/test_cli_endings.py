"""How a command ends before its time: Ctrl-C at every stage (130, nothing left), a closed pipe (141); what a terminal shows."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

from tests.integration.daemon_case import ECHO, server
from tests.integration.running_daemon import Daemon, until
from tests.integration.test_cli import DEADLINE, STICKY, CommandCase

SLOW_APP = """
import pathlib, sys, time
pathlib.Path("importing").touch()
time.sleep(60)
import sticky
app = sticky.App("slow")
"""

#: Takes a request and does not answer.
SLOW = json.dumps(
    [
        sys.executable,
        "-c",
        "import http.server as h, pathlib, sys, time\n"
        "class H(h.BaseHTTPRequestHandler):\n"
        "    def do_GET(self): pathlib.Path('asked').touch(); time.sleep(60)\n"
        "h.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), H).serve_forever()",
        "{port}",
    ]
)

#: What `sticky run` goes through; each stage says that it has come.
STAGES = """
import os, pathlib, subprocess, sys, time
import sticky

app = sticky.App("stages")


@app.server(port=None)
@sticky.sessioned()
class Server:
    @sticky.enter()
    def start(self):
        command = [sys.executable, "-m", "http.server", os.environ["PORT"], "--bind", os.environ["STICKY_HOST"]]
        subprocess.Popen(command)

    @sticky.exit()
    def stop(self):
        pathlib.Path("stopping").touch()
        time.sleep({exit_takes})


@app.local_entrypoint()
def main():
    pathlib.Path("entered").touch()
    session = Server.sessions.start()
    pathlib.Path("started").touch()
    time.sleep({main_takes})
"""


class EndingCase(CommandCase):
    def setUp(self) -> None:
        super().setUp()
        self.mark = uuid.uuid4().hex
        self.environ["STICKY_TEST_MARK"] = self.mark
        self.addCleanup(self.kill_left)

    def left(self) -> list[int]:
        """Processes that came from our commands, or that work in our folder."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if not entry.name.isdigit() or int(entry.name) == os.getpid():
                    continue
                ours = self.mark.encode() in (entry / "environ").read_bytes()
                here = (entry / "cwd").readlink() == self.folder
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:  # gone meanwhile, or not ours to look at
                continue
            if (ours or here) and state != "Z":
                found.append(int(entry.name))
        return found

    def kill_left(self) -> None:
        for pid in self.left():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def interrupted(self, child: subprocess.Popen[str], times: int = 1) -> str:
        """Ctrl-C on its terminal; what it said. It ends with 130, without a traceback."""
        for _ in range(times):
            os.killpg(child.pid, signal.SIGINT)
        out, err = child.communicate(timeout=DEADLINE)
        self.assertEqual(130, child.returncode, out + err)
        self.assertNotIn("Traceback", err)
        return out + err

    def until_asleep(self, child: subprocess.Popen[str]) -> None:
        """Python's input sees a signal that comes between its prompt and its wait with the next key only."""
        stat = Path(f"/proc/{child.pid}/stat")
        until("it waits for the answer", lambda: stat.read_text().rpartition(")")[2].split()[0] == "S", DEADLINE)

    def until_there(self, name: str) -> None:
        until(f"{name} is there", (self.folder / name).exists, DEADLINE)

    def start_full_daemon(self) -> None:
        """One place, and it is taken."""
        (self.folder / "sticky.toml").write_text(server("echo", ECHO, max_containers=1, max_concurrency=1))
        daemon = Daemon(self.folder, "--config", "sticky.toml")
        self.addCleanup(daemon.stop)
        daemon.url()
        until("the admin API answers", (self.folder / "state/admin.sock").exists)
        self.run_("sessions", "start")

    def run_stages(self, main_takes: float = 60, exit_takes: float = 0) -> subprocess.Popen[str]:
        """`sticky run` of an app that says how far it is."""
        (self.folder / "app.py").write_text(STAGES.format(main_takes=main_takes, exit_takes=exit_takes))
        return self.popen("run", "app.py")

    def waiting(self) -> int:
        return int(self.json("status")["servers"][0]["queue"]["waiting"])


class InterruptTests(EndingCase):
    def test_while_a_daemon_is_asked(self) -> None:
        self.start_full_daemon()
        before = set(self.left())
        child = self.popen("sessions", "start")
        until("it waits", lambda: self.waiting() == 1)
        self.interrupted(child)
        until("it has left the queue", lambda: self.waiting() == 0)
        child = self.popen("logs", "-f", "--daemon")
        assert child.stdout is not None
        self.assertTrue(child.stdout.readline())
        self.interrupted(child)
        child = self.popen("sessions", "open", self.json("sessions", "list")["sessions"][0]["id"], "--no-browser")
        assert child.stdout is not None and child.stderr is not None
        self.assertTrue(child.stdout.readline().startswith("http://127.0.0.1:"))
        self.assertIn("it is good once, for 60 s", self.interrupted(child) or child.stderr.read())
        (self.folder / "slow.py").write_text(SLOW_APP)
        child = self.popen("deploy", "slow.py")
        self.until_there("importing")
        self.interrupted(child)
        until("only the daemon and its app's import are left", lambda: len(set(self.left()) - before) <= 1)

    def test_while_a_command_runs_for_it(self) -> None:
        (self.folder / "sticky.toml").write_text(server("slow", SLOW, min_containers=1))
        daemon = Daemon(self.folder, "--config", "sticky.toml")
        self.addCleanup(daemon.stop)
        daemon.url()
        until("the admin API answers", (self.folder / "state/admin.sock").exists)
        child = self.popen("curl", "/")
        self.until_there("asked")
        self.interrupted(child)
        until("its session has ended", lambda: not self.json("sessions", "list")["sessions"])
        (box,) = self.json("containers", "list")["containers"]
        inside = "import pathlib, time; pathlib.Path('inside').touch(); time.sleep(60)"
        child = self.popen("containers", "exec", box["id"], "--", sys.executable, "-c", inside)
        self.until_there("inside")
        os.killpg(child.pid, signal.SIGINT)
        _, err = child.communicate(timeout=DEADLINE)
        self.assertIn("KeyboardInterrupt", err, "it is the command's own to end")

    def test_while_it_asks_a_question(self) -> None:
        self.start_full_daemon()
        before = self.json("keys", "list")
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        child = self.popen("keys", "rotate", "--revoke", stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        said = b""
        while b"?" not in said and b"]" not in said:
            said += os.read(ours, 65536)
        self.until_asleep(child)
        os.killpg(child.pid, signal.SIGINT)
        self.assertEqual(130, child.wait(DEADLINE))
        self.assertEqual(before, self.json("keys", "list"))

    def test_a_load_test_reports_and_ends_its_sessions(self) -> None:
        (self.folder / "sticky.toml").write_text(server("echo", ECHO))
        daemon = Daemon(self.folder, "--config", "sticky.toml")
        self.addCleanup(daemon.stop)
        daemon.url()
        until("the admin API answers", (self.folder / "state/admin.sock").exists)
        child = self.popen("loadtest", "--sessions", "3", "--hold", "60", "--path", "/ws")
        until("they are there", lambda: len(self.json("sessions", "list")["sessions"]) == 3)
        self.assertRegex(self.interrupted(child), r"start +3 ")
        until("they have ended", lambda: not self.json("sessions", "list")["sessions"])

    def test_while_the_command_itself_is_loaded(self) -> None:
        (self.folder / "click.py").write_text("import pathlib, time\npathlib.Path('loading').touch()\ntime.sleep(60)\n")
        self.environ["PYTHONPATH"] = f"{self.folder}:{self.environ['PYTHONPATH']}"
        child = self.popen("status")
        self.until_there("loading")
        self.assertEqual("", self.interrupted(child))

    def test_while_an_app_is_imported_to_be_checked(self) -> None:
        (self.folder / "slow.py").write_text(SLOW_APP)
        child = self.popen("check", "slow.py")
        self.until_there("importing")
        self.interrupted(child)
        until("nothing is left", lambda: not self.left())

    def test_run_while_the_daemon_starts(self) -> None:
        child = self.run_stages()
        until("the daemon is a process", lambda: len(self.left()) > 1)
        self.interrupted(child)
        until("nothing is left", lambda: not self.left())

    def test_run_while_its_entrypoint_runs(self) -> None:
        child = self.run_stages()
        self.until_there("started")
        self.interrupted(child)
        until("nothing is left", lambda: not self.left())

    def test_run_again_while_it_stops(self) -> None:
        child = self.run_stages(main_takes=0, exit_takes=60)
        self.until_there("stopping")
        self.interrupted(child)
        until("nothing is left", lambda: not self.left())

    def test_sigterm_is_an_end_like_it(self) -> None:
        child = self.run_stages()
        self.until_there("started")
        child.terminate()
        child.communicate(timeout=DEADLINE)
        self.assertEqual(143, child.returncode)
        until("nothing is left", lambda: not self.left())


class PipeTests(EndingCase):
    def closed(self, arguments: Sequence[str]) -> None:
        reading, writing = os.pipe()
        os.close(reading)
        child = self.popen(*arguments, stdout=writing)
        os.close(writing)
        _, err = child.communicate(timeout=DEADLINE)
        self.assertEqual((141, ""), (child.returncode, err), f"{arguments}: {err}")

    def test_whoever_reads_may_leave(self) -> None:
        self.start_full_daemon()
        for arguments in (
            ["--help"],
            ["version"],
            ["status"],
            ["status", "--json"],
            ["sessions", "list"],
            ["containers", "list"],
            ["tokens", "list"],
            ["keys", "list"],
            ["rollout", "status"],
            ["logs", "--daemon"],
            ["check", "sticky.toml"],
            ["completion", "bash"],
            ["doctor"],
        ):
            self.closed(arguments)
        self.assertEqual(0, self.popen("status").wait(DEADLINE))


class TerminalTests(EndingCase):
    def on_terminal(self, *arguments: str, **environ: str) -> str:
        """What a terminal is sent."""
        ours, theirs = pty.openpty()
        env = {name: value for name, value in self.environ.items() if name not in ("NO_COLOR", "TERM", "FORCE_COLOR")}
        child = subprocess.Popen(
            [*STICKY, *arguments], cwd=self.folder, env={**env, **environ}, stdin=theirs, stdout=theirs, stderr=theirs,
            start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        said = b""
        try:
            while data := os.read(ours, 65536):
                said += data
        except OSError:  # the other end is closed: Linux says EIO
            pass
        os.close(ours)
        self.assertEqual(0, child.wait(DEADLINE), said)
        return said.decode()

    def test_colours_are_for_terminals_that_have_them_and_people_who_want_them(self) -> None:
        self.start_full_daemon()
        colours = re.compile(r"\x1b\[[0-9;]*[13][0-9]*m")
        self.assertRegex(self.on_terminal("status", TERM="xterm-256color"), colours)
        for environ in ({"TERM": "dumb"}, {"TERM": "xterm-256color", "NO_COLOR": "1"}):
            said = self.on_terminal("status", **environ)
            self.assertIn("echo", said)
            self.assertNotRegex(said, re.compile(r"\x1b\[3[0-7]m|\x1b\[9[0-7]m|\x1b\[38"), environ)
        self.assertNotIn("\x1b", self.on_terminal("status", TERM="dumb"))
        self.assertNotIn("\x1b", self.run_("status")[0])

    def test_what_takes_long_says_what_it_waits_for(self) -> None:
        self.start_full_daemon()
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        self.environ = {name: value for name, value in self.environ.items() if name != "NO_COLOR"} | {"TERM": "xterm"}
        child = self.popen("sessions", "start", stderr=theirs)
        os.close(theirs)
        said = b""
        while b"waiting for a place on echo; Ctrl-C leaves the queue" not in said:
            said += os.read(ours, 65536)
        os.killpg(child.pid, signal.SIGINT)
        self.assertEqual(130, child.wait(DEADLINE))
        until("the cursor is there again", lambda: b"\x1b[?25h" in os.read(ours, 65536))


class ExecTests(EndingCase):
    def test_a_command_sees_what_the_program_sees(self) -> None:
        self.start_full_daemon()
        (box,) = self.json("containers", "list")["containers"]
        out, _ = self.run_("containers", "exec", box["id"], "--", "sh", "-c", 'echo "$PORT $STICKY_CONTAINER_ID"; pwd')
        self.assertEqual([f"{box['address'].rpartition(':')[2]} {box['id']}", str(self.folder)], out.splitlines())
        self.run_("containers", "exec", box["id"][:9], "--", "sh", "-c", "exit 3", status=3)
        self.run_("containers", "exec", box["id"], "--", "no-such-command", status=127)

    def test_in_a_network_of_its_own(self) -> None:
        from tests.integration.isolation_case import possible

        possible(network=True)
        (self.folder / "sticky.toml").write_text(
            server("echo", ECHO, port=8000, min_containers=1) + "[servers.echo.isolation]\nnetwork = true\n"
        )
        daemon = Daemon(self.folder, "--config", "sticky.toml")
        self.addCleanup(daemon.stop)
        daemon.url()
        until("the admin API answers", (self.folder / "state/admin.sock").exists)

        def ready() -> list[str]:
            return [one["id"] for one in self.json("containers", "list")["containers"] if one["state"] == "ready"]

        (identity,) = until("it is ready", ready, 30)
        out, _ = self.run_("containers", "exec", identity, "--", "cat", "/proc/net/dev")
        self.assertEqual(["lo"], [line.partition(":")[0].strip() for line in out.splitlines()[2:]])
