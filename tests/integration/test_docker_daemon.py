"""The whole daemon with its containers on a real Docker Engine: sessions, a crash, the next daemon, a tidy stop."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import requests
from twisted.trial.unittest import SkipTest, TestCase

from tests.integration.dockerd import INTERPRETER, MOUNTS, CannotRun, shared
from tests.integration.running_daemon import Daemon, until

CONFIG = """
[servers.game]
backend = "docker"
unauthenticated = true
max_concurrency = 1
max_containers = 3
command = ["{interpreter}", "-I", "-c", '''
import http.server, os
class H(http.server.BaseHTTPRequestHandler):
    seen = 0
    def do_GET(self):
        H.seen += 1
        body = (os.environ["STICKY_CONTAINER_ID"] + " " + str(H.seen)).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.ThreadingHTTPServer((os.environ["STICKY_HOST"], int(os.environ["PORT"])), H).serve_forever()
''']

[servers.game.docker]
image = "{image}"
socket = "{socket}"
mounts = {mounts}
memory = "256m"
pids = 50
"""


class DaemonTests(TestCase):
    timeout = 180

    def setUp(self) -> None:
        try:
            self.engine = shared("docker")
        except CannotRun as reason:
            raise SkipTest(str(reason))
        self.folder = Path(tempfile.mkdtemp(prefix="sticky-"))
        text = CONFIG.format(
            interpreter=INTERPRETER,
            image=self.engine.image,
            socket=self.engine.socket,
            mounts=json.dumps(list(MOUNTS)),
        )
        (self.folder / "sticky.toml").write_text(text)
        self.daemon = self.start()

    def start(self) -> Daemon:
        daemon = Daemon(self.folder, "--config", "sticky.toml")
        self.addCleanup(daemon.stop)
        self.url = daemon.url()
        return daemon

    def session(self) -> dict[str, str]:
        answer = requests.post(f"{self.url}/_modal/sessions/start", timeout=60)
        self.assertEqual(answer.status_code, 200, answer.text)
        return {"Modal-Authorization": f"Bearer {answer.json()['token']}"}

    def get(self, session: dict[str, str]) -> list[str]:
        answer = requests.get(self.url, headers=session, timeout=30)
        self.assertEqual(answer.status_code, 200, answer.text)
        return answer.text.split()

    def running(self) -> set[str]:
        listed = json.loads(self.engine.ask("GET", "/v1.41/containers/json?all=1").partition(b"\r\n\r\n")[2])
        return {one["Labels"].get("sticky.container", "") for one in listed}

    def test_sessions_keep_their_containers_over_a_crash_and_a_tidy_stop_leaves_none(self) -> None:
        first, second = self.session(), self.session()
        one, other = self.get(first)[0], self.get(second)[0]
        self.assertNotEqual(one, other)
        self.assertEqual(self.get(first), [one, "2"])
        self.assertEqual(self.running(), {one, other})
        self.daemon.kill()
        self.daemon = self.start()
        self.assertEqual(self.get(first), [one, "3"])
        self.assertEqual(self.get(second), [other, "2"])
        self.assertEqual(self.get(self.session())[1], "1")
        self.assertIn(self.daemon.stop(), (0, -15))  # twistd ends itself by the signal it got
        self.assertEqual(self.running(), set())

    def test_the_next_daemon_removes_what_it_cannot_know(self) -> None:
        one = self.get(self.session())[0]
        self.daemon.kill()
        for path in self.daemon.state.rglob("*"):
            if path.is_file() and "journal" in str(path.relative_to(self.daemon.state)):
                path.unlink()
        self.daemon = self.start()
        until("the leftover is gone", lambda: one not in self.running())

    def use(self, config: str) -> None:
        """Another definition; the daemon dies with the old one, and the next one begins with this."""
        self.daemon.kill()
        (self.folder / "sticky.toml").write_text(config)
        self.daemon = self.start()

    def test_another_backend_comes_with_the_next_daemon_and_the_old_containers_keep_their_sessions(self) -> None:
        session = self.session()
        one = self.get(session)[0]
        text = (self.folder / "sticky.toml").read_text()
        table = text.partition("[servers.game.docker]")[0]
        self.use(table.replace('backend = "docker"\n', "").replace(json.dumps(INTERPRETER), json.dumps(sys.executable)))
        self.assertEqual(self.get(session), [one, "2"])
        fresh = self.session()
        self.assertEqual(self.get(fresh)[1], "1")
        self.assertEqual(self.running(), {one})
        # Once more, so that it is found by what the second daemon noted of it.
        self.use((self.folder / "sticky.toml").read_text())
        self.assertEqual(self.get(session), [one, "3"])
        self.daemon.stop()
        self.assertEqual(self.running(), set())

    def test_of_a_server_that_is_gone_nothing_is_left_on_its_engine(self) -> None:
        one = self.get(self.session())[0]
        self.use('[servers.other]\ncommand = ["sleep", "600"]\n')
        until("the leftover is gone", lambda: one not in self.running())
