"""What keeps a process from being forked."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from sticky.forking import fitness
from sticky.forking.fitness import Unfit, check

ROOT = Path(fitness.__file__).parents[2]


class DescriptorTests(SynchronousTestCase):
    """This very process has a reactor and sockets: only what a test opens is looked at."""

    def problems(self, *opened: int) -> list[str]:
        others = {int(name) for name in os.listdir("/proc/self/fd")} - set(opened)
        return list(fitness._descriptors(others))

    def test_a_connection_says_where_to(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as door, socket.create_connection(door.getsockname()) as client:
            port = door.getsockname()[1]
            self.assertEqual(
                self.problems(client.fileno()),
                [f"has a connection to 127.0.0.1:{port} open (descriptor {client.fileno()})"],
            )
            self.assertEqual(self.problems(door.fileno()), [f"has a socket open (descriptor {door.fileno()})"])

    def test_an_event_loop_a_pipe_and_the_rest_of_the_kernels(self) -> None:
        loop, event, (reader, writer) = select.epoll(), os.eventfd(0), os.pipe()
        self.addCleanup(loop.close)
        for descriptor in (event, reader, writer):
            self.addCleanup(os.close, descriptor)
        self.assertIn("has an event loop (epoll) open", self.problems(loop.fileno())[0])
        self.assertIn("has a descriptor of the kernel's (eventfd) open", self.problems(event)[0])
        self.assertEqual(len(self.problems(reader, writer)), 2)

    def test_a_file_may_be_read_and_appended_to_and_not_be_written(self) -> None:
        path = Path(self.mktemp())
        for mode, fits in (("w", False), ("r", True), ("a", True), ("r+", False)):
            with open(path, mode) as file:
                found = self.problems(file.fileno())
            self.assertEqual(not found, fits, mode)
            if found:
                self.assertIn(f"has {path.absolute()} for writing open", found[0])

    def test_harmless_devices_do_no_harm(self) -> None:
        for name in ("/dev/null", "/dev/urandom"):
            with open(name, "rb") as device:
                self.assertEqual(self.problems(device.fileno()), [], name)

    def test_what_is_known_is_kept(self) -> None:
        ours, theirs = socket.socketpair()
        self.addCleanup(ours.close)
        self.addCleanup(theirs.close)
        self.assertEqual(len(self.problems(ours.fileno(), theirs.fileno())), 2)
        self.assertEqual(self.problems(), [])


class ThreadTests(SynchronousTestCase):
    @contextmanager
    def running(self, name: str) -> Iterator[None]:
        over = threading.Event()
        thread = threading.Thread(target=over.wait, name=name)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def test_a_thread_is_named(self) -> None:
        with self.running("left-behind"):
            (problem,) = fitness._threads()
            self.assertIn("left-behind", problem)

    def test_a_name_of_any_kind_does_not_hide_the_others(self) -> None:
        @given(st.text(max_size=50))
        def holds(name: str) -> None:
            with self.running(name), self.running("the-other"):
                (problem,) = fitness._threads()
                self.assertIn("the-other", problem)
                self.assertIn(name, problem)

        holds()


class WholeTests(SynchronousTestCase):
    """A process of its own, which has nothing but what it is told."""

    def say(self, before: str) -> str:
        program = (
            f"import os, sys\n{before}\nfrom sticky.forking.fitness import Unfit, check\n"
            "try:\n    check()\n    print('fit')\nexcept Unfit as problem:\n    print(problem)\nsys.stdout.flush()\nos._exit(0)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            timeout=120,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def test_a_plain_one_is_fit(self) -> None:
        self.assertEqual(self.say("import json, asyncio, sqlite3"), "fit")

    def test_an_asyncio_loop_that_was_closed_leaves_nothing(self) -> None:
        self.assertEqual(self.say("import asyncio\nasyncio.run(asyncio.sleep(0))"), "fit")

    def test_one_that_was_not_closed_is_seen(self) -> None:
        self.assertIn("an event loop (epoll)", self.say("import asyncio\nloop = asyncio.new_event_loop()"))

    def test_a_reactor_is_seen(self) -> None:
        self.assertIn("has installed a reactor", self.say("from twisted.internet import reactor"))

    def test_everything_is_said_at_once(self) -> None:
        said = self.say(
            "import subprocess, threading, time\n"
            "threading.Thread(target=time.sleep, args=(1000,), name='busy', daemon=True).start()\n"
            "child = subprocess.Popen(['sleep', '1'])"
        )
        self.assertEqual(
            said,
            "what ran before the fork has started threads: busy"
            " and has started a process, which would be the child of none of the forks",
        )

    def test_a_process_that_has_ended_is_in_nobodys_way(self) -> None:
        self.assertEqual(
            self.say("import os\nif not os.fork():\n    os._exit(3)\nos.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)"),
            "fit",
        )

    def test_threads_without_a_name_are_counted(self) -> None:
        self.assertIn(
            "2 without a name",
            self.say(
                "import _thread, time\n_thread.start_new_thread(time.sleep, (1000,))\n_thread.start_new_thread(time.sleep, (1000,))"
            ),
        )

    def test_threads_of_a_library_are_told_by_a_fork(self) -> None:
        native = (
            "import ctypes\nlibc = ctypes.CDLL(None)\n"
            "pause = ctypes.cast(libc.pause, ctypes.c_void_p)\nthread = ctypes.c_ulong()\n"
            "assert libc.pthread_create(ctypes.byref(thread), None, pause, None) == 0"
        )
        self.assertIn("has started a thread of a library", self.say(native))

    def test_unfit_says_what(self) -> None:
        ours, theirs = socket.socketpair()
        self.addCleanup(ours.close)
        self.addCleanup(theirs.close)
        self.assertIn("open (descriptor", str(self.assertRaises(Unfit, check)))
