"""The `sticky` command as a child process, against a real daemon with real containers."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.integration import preloaded
from tests.integration.running_daemon import ROOT, Daemon, until

STICKY = [sys.executable, "-m", "sticky.cli"]
DEADLINE = 60  #: seconds for a command

CONFIG = f"""
[servers.echo]
hosts = ["127.0.0.1"]
command = ["{sys.executable}", "{ROOT}/tests/integration/apps/echo_ws.py", "{{port}}"]
max_concurrency = 10

[servers.broken]
hosts = ["broken.localhost"]
command = ["{sys.executable}", "-c", "raise RuntimeError('no database')"]

[servers.deaf]
hosts = ["deaf.localhost"]
command = ["sleep", "600"]
startup_timeout = 0.5
"""

APP = """
import os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
import subprocess
import sticky

app = sticky.App("versions")

@app.server(port=None)
@sticky.sessioned()
class Server:
    @sticky.enter()
    def start(self):
        print("entered", flush=True)
        subprocess.Popen([sys.executable, "-m", "http.server", os.environ["PORT"], "--bind", "127.0.0.1"])
"""


class CommandCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="sticky-cli-")).resolve()
        self.addCleanup(shutil.rmtree, self.folder)
        self.environ = {**os.environ, "PYTHONPATH": str(ROOT), "STICKY_STATE_DIR": str(self.folder / "state")}

    def popen(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        child = subprocess.Popen(
            [*STICKY, *arguments], text=True, cwd=self.folder, env=self.environ, start_new_session=True, **options
        )

        def end() -> None:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
            child.communicate()

        self.addCleanup(end)
        return child

    def run_(self, *arguments: str, status: int = 0) -> tuple[str, str]:
        """What it says on stdout and stderr."""
        done = preloaded.run("sticky", arguments, folder=self.folder, environ=self.environ, timeout=DEADLINE)
        self.assertEqual(done.returncode, status, f"{arguments}: {done.stdout}{done.stderr}")
        return done.stdout, done.stderr

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run_(*arguments, "--json")[0])

    def start_daemon(self) -> Daemon:
        file = self.folder / "sticky.toml"
        file.write_text(CONFIG)
        daemon = Daemon(self.folder, "--config", str(file))
        self.addCleanup(daemon.stop)
        self.url = daemon.url()
        daemon.wait_for("the admin API answers", lambda: (self.folder / "state/admin.sock").exists())
        return daemon


class DaemonTests(CommandCase):
    def setUp(self) -> None:
        super().setUp()
        self.daemon = self.start_daemon()

    def test_a_sessions_life_from_the_command_line(self) -> None:
        token, note = self.run_("sessions", "start", "echo")
        self.assertTrue(token.startswith("v4.public."))
        self.assertNotIn(token.strip(), note)
        (listed,) = self.json("sessions", "list", "--server", "echo")["sessions"]
        self.assertEqual((listed["owner"], listed["state"]), ("operator", "active"))
        container = self.run_("curl", "--server", "echo", "--session", listed["id"], "/", "--", "-sS")[0]
        self.assertEqual(container, listed["container"])
        self.assertIn(container, self.run_("status")[0])
        self.assertEqual(self.json("sessions", "extend", listed["id"][:12])["id"], listed["id"])
        self.run_("sessions", "terminate", listed["id"])
        _, err = self.run_("sessions", "show", listed["id"], status=4)
        self.assertIn("the session has ended (terminated)", err)
        said, _ = self.run_("logs", "--session", listed["id"])
        for part in (f"session {listed['id']} started on", "GET / 200", f"session {listed['id']} ended: terminated"):
            self.assertIn(part, said)
        self.assertNotIn(token.strip(), self.daemon.output())

    def test_curl_in_a_session_of_its_own(self) -> None:
        out, _ = self.run_("curl", "--server", "echo", "/", "--", "-sS")
        self.assertTrue(out.startswith("ct-"))
        self.assertEqual(self.json("sessions", "list")["sessions"], [])

    def test_a_stopped_container_ends_its_sessions_and_is_remembered(self) -> None:
        self.run_("sessions", "start", "echo")
        (session,) = self.json("sessions", "list")["sessions"]
        self.run_("containers", "stop", session["container"])
        until("the container is gone", lambda: not self.json("containers", "list")["containers"])
        _, err = self.run_("sessions", "show", session["id"], status=4)
        self.assertIn("server_stopped", err)
        shown = self.json("containers", "show", session["container"])
        self.assertEqual((shown["failed"], shown["server"]), (False, "echo"))
        self.assertIn("an operator stopped it; ", shown["message"])

    def test_why_containers_fail(self) -> None:
        _, err = self.run_("sessions", "start", "broken", status=1)
        self.assertRegex(
            err,
            r"^sticky: containers of broken fail to start: ct-\S+ exited with status 1 before it was ready;"
            r" it wrote: RuntimeError: no database\. Mend the program or its command\.",
        )
        said, _ = self.run_("status")
        self.assertIn("broken: a container failed to start", said)
        self.assertIn("RuntimeError: no database", said)
        self.assertIn("RuntimeError: no database", self.run_("logs", "--server", "broken")[0])
        said, _ = self.run_("doctor", status=1)
        self.assertRegex(said, r"fail +containers +containers of broken fail to start")

    def test_where_a_container_was_expected_to_listen(self) -> None:
        said = r"nothing of it listens on port \d+ of 127\.0\.0\.1, which is PORT in its environment and \{port\} in its command"
        _, err = self.run_("sessions", "start", "deaf", status=1)
        self.assertRegex(err, rf"fail to start: ct-\S+ was not ready within startup_timeout: {said};")
        ended = self.json("containers", "list", "--server", "deaf", "--all")["ended"]
        shown, _ = self.run_("containers", "show", ended[0]["id"])
        self.assertRegex(" ".join(shown.split()), rf"was not ready within startup_timeout: {said}; ended by SIGTERM")

    def test_a_load_test_holds_and_reconnects(self) -> None:
        report = self.json("loadtest", "echo", "--sessions", "15", "--rate", "100", "--hold", "0.5", "--ping", "0.1",
                           "--path", "/ws")  # fmt: skip
        self.assertEqual(report["failures"], {})
        counts = {name: figures["count"] for name, figures in report["times"].items()}
        self.assertEqual((counts["start"], counts["connect"], counts["reconnect"]), (15, 15, 15))
        self.assertGreater(counts["ping"], 15)
        self.assertEqual(self.json("sessions", "list")["sessions"], [])

    def test_a_load_test_where_nobody_takes_websockets(self) -> None:
        out, err = self.run_("loadtest", "echo", "--sessions", "2", "--hold", "0", "--path", "/", status=1)
        self.assertIn("2 times: no WebSocket: WebSocket connection upgrade failed [200]: OK", err)
        self.assertIn("--path says where the Server takes WebSockets", err)
        self.assertRegex(out, r"start +2 ")

    def test_the_browser_is_given_an_address_without_the_token(self) -> None:
        browser = self.folder / "browser"
        browser.write_text(
            f"#!{sys.executable}\nimport sys, urllib.request\n"
            "class Stop(urllib.request.HTTPRedirectHandler):\n"
            "    def redirect_request(self, *a): return None\n"
            "try: urllib.request.build_opener(Stop).open(sys.argv[1])\n"
            "except urllib.error.HTTPError as e: target = e.headers['location']\n"
            "try: urllib.request.build_opener(Stop).open(target)\n"
            "except urllib.error.HTTPError as e: cookie = e.headers['set-cookie']\n"
            f"open({str(self.folder / 'seen')!r}, 'w').write(sys.argv[1] + '\\n' + target + '\\n' + cookie)\n"
        )
        browser.chmod(0o755)
        self.environ["BROWSER"] = str(browser)
        self.run_("sessions", "open", "--server", "echo", "--path", "/x")
        seen = until("the browser came through", lambda: (self.folder / "seen").exists() and
                     (self.folder / "seen").read_text().split("\n"))  # fmt: skip
        assert seen
        self.assertTrue(seen[0].startswith("http://127.0.0.1:"))
        self.assertNotIn("token", seen[0])
        self.assertTrue(seen[1].startswith(f"{self.url}/x?modal_session_token=v4.public."))
        self.assertTrue(seen[2].startswith("__Host-modal-session-token=v4.public."))

    def test_following_logs_until_ctrl_c(self) -> None:
        child = self.popen("logs", "-f", "--daemon")
        self.first_line(child)
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=DEADLINE)
        self.assertEqual(child.returncode, 130)

    def test_following_logs_into_a_pipe_that_closes(self) -> None:
        child = self.popen("logs", "-f", "--daemon")
        self.first_line(child)
        assert child.stdout is not None
        child.stdout.close()
        for _ in range(3):
            self.run_("curl", "--server", "echo", "/", "--", "-sS")
        self.assertEqual(child.wait(DEADLINE), 141)
        assert child.stderr is not None
        self.assertEqual(child.stderr.read(), "")

    def test_following_logs_until_the_daemon_stops(self) -> None:
        child = self.popen("logs", "-f", "--daemon")
        self.first_line(child)
        self.daemon.stop()
        _, err = child.communicate(timeout=DEADLINE)
        self.assertEqual((child.returncode, err.count("\n")), (3, 1), err)
        self.assertIn("broke the stream off", err)
        self.run_("status", status=3)

    def first_line(self, child: subprocess.Popen[str]) -> str:
        self.run_("curl", "--server", "echo", "/", "--", "-sS")
        assert child.stdout is not None
        return child.stdout.readline()

    def test_watching_on_a_terminal(self) -> None:
        self.assertEqual(self.watched(lambda child, leader: os.write(leader, b"q")), 0)

    def test_watching_until_ctrl_c_leaves_the_terminal_as_it_was(self) -> None:
        self.assertEqual(self.watched(lambda child, leader: child.send_signal(signal.SIGINT)), 130)

    def watched(self, end: Callable[[subprocess.Popen[str], int], object]) -> int:
        """Watch until the screen is there, then `end` it; the exit status. The terminal is as it was."""
        leader, follower = pty.openpty()
        self.addCleanup(os.close, leader)
        before = termios.tcgetattr(follower)
        child = self.popen("top", "--interval", "0.2", stdin=follower, stdout=follower, stderr=subprocess.PIPE)
        self.addCleanup(os.close, follower)
        seen = b""
        os.set_blocking(leader, False)

        def shown() -> bool:
            nonlocal seen
            try:
                seen += os.read(leader, 65536)
            except BlockingIOError:
                pass
            return b"PLACES TAKEN" in seen and b"q ends" in seen

        until("the screen is there", shown)
        self.assertIn(b"\x1b[?1049h", seen)
        end(child, leader)
        status = child.wait(DEADLINE)
        seen = b""
        shown()
        self.assertIn(b"\x1b[?1049l", seen)
        self.assertEqual(before, termios.tcgetattr(follower))
        assert child.stderr is not None
        self.assertEqual("", child.stderr.read().strip())
        return status

    def test_check_by_the_daemon(self) -> None:
        (self.folder / "bad.toml").write_text("[daemon]\nworkers = 0\n")
        _, err = self.run_("check", "--by-daemon", "bad.toml", status=2)
        self.assertIn("bad.toml: daemon.workers: 0 is not allowed", err)
        self.assertIn("echo: 0 to 8 containers", self.run_("check", "--by-daemon", "sticky.toml")[0])


class SocketTests(CommandCase):
    def test_only_its_user_may_use_it_and_it_goes_with_the_daemon(self) -> None:
        daemon = self.start_daemon()
        path = self.folder / "state/admin.sock"
        self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)
        daemon.stop()
        self.assertFalse(path.exists())

    def test_a_daemon_that_was_killed_leaves_a_socket_that_the_next_one_replaces(self) -> None:
        daemon = self.start_daemon()
        daemon.kill()
        _, err = self.run_("status", status=3)
        self.assertIn("has died", err)
        self.start_daemon()
        until("the next one answers", lambda: self.popen("status").wait(DEADLINE) == 0)

    def test_a_socket_elsewhere(self) -> None:
        elsewhere = self.folder / "else:where.sock"
        file = self.folder / "sticky.toml"
        quoted = str(elsewhere).replace(":", "\\\\:")
        file.write_text(f'[daemon]\nadmin = "unix:{quoted}"\n{CONFIG}')
        daemon = Daemon(self.folder, "--config", str(file))
        self.addCleanup(daemon.stop)
        daemon.wait_for("the socket is there", elsewhere.exists)
        self.assertIn("echo", self.run_("status")[0])
        daemon.stop()
        self.assertEqual([path.exists() for path in (elsewhere, self.folder / "state/admin")], [False, False])

    def test_an_address_that_is_no_socket_is_refused_in_one_line(self) -> None:
        file = self.folder / "sticky.toml"
        file.write_text(f'[daemon]\nadmin = "unix:{self.folder}/precious"\n{CONFIG}')
        (self.folder / "precious").write_text("mine")
        daemon = Daemon(self.folder, "--config", str(file))
        self.addCleanup(daemon.stop)
        until("it ends", lambda: not daemon.alive())
        self.assertEqual(daemon.stop(), 1)
        self.assertIn("sticky: cannot open the admin socket: ", daemon.output())
        self.assertEqual((self.folder / "precious").read_text(), "mine")

    def test_half_a_request_does_not_keep_the_daemon_from_stopping(self) -> None:
        daemon = self.start_daemon()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(self.folder / "state/admin.sock"))
            client.sendall(b"GET /v1/logs?follow=1 HTTP/1.1\r\nHost: x\r\n\r\n")
            self.assertTrue(client.recv(100).startswith(b"HTTP/1.1 200"))
            began = time.monotonic()
            daemon.stop()
            self.assertLess(time.monotonic() - began, 20)


class ServeTests(CommandCase):
    def pid(self) -> int:
        child = self.popen("status", "--json")
        out, _ = child.communicate(timeout=DEADLINE)
        return int(json.loads(out)["daemon"]["pid"]) if child.returncode == 0 else 0

    def said(self, text: str) -> Callable[[], bool]:
        return lambda: text in (self.folder / "serve.log").read_text(errors="replace")

    def test_a_change_is_served_a_mistake_is_not_and_ctrl_c_leaves_nothing(self) -> None:
        app = self.folder / "app.py"
        app.write_text(APP)
        with (self.folder / "serve.log").open("wb") as log:
            child = self.popen("serve", "app.py", "--listen", "tcp:0:interface=127.0.0.1", stdout=log, stderr=log)
        first = until("it serves", self.pid, 2 * DEADLINE)
        session = self.json("sessions", "start")
        app.write_text(APP + "\nraise RuntimeError('half-written')\n")
        until("the mistake is told", self.said("go on with the old one: "), DEADLINE)
        self.assertEqual(self.pid(), first)
        app.write_text(APP + "\n# better\n")
        until("the change is deployed", self.said("changed: app.py; Server is rolled over"), 60)
        self.assertEqual(self.pid(), first)
        after = self.json("sessions", "start")
        boxes = [self.json("sessions", "show", one["session_id"])["container"] for one in (session, after)]
        for box in boxes:
            until("what it writes is told", self.said(f"Server {box[:9]} | entered"), 60)
        self.assertEqual(2, len(set(boxes)), "the old session stays, a new one has the new version")
        child.send_signal(signal.SIGINT)
        self.assertEqual(child.wait(DEADLINE), 130)
        self.assertFalse(Path(f"/proc/{first}").exists())

    def test_an_app_that_cannot_be_loaded_is_not_served_at_all(self) -> None:
        (self.folder / "app.py").write_text("import nothing_of_this_name\n")
        _, err = self.run_("serve", "app.py", status=2)
        self.assertIn("nothing_of_this_name", err)


class InitTests(CommandCase):
    def test_from_nothing_to_an_answer(self) -> None:
        self.run_("init", "counter")
        child = self.popen("run", "counter/app.py")
        out, err = child.communicate(timeout=DEADLINE)
        self.assertEqual(child.returncode, 0, err)
        self.assertRegex(err, r"(?m)^Server ct-\S+ \| ", "what the container writes is on stderr")
        self.assertRegex(out, r"^request 1 of session (sd-\S+) on ct-\S+\nrequest 2 of session \1 .*\nrequest 3 of")
