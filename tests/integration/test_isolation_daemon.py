"""Isolated containers behind a real daemon: one hard-coded port in five copies, memory, another user. Skipped where forbidden."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import requests

from tests.integration.daemon_case import ECHO, PYTHON, DaemonCase, server
from tests.integration.isolation_case import possible, system_python
from tests.integration.running_daemon import Daemon, until

#: The seeds' own Server, with its port hard-coded; each copy serves a folder of its own, so that a client can tell them apart.
SEED = """
import os, pathlib, subprocess, tempfile, sticky

app = sticky.App("curvytron")

@app.server(port=8000, max_containers=5, isolation={"network": True}, memory="64Mi", pids=20, unauthenticated=True)
@sticky.sessioned(max_concurrency=1)
class Server:
    @sticky.enter()
    def start(self):
        folder = pathlib.Path("served", os.environ["STICKY_CONTAINER_ID"])
        folder.mkdir(parents=True)
        (folder / "who").write_text(os.environ["STICKY_CONTAINER_ID"])
        subprocess.Popen(["python3", "-m", "http.server", "8000"], cwd=folder)
"""

#: Swallows memory in a child when it is asked to, and answers else.
GREEDY = """
import http.server, os, sys
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.send_header("Content-Length", "2"); self.end_headers(); self.wfile.write(b"ok")
        if self.path == "/swallow" and os.fork() == 0:
            hog = []
            while True: hog.append(bytearray(1 << 20))
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Page).serve_forever()
"""

#: Says who it is, and what it may read.
CURIOUS = """
import http.server, os, sys
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        said = [str(os.getuid())]
        for path in sys.argv[2:]:
            try: said.append(open(path).read())
            except OSError as error: said.append(error.strerror)
        body = "|".join(said).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers()
        self.wfile.write(body)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Page).serve_forever()
"""


class IsolationOfDaemonsTests(DaemonCase):
    def test_the_seeds_server_runs_in_five_copies_at_once(self) -> None:
        possible(network=True, memory=64 << 20, pids=20)
        self.folder = Path(tempfile.mkdtemp(prefix="sticky-test-")).resolve()
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        (self.folder / "game.py").write_text(SEED)
        self.daemon = Daemon(self.folder, "--app", "game.py", "--ephemeral")
        self.addCleanup(self.daemon.stop)
        self.url, self.bearer, self.http = self.daemon.url(), "", requests.Session()
        self.addCleanup(self.http.close)
        tokens = [self.http.post(f"{self.url}/_modal/sessions/start", timeout=60).json()["token"] for _ in range(5)]
        answers = [self.get(token, "/who") for token in tokens]
        self.assertEqual([answer.status_code for answer in answers], [200] * 5)
        self.assertEqual(len({answer.text for answer in answers}), 5)
        again = [self.get(token, "/who").text for token in reversed(tokens)]
        self.assertEqual(again, [answer.text for answer in reversed(answers)])

    def test_websockets_reach_into_a_network_too(self) -> None:
        possible(network=True)
        self.serve(f"[servers.echo]\ncommand = {ECHO}\nisolation = {{ network = true }}\n")
        opened = self.websocket(self.token())
        self.assertTrue(str(opened.recv(timeout=60)).startswith("ct-"))
        opened.send("hello")
        self.assertIn("hello", str(opened.recv(timeout=60)))

    def test_too_much_memory_ends_the_session_with_the_reason(self) -> None:
        possible(memory=64 << 20)
        command = json.dumps([PYTHON, "-I", "-S", "-c", GREEDY, "{port}"])
        self.serve(server("greedy", command, memory="64Mi"))
        token = self.token()
        self.assertEqual(self.get(token).text, "ok")
        self.get(token, "/swallow")
        until("the session ends", lambda: self.get(token).status_code == 410)
        gone = self.get(token).json()
        self.assertEqual(gone["error"], "container_lost")
        self.assertEqual(gone["message"], "The session has ended (container_lost: out_of_memory).")
        log = until("the log says so", lambda: "out of memory" in self.daemon.output())
        self.assertTrue(log)

    def test_another_user_serves_and_cannot_read_the_state_directory(self) -> None:
        possible(user="nobody")
        secrets = ("state/signing-key", "state/proxy-token")
        script = [system_python(), "-I", "-S", "-c", CURIOUS, "{port}", *secrets]
        self.serve(server("curious", json.dumps(script), user="nobody", min_containers=0))
        self.folder.chmod(0o755)  # the working directory; the state directory in it stays closed
        answer = self.get(self.token())
        self.assertEqual(answer.text, "65534|Permission denied|Permission denied")

    def test_what_the_machine_cannot_do_stops_the_daemon_before_it_starts(self) -> None:
        with self.assertRaises(AssertionError) as stopped:
            self.serve(server("one", '["true"]', user="no-such-user-here"))
        self.assertIn("Server one: user: there is no user 'no-such-user-here' on this machine", str(stopped.exception))

    def test_after_a_crash_sessions_in_networks_of_their_own_go_on_where_they_were(self) -> None:
        possible(network=True)
        page = "import http.server; http.server.test(http.server.SimpleHTTPRequestHandler, port=8000, bind='127.0.0.1')"
        command = json.dumps([PYTHON, "-I", "-S", "-c", page])
        settings = {"port": 8000, "max_containers": 2, "max_concurrency": 1, "isolation": {"network": True}}
        table = "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items() if key != "isolation")
        self.serve(f"[servers.web]\ncommand = {command}\n{table}isolation = {{ network = true }}\n")
        (self.folder / "who").write_text("the same")
        tokens = [self.token(), self.token()]
        before = sorted(self.children())
        self.daemon.kill()
        self.run_daemon()
        self.assertEqual([self.get(token, "/who").text for token in tokens], ["the same"] * 2)
        self.assertEqual(sorted(self.children()), before)

    def test_what_a_killed_daemon_left_hidden_is_found_by_the_next_one(self) -> None:
        possible(descendants="cgroup")
        hides = (
            "import os, sys, time\n"
            "if os.fork() == 0:\n"
            "    os.setsid()\n"
            "    if os.fork(): os._exit(0)\n"
            "    os.execve('/bin/sleep', ['sleep', '600'], dict())\n"
        )
        command = json.dumps([PYTHON, "-I", "-S", "-c", hides + GREEDY, "{port}"])
        self.serve(server("hiding", command))
        self.get(self.token())
        hidden = _sleepers(self.folder)
        self.assertEqual(len(hidden), 1)
        self.daemon.kill()
        self.kill_children()
        self.assertEqual(_sleepers(self.folder), hidden)
        self.run_daemon()
        until("it is gone", lambda: not _sleepers(self.folder))
        until("its folder is gone", lambda: not list((self.folder / "state" / "run").glob("ct-*")))


def _sleepers(folder: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            ours = entry.name.isdigit() and (entry / "cwd").readlink() == folder
            if ours and (entry / "cmdline").read_bytes().startswith(b"sleep\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found
