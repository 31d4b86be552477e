"""Describing an app by a real child: the seeds' example, every fault in one line, and no import where it is asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any

from sticky.containers.describe import describe
from sticky.errors import ConfigError
from tests.integration.running_daemon import until
from tests.integration.runtime_children import LIMIT, ChildTests, alive

SEED = """
import subprocess, requests, sticky

app = sticky.App("curvytron")

@app.server(port=8000, min_containers=0, max_containers=4, scaledown_window=60)
@sticky.sessioned(max_concurrency=64, target_concurrency=3)
class Server:
    @sticky.enter()
    def start(self):
        subprocess.Popen(["python3", "-m", "http.server", "8000", "--bind", "127.0.0.1"])

    @sticky.exit()
    def stop(self): ...

@app.local_entrypoint()
def main():
    session = Server.sessions.start(idle_timeout=600)
    headers = {"Modal-Authorization": f"Bearer {session.token}"}
    print(requests.get(Server.get_url(), headers=headers).text)
    Server.sessions.terminate(session.token)
"""


class DescribeTests(ChildTests):
    def described(self, target: str, **arguments: Any) -> object:
        return describe(target, None, self.folder, **arguments)

    def refused(self, target: str, **arguments: Any) -> str:
        with self.assertRaises(ConfigError) as caught:
            self.described(target, **arguments)
        self.assertNotIn("\n", str(caught.exception))
        return str(caught.exception)

    def test_the_seeds_example(self) -> None:
        self.app(SEED)
        found = describe("game.py:Server", None, self.folder)
        (server,) = found.servers
        self.assertEqual(
            ("curvytron", "Server", 8000, ("main",)), (found.app, server.name, server.port, found.entrypoints)
        )
        self.assertEqual(
            {
                "sessioned": True,
                "max_concurrency": 64,
                "target_concurrency": 3,
                "min_containers": 0,
                "max_containers": 4,
                "scaledown_window": 60,
            },
            dict(server.settings),
        )

    def test_a_module_in_the_working_directory(self) -> None:
        (self.folder / "games").mkdir()
        self.app(SEED, "games/arena.py")
        (server,) = describe("games.arena:Server", None, self.folder).servers
        self.assertEqual("games.arena", server.command[4])
        self.assertIn("there is no module games.areno", self.refused("games.areno"))
        self.assertIn("sticky.toml holds settings and is no app", self.refused("sticky.toml"))

    def test_an_import_never_happens_here(self) -> None:
        victim = self.folder / "victim"
        victim.touch()
        self.app(
            f"import os\nopen({str(self.folder / 'pid')!r}, 'w').write(str(os.getpid()))\n"
            f"if os.getpid() == {os.getpid()} or 'twisted' in __import__('sys').modules:\n    os.remove({str(victim)!r})\n"
            + SEED
        )
        self.described("game.py")
        self.assertTrue(victim.exists())
        self.assertNotEqual(str(os.getpid()), (self.folder / "pid").read_text())
        self.assertNotIn("game", sys.modules)

    def test_what_the_app_prints_is_not_the_answer(self) -> None:
        self.app("import os\nprint('{')\nos.write(1, b'[')\nos.system('echo x')\n" + SEED)
        self.described("game.py")
        direct = subprocess.run(
            [sys.executable, "-m", "sticky.containers.runtime", "describe", "game.py"],
            cwd=self.folder,
            env=dict(os.environ),
            capture_output=True,
            timeout=LIMIT,
            check=True,
        )
        self.assertEqual("curvytron", json.loads(direct.stdout)["app"])
        self.assertEqual({"{", "[x"}, set(direct.stderr.decode().split()))

    def test_each_fault_is_one_clear_line(self) -> None:
        path = self.folder / "game.py"
        for text, problem in (
            ("x = 1", f"game.py: there is no App in {path}: write app = sticky.App(...)"),
            ("import sticky\na = sticky.App('a')\nb = sticky.App('b')", "there are several Apps"),
            ("raise ValueError('boom')", f"game.py: importing {path} failed: ValueError: boom ({path}, line 1)"),
            ("import sys\nsys.exit(3)", "SystemExit: 3"),
            ("import no_such_module_at_all", "ModuleNotFoundError: No module named 'no_such_module_at_all'"),
            ("def (", f"SyntaxError: invalid syntax ({path}, line 1)"),
            ("import os\nos._exit(7)", "importing it ended the interpreter (status 7)"),
        ):
            self.app(text)
            self.assertIn(problem, self.refused("game.py"))
        self.assertIn(f"there is no file {self.folder / 'gone.py'}", self.refused("gone.py"))

    def test_an_import_that_hangs_is_cut_with_what_it_started(self) -> None:
        self.app(
            "import subprocess\nchild = subprocess.Popen(['sleep', '1000'])\n"
            "open('child', 'w').write(f'{child.pid}\\n')\nimport time\ntime.sleep(1000)"
        )
        self.assertIn("importing it took longer than 3 seconds", self.refused("game.py", timeout=3))
        child = self.written_pid("child")
        self.until(lambda: not alive(child), "the grandchild is gone")

    def test_an_import_ends_with_whoever_wanted_it(self) -> None:
        (self.folder / "app.py").write_text(
            "import os, time\nprint(os.environ, file=open('env', 'w'))\n"
            "open('pid.new', 'w').write(str(os.getpid()))\nos.rename('pid.new', 'pid')\ntime.sleep(600)\n"
        )
        code = "from sticky.containers.describe import describe; from pathlib import Path; describe('app.py', None, Path.cwd())"
        asking = subprocess.Popen([sys.executable, "-c", code], cwd=self.folder)
        self.addCleanup(asking.wait)
        self.addCleanup(asking.kill)
        until("it imports", (self.folder / "pid").exists)
        asking.terminate()
        pid = int((self.folder / "pid").read_text())
        until("the import is over", lambda: not alive(pid))
        self.assertNotIn("STICKY_DESCRIBED_BY", (self.folder / "env").read_text())

    def test_a_process_that_the_import_leaves_behind_does_not_hold_it_up(self) -> None:
        self.app("import subprocess\nsubprocess.Popen(['sleep', '1000'])\n" + SEED)
        started = time.monotonic()
        self.described("game.py")
        self.assertLess(time.monotonic() - started, LIMIT)

    def test_an_interpreter_that_is_not_there(self) -> None:
        self.app(SEED)
        with self.assertRaisesRegex(ConfigError, "cannot be run: No such file or directory"):
            describe("game.py", "venv/bin/python", self.folder)

    def test_an_interpreter_without_sticky(self) -> None:
        self.app("import sticky\napp = sticky.App('bare')\n@app.server(command=['x'])\nclass Server: pass\n")
        self.patch(os, "environ", {key: value for key, value in os.environ.items() if key != "PYTHONPATH"})
        isolated = self.app(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n', "python-without")
        isolated.chmod(0o755)
        self.assertEqual("bare", describe("game.py", "./python-without", self.folder).app)
