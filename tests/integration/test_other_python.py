"""`python=`: a Server in a virtual environment of its own, in which nothing is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import requests
from twisted.trial.unittest import SynchronousTestCase

from sticky.containers import bootstrap
from tests.integration.running_daemon import Daemon, until

APP = """
import json, os, subprocess, sys
import sticky

app = sticky.App("others")


@app.server(port=None, python="venv/bin/python")
@sticky.sessioned()
class Server:
    @sticky.enter()
    async def look(self):
        def there(name):
            try:
                __import__(name)
            except ImportError:
                return False
            return True

        import attrs, venv_only
        found = {"prefix": sys.prefix, "only": venv_only.WHERE, "sticky": sticky.__file__}
        found |= {name: there(name) for name in ("twisted", "click", "h11", "nacl", "treq")}
        os.makedirs("public", exist_ok=True)
        with open("public/found.json", "w") as file:
            json.dump(found, file)

    @sticky.enter()
    def serve(self):
        command = [sys.executable, "-m", "http.server", os.environ["PORT"], "--bind", os.environ["STICKY_HOST"]]
        subprocess.Popen([*command, "--directory", "public"])

    @sticky.exit()
    def stop(self):
        print("the exit hook ran", flush=True)
"""


class BareTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="sticky-test-")).resolve()
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        (self.folder / "game.py").write_text(APP)

    def make_environment(self) -> None:
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", str(self.folder / "venv")], check=True, timeout=120
        )
        (site,) = (self.folder / "venv").glob("lib/python*/site-packages")
        (site / "venv_only.py").write_text("WHERE = 'venv'\n")
        # A Sticky of its own would be of another version, or broken: the daemon's is used.
        (site / "sticky.py").write_text("raise RuntimeError('not this one')\n")

    def start_daemon(self) -> Daemon:
        daemon = Daemon(self.folder, "--app", "game.py")
        self.addCleanup(daemon.stop)
        daemon.url()
        return daemon

    def log(self) -> str:
        return "".join(path.read_text() for path in (self.folder / "state" / "logs").glob("*.log"))

    def start(self, daemon: Daemon) -> requests.Response:
        bearer = (self.folder / "state" / "proxy-token").read_text().strip()
        headers = {"Authorization": f"Bearer {bearer}"}
        return requests.post(f"{daemon.url()}/_modal/sessions/start", headers=headers, timeout=90)

    def test_it_runs_with_nothing_but_sticky_and_attrs(self) -> None:
        self.make_environment()
        daemon = self.start_daemon()
        started = self.start(daemon)
        self.assertEqual(200, started.status_code, f"{started.text}\n{self.log()}")
        headers = {"Modal-Authorization": f"Bearer {started.json()['token']}"}
        found = requests.get(f"{daemon.url()}/found.json", headers=headers, timeout=30).json()
        missing = dict.fromkeys(("twisted", "click", "h11", "nacl", "treq"), False)
        own = str(Path(bootstrap.__file__).parents[1] / "__init__.py")
        self.assertEqual({"prefix": str(self.folder / "venv"), "only": "venv", "sticky": own, **missing}, found)
        daemon.stop()
        until("the exit hook has run", lambda: "the exit hook ran" in self.log())

    def test_what_fails_there_is_readable(self) -> None:
        self.make_environment()
        (self.folder / "game.py").write_text(APP.replace("import attrs, venv_only", "import no_such_module"))
        daemon = self.start_daemon()
        until("the reason is in the log", lambda: self.start(daemon).status_code != 200 and self.log())
        self.assertIn("sticky: the enter hook Server.look failed\nTraceback (most recent call last):\n", self.log())
        self.assertIn("ModuleNotFoundError: No module named 'no_such_module'", self.log())
        self.assertNotIn("bootstrap.py", self.log())

    def test_an_interpreter_that_is_not_there(self) -> None:
        daemon = Daemon(self.folder, "--app", "game.py")
        self.addCleanup(daemon.stop)
        self.assertEqual(2, daemon.wait(60))
        self.assertIn(
            f"sticky: game.py: Server.python: there is no interpreter {self.folder}/venv/bin/python", daemon.output()
        )

    def test_an_old_python_is_told_so(self) -> None:
        program = (
            "import sys, runpy\n"
            "sys.version_info = (3, 9, 2)\n"
            f"sys.argv = ['bootstrap.py', '/nowhere', 'serve', 'game.py']\n"
            f"runpy.run_path({bootstrap.__file__!r}, run_name='__main__')\n"
        )
        done = subprocess.run(
            [sys.executable, "-S", "-E", "-c", program],
            capture_output=True,
            text=True,
            timeout=60,
            env=os.environ,
            check=False,
        )
        self.assertEqual((1, ""), (done.returncode, done.stdout))
        self.assertRegex(
            done.stderr, r"^sticky: the interpreter .* is Python 3.9; an app's python= needs 3.11 or newer\n$"
        )
