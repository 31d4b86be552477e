"""`sticky run` around a stand-in for the daemon: what it waits for, what the entrypoint sees, and that nothing is left."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from twisted.trial.unittest import TestCase

from sticky.errors import ConfigError
from sticky.exception import ConnectionError, InvalidError
from sticky.sdk.run import run_entrypoint

DAEMON = """
import http.server, json, os, signal, socket, sys, threading
state = sys.argv[1]
open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "pid"), "w").write(str(os.getpid()))

class Handler(http.server.BaseHTTPRequestHandler):
    def address_string(self):
        return "somebody"

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))  # else its end resets the connection under the answer
        if self.path == "/v1/access":
            url = f"http://127.0.0.1:{server.server_port}"
            return self.answer(200, {"url": url, "brand": "modal", "proxy_token": "wk-dev.ws-run"})
        good = self.headers["Authorization"] == "Bearer wk-dev.ws-run"
        self.answer(200 if good else 401, {"session_id": "sd-1", "token": self.path})

    def answer(self, status, fields):
        body = json.dumps(fields).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

server = http.server.HTTPServer(("127.0.0.1", 0), Handler)


class Admin(http.server.HTTPServer):
    address_family = socket.AF_UNIX

    def server_bind(self):
        self.socket.bind(self.server_address)


def open_admin():
    admin = Admin(os.path.join(state, "admin.new"), Handler)
    os.rename(os.path.join(state, "admin.new"), os.path.join(state, "admin.sock"))
    admin.serve_forever()


# As a daemon of many Servers does: this URL is none of theirs, and the admin API, which knows better, opens a moment later.
open(os.path.join(state, "url.new"), "w").write("http://127.0.0.1:1\\n")
os.rename(os.path.join(state, "url.new"), os.path.join(state, "url"))
opening = threading.Timer(0.5, open_admin)
opening.daemon = True
opening.start()
server.serve_forever()
"""

APP = """
import os, sticky
app = sticky.App("games")
@app.server()
@sticky.sessioned()
class Game:
    @sticky.enter()
    def start(self): raise AssertionError("enter hooks run in containers only")

@app.local_entrypoint()
{kind} main():
    session = Game.sessions.start()
    open("result", "w").write(f"{{session.session_id}} {{session.token}} {{os.environ['STICKY_STATE_DIR']}}")
    {then}
"""


class RunTests(TestCase):
    def setUp(self) -> None:
        self.folder = Path(self.mktemp()).absolute()
        self.folder.mkdir()
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)
        self.patch(sys, "path", list(sys.path))
        before = set(sys.modules)
        self.addCleanup(lambda: [sys.modules.pop(name) for name in set(sys.modules) - before])
        (self.folder / "daemon.py").write_text(DAEMON)

    def command(self, app: str, state_dir: Path) -> Sequence[str]:
        self.assertEqual("run_game.py", app)
        return [sys.executable, str(self.folder / "daemon.py"), str(state_dir)]

    def app(self, kind: str = "def", then: str = "pass") -> str:
        (self.folder / "run_game.py").write_text(APP.format(kind=kind, then=then))
        return "run_game.py"

    def succeeds(self, app: str) -> None:
        err = io.StringIO()
        self.patch(sys, "stderr", err)
        self.assertEqual(0, run_entrypoint(app, command=self.command), err.getvalue())

    def gone(self) -> None:
        pid = int((self.folder / "pid").read_text())
        self.assertRaises(ProcessLookupError, os.kill, pid, 0)

    def test_the_entrypoint_reaches_its_daemon(self) -> None:
        others = {"STICKY_URL": "http://127.0.0.1:1", "STICKY_ADMIN_URL": "http://127.0.0.1:1"}
        self.patch(os, "environ", {**os.environ, **others})
        self.succeeds(self.app())
        session, token, state_dir = (self.folder / "result").read_text().split()
        self.assertEqual(("sd-1", "/_modal/sessions/start"), (session, token))
        self.assertFalse(Path(state_dir).exists())
        self.assertEqual(others, {name: os.environ[name] for name in others})
        self.assertNotIn("STICKY_STATE_DIR", os.environ)
        self.gone()

    def test_an_async_entrypoint(self) -> None:
        self.succeeds(self.app("async def"))
        self.assertTrue((self.folder / "result").exists())

    def test_one_that_raises_gives_status_1_and_its_traceback(self) -> None:
        err = io.StringIO()
        self.patch(sys, "stderr", err)
        self.assertEqual(1, run_entrypoint(self.app(then="raise ValueError('lost')"), command=self.command))
        self.assertIn("ValueError: lost", err.getvalue())
        self.gone()

    def test_one_that_exits_stops_the_daemon(self) -> None:
        self.assertRaises(SystemExit, run_entrypoint, self.app(then="raise SystemExit(4)"), command=self.command)
        self.gone()

    def test_an_entrypoint_can_be_named(self) -> None:
        self.app()
        self.assertEqual(0, run_entrypoint("run_game.py:main", command=self.command))

    def test_an_unknown_entrypoint_lists_the_known_ones(self) -> None:
        self.app()
        with self.assertRaisesRegex(InvalidError, "no local entrypoint 'nope' in run_game.py; it has: main"):
            run_entrypoint("run_game.py:nope", command=self.command)
        (self.folder / "run_game.py").write_text("import sticky\napp = sticky.App('a')")
        with self.assertRaisesRegex(InvalidError, "these local entrypoints: none"):
            run_entrypoint("run_game.py", command=self.command)

    def test_a_daemon_that_refuses_its_configuration(self) -> None:
        (self.folder / "daemon.py").write_text("import sys\nsys.stderr.write('noise\\nsticky: no\\n')\nsys.exit(2)")
        with self.assertRaisesRegex(ConfigError, "sticky run: sticky: no"):
            run_entrypoint(self.app(), command=self.command)

    def test_a_daemon_that_dies(self) -> None:
        (self.folder / "daemon.py").write_text("raise SystemExit('boom')")
        with self.assertRaisesRegex(ConnectionError, "ended with status 1 before it listened: boom"):
            run_entrypoint(self.app(), command=self.command)

    def test_a_daemon_that_never_listens_is_stopped(self) -> None:
        (self.folder / "daemon.py").write_text(
            f"import os, time\nopen({str(self.folder / 'pid')!r}, 'w').write(str(os.getpid()))\ntime.sleep(1000)"
        )
        with self.assertRaisesRegex(ConnectionError, "did not listen within 2 seconds: it said nothing"):
            run_entrypoint(self.app(), command=self.command, start_limit=2)
        self.gone()
