"""The containers' runtime as a real process: hooks, the ready report, signals, and what it leaves behind (nothing)."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

from tests.integration.runtime_children import LIMIT, ChildTests, alive

HEAD = """
import asyncio, os, signal, subprocess, sys, time
import sticky
app = sticky.App("games")

@app.server()
class Game:
"""


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
