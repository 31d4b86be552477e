"""The containers' runtime as a real process: hooks, the ready report, signals, and what it leaves behind (nothing)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from twisted.trial.unittest import TestCase

import sticky
from sticky.containers.describe import describe
from sticky.errors import ConfigError

ROOT = Path(sticky.__file__).parents[1]
LIMIT = 20.0  #: seconds for anything that is waited for

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

HEAD = """
import asyncio, os, signal, subprocess, sys, time
import sticky
app = sticky.App("games")

@app.server()
class Game:
"""


def alive(pid: int) -> bool:
    """Whether it runs and is no zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat[stat.rindex(")") + 2] != "Z"


class ChildTests(TestCase):
    """Base: a folder for the app, and processes that do not outlive their test."""

    def setUp(self) -> None:
        self.folder = Path(self.mktemp()).absolute()
        self.folder.mkdir()
        self.log = self.folder / "log"
        self.patch(os, "environ", {**os.environ, "PYTHONPATH": str(ROOT)})

    def app(self, text: str, name: str = "game.py") -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def until(self, true: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + LIMIT
        while not true():
            if time.monotonic() > deadline:
                self.fail(f"not within {LIMIT} s: {what}; log: {self.text()}")
            time.sleep(0.02)

    def text(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def written_pid(self, name: str) -> int:
        path = self.folder / name
        self.until(lambda: path.exists() and path.read_text().endswith("\n"), f"{name} is written")
        return int(path.read_text())


class ServeTests(ChildTests):
    def serve(self, text: str, *options: str, report: bool = True) -> subprocess.Popen[bytes]:
        reader, writer = os.pipe()
        self.report = os.fdopen(reader, "rb", buffering=0)
        self.addCleanup(self.report.close)
        environ = {**os.environ, "STICKY_READY_FD": str(writer)} if report else dict(os.environ)
        with self.log.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "sticky.containers.runtime", "serve", str(self.app(text)), *options],
                cwd=self.folder,
                env=environ,
                stdout=log,
                stderr=log,
                pass_fds=[writer],
                start_new_session=True,
            )
        os.close(writer)
        self.addCleanup(self.end, process)
        return process

    def end(self, process: subprocess.Popen[bytes]) -> None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait(LIMIT)

    def ready(self) -> None:
        """Until the end of the pipe: whoever kept a copy of the descriptor would let this hang, so the wait is bounded."""
        os.set_blocking(self.report.fileno(), False)
        said = b""

        def read() -> bool:
            nonlocal said
            more = self.report.read(100)
            said += more or b""
            return more == b""

        self.until(read, "the ready report ends")
        self.assertEqual(b"ready\n", said)

    def test_hooks_run_in_order_and_then_it_is_ready(self) -> None:
        process = self.serve(
            HEAD
            + """
    @sticky.enter()
    def first(self): print("first"); self.told = ["first"]
    @sticky.enter()
    async def second(self): await asyncio.sleep(0); self.told.append("second"); print("second")
    @sticky.enter()
    def third(self): print("third after", *self.told)
    @sticky.exit()
    async def bye(self): print("exit one")
    @sticky.exit()
    def end(self): print("exit two")
"""
        )
        self.ready()
        self.assertEqual(["first", "second", "third after first second"], self.text().splitlines())
        process.send_signal(signal.SIGTERM)
        self.assertEqual(0, process.wait(LIMIT))
        self.assertEqual(["exit one", "exit two"], self.text().splitlines()[3:])

    def test_it_works_without_a_ready_report(self) -> None:
        process = self.serve(HEAD + "    @sticky.enter()\n    def first(self): print('on')\n", report=False)
        self.until(lambda: self.text() == "on\n", "the hook ran")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(0, process.wait(LIMIT))

    def test_a_raising_hook_ends_it_with_its_traceback_and_its_programs(self) -> None:
        for kind in ("def", "async def"):
            process = self.serve(
                HEAD
                + f"""
    @sticky.enter()
    def spawn(self):
        child = subprocess.Popen(["sleep", "1000"])
        open("child", "w").write(f"{{child.pid}}\\n")
    @sticky.enter()
    {kind} fail(self):
        raise ValueError("no such map")
    @sticky.enter()
    def never(self): print("never")
    @sticky.exit()
    def bye(self): print("never")
"""
            )
            self.assertEqual(1, process.wait(LIMIT))
            self.assertEqual(b"", self.report.read(100))
            text = self.text()
            self.assertIn("sticky: the enter hook Game.fail failed\nTraceback (most recent call last):\n", text)
            self.assertIn('raise ValueError("no such map")', text)
            self.assertTrue(text.endswith("ValueError: no such map\n"), text)
            self.assertNotIn("never\n", text)
            self.assertFalse(alive(self.written_pid("child")))

    def test_a_program_of_a_hook_runs_on_and_ends_with_it(self) -> None:
        process = self.serve(
            HEAD
            + """
    @sticky.enter()
    def spawn(self):
        child = subprocess.Popen(["sleep", "1000"])
        open("child", "w").write(f"{child.pid}\\n")
    @sticky.exit()
    def bye(self): print("alive at exit:", os.path.exists(f"/proc/{open('child').read().strip()}"))
"""
        )
        self.ready()
        child = self.written_pid("child")
        self.assertTrue(alive(child))
        process.send_signal(signal.SIGTERM)
        self.assertEqual(0, process.wait(LIMIT))
        self.assertFalse(alive(child))
        self.assertEqual("alive at exit: True\n", self.text())

    def test_a_program_that_ignores_sigterm_is_killed(self) -> None:
        process = self.serve(
            HEAD
            + """
    @sticky.enter()
    def spawn(self):
        stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(1000)"
        child = subprocess.Popen([sys.executable, "-c", stubborn], stdout=subprocess.PIPE)
        child.stdout.readline()
        open("child", "w").write(f"{child.pid}\\n")
"""
        )
        self.ready()
        process.send_signal(signal.SIGTERM)
        self.assertEqual(0, process.wait(LIMIT))
        self.assertFalse(alive(self.written_pid("child")))

    def test_no_descriptor_leaks_into_what_hooks_start(self) -> None:
        # `ready` waits for the end of the pipe: it comes only if neither the exec nor the bare fork kept it.
        self.serve(
            HEAD
            + """
    @sticky.enter()
    def spawn(self):
        subprocess.Popen(["sleep", "1000"], close_fds=False)
        if os.fork() == 0:
            time.sleep(1000)
            os._exit(0)
    @sticky.enter()
    def look(self): print("STICKY_READY_FD" in os.environ)
"""
        )
        self.ready()
        self.assertEqual("False\n", self.text())

    def test_sigterm_interrupts_a_hook_that_takes_long(self) -> None:
        process = self.serve(
            HEAD
            + """
    @sticky.enter()
    def slow(self): print("slow"); time.sleep(1000)
    @sticky.exit()
    def bye(self): print("never")
"""
        )
        self.until(lambda: "slow" in self.text(), "the hook began")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(0, process.wait(LIMIT))
        self.assertEqual("slow\n", self.text())

    def test_sigterm_interrupts_an_async_hook(self) -> None:
        process = self.serve(
            HEAD + "    @sticky.enter()\n    async def slow(self): print('slow'); await asyncio.sleep(1000)\n"
        )
        self.until(lambda: "slow" in self.text(), "the hook began")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(0, process.wait(LIMIT))

    def test_an_async_hook_may_serve_from_its_loop(self) -> None:
        process = self.serve(
            HEAD
            + """
    @sticky.enter()
    async def start(self):
        async def greet(reader, writer):
            writer.write(b"hello")
            writer.close()
        self.server = await asyncio.start_server(greet, "127.0.0.1", 0)
        open("port", "w").write(f"{self.server.sockets[0].getsockname()[1]}\\n")
    @sticky.exit()
    async def stop(self):
        self.server.close()
        await self.server.wait_closed()
        print("closed")
"""
        )
        self.ready()
        import socket

        with socket.create_connection(("127.0.0.1", self.written_pid("port")), timeout=LIMIT) as connection:
            self.assertEqual(b"hello", connection.recv(100))
        process.send_signal(signal.SIGTERM)
        self.assertEqual(0, process.wait(LIMIT))
        self.assertEqual("closed\n", self.text())

    def test_a_second_sigterm_does_not_cut_the_exit_hooks(self) -> None:
        process = self.serve(
            HEAD
            + """
    @sticky.enter()
    def start(self): ...
    @sticky.exit()
    def bye(self):
        print("leaving")
        while not os.path.exists("go"):
            time.sleep(0.01)
        print("left")
"""
        )
        self.ready()
        process.send_signal(signal.SIGTERM)
        self.until(lambda: "leaving" in self.text(), "the exit hook began")
        process.send_signal(signal.SIGTERM)
        (self.folder / "go").touch()
        self.assertEqual(0, process.wait(LIMIT))
        self.assertEqual("leaving\nleft\n", self.text())

    def test_exit_hooks_that_hang_are_cut(self) -> None:
        process = self.serve(
            HEAD
            + """
    @sticky.enter()
    def start(self): ...
    @sticky.exit()
    def bye(self): time.sleep(1000)
""",
            "--exit-limit",
            "0.2",
        )
        self.ready()
        process.send_signal(signal.SIGTERM)
        self.assertEqual(0, process.wait(LIMIT))
        self.assertEqual("sticky: the exit hooks of Game took longer than 0.2 seconds\n", self.text())

    def test_a_raising_exit_hook_does_not_keep_the_next_from_running(self) -> None:
        process = self.serve(
            HEAD
            + """
    @sticky.enter()
    def start(self): ...
    @sticky.exit()
    def one(self): raise ValueError("not saved")
    @sticky.exit()
    def two(self): print("two ran")
"""
        )
        self.ready()
        process.send_signal(signal.SIGTERM)
        self.assertEqual(1, process.wait(LIMIT))
        self.assertIn("the exit hook Game.one failed", self.text())
        self.assertIn("two ran\n", self.text())

    def test_a_thread_of_the_app_does_not_keep_it(self) -> None:
        process = self.serve(
            HEAD
            + """
    @sticky.enter()
    def start(self):
        import threading
        threading.Thread(target=time.sleep, args=(1000,)).start()
"""
        )
        self.ready()
        process.send_signal(signal.SIGTERM)
        self.assertEqual(0, process.wait(LIMIT))

    def test_a_hook_that_takes_the_signal_over_does_not_lose_the_exit_hooks(self) -> None:
        process = self.serve(
            HEAD
            + """
    @sticky.enter()
    def start(self): signal.signal(signal.SIGTERM, signal.SIG_IGN)
    @sticky.exit()
    def bye(self): print("bye")
"""
        )
        self.ready()
        process.send_signal(signal.SIGTERM)
        self.assertEqual(0, process.wait(LIMIT))
        self.assertEqual("bye\n", self.text())

    def test_a_forked_worker_dies_of_sigterm_and_the_container_lives(self) -> None:
        process = self.serve(
            HEAD
            + """
    @sticky.enter()
    def start(self):
        import multiprocessing
        self.worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(1000,))
        self.worker.start()
        os.kill(self.worker.pid, signal.SIGTERM)
        self.worker.join()
        print("worker", self.worker.exitcode)
    @sticky.exit()
    def bye(self): print("bye")
"""
        )
        self.ready()
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGTERM)
        self.assertEqual(0, process.wait(LIMIT))
        self.assertEqual("worker -15\nbye\n", self.text())

    def test_nothing_to_serve_is_one_line_and_status_1(self) -> None:
        process = self.serve("x = 1")
        self.assertEqual(1, process.wait(LIMIT))
        self.assertEqual(
            f"sticky: there is no App in {self.folder / 'game.py'}: write app = sticky.App(...)\n", self.text()
        )


class DescribeTests(ChildTests):
    def described(self, target: str, **arguments: float) -> object:
        return describe(target, None, self.folder, **arguments)

    def refused(self, target: str, **arguments: float) -> str:
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
        self.app(SEED)
        self.patch(os, "environ", {key: value for key, value in os.environ.items() if key != "PYTHONPATH"})
        isolated = self.app(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n', "python-without")
        isolated.chmod(0o755)
        with self.assertRaisesRegex(ConfigError, "has no sticky installed"):
            describe("game.py", "./python-without", self.folder)
