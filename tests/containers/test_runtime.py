"""The parts of the containers' runtime that need no process of their own."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import TestCase

from sticky.containers import hooks, leftovers, runtime
from sticky.containers.hooks import HookRunner, StopRequested
from sticky.containers.leftovers import Process
from sticky.containers.preparing import find_server
from sticky.containers.runtime import ON_SIGNAL, Phase, ReadyReport, StopSignals
from sticky.sdk.loading import LoadError


class ReadyReportTests(TestCase):
    def setUp(self) -> None:
        self.reader, self.writer = os.pipe()
        self.addCleanup(os.close, self.reader)

    def test_it_says_ready_once_and_closes(self) -> None:
        environ = {"STICKY_READY_FD": str(self.writer), "OTHER": "1"}
        report = ReadyReport.from_environ(environ)
        self.assertEqual({"OTHER": "1"}, environ)
        report.send()
        report.send()
        self.assertEqual(b"ready\n", os.read(self.reader, 100))
        self.assertEqual(b"", os.read(self.reader, 100))

    def test_it_is_not_inherited(self) -> None:
        os.set_inheritable(self.writer, True)
        report = ReadyReport.from_environ({"STICKY_READY_FD": str(self.writer)})
        self.assertFalse(os.get_inheritable(self.writer))
        report.close()
        self.assertEqual(b"", os.read(self.reader, 100))

    def test_without_a_descriptor_it_does_nothing(self) -> None:
        os.close(self.writer)
        report = ReadyReport.from_environ({})
        report.send()
        report.close()
        self.assertEqual({}, {key: value for key, value in vars(report).items() if value is not None})

    def test_what_is_no_descriptor_is_refused(self) -> None:
        os.close(self.writer)
        for text in ("", "three", "-1", "99999", str(2**70)):
            with self.assertRaisesRegex(ValueError, "is not the number of an open descriptor"):
                ReadyReport.from_environ({"STICKY_READY_FD": text})

    def test_a_parent_that_is_gone_is_no_failure(self) -> None:
        reader, writer = os.pipe()
        os.close(reader)
        said: list[str] = []
        self.patch(runtime, "log", said.append)
        ReadyReport.from_environ({"STICKY_READY_FD": str(writer)}).send()
        self.assertEqual(["sticky: the ready report was not taken: Broken pipe\n"], said)


class StopSignalsTests(TestCase):
    def setUp(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            self.addCleanup(signal.signal, number, signal.getsignal(number))
        self.patch(os, "register_at_fork", lambda **callbacks: None)
        self.signals = StopSignals()
        self.signals.install()

    def test_every_phase_knows_the_signal_and_none_goes_back(self) -> None:
        self.assertEqual(set(Phase), set(ON_SIGNAL))
        order = list(Phase)
        for before, after in ON_SIGNAL.items():
            self.assertGreaterEqual(order.index(after), order.index(before))

    def test_while_starting_it_interrupts(self) -> None:
        with self.assertRaises(StopRequested):
            os.kill(os.getpid(), signal.SIGTERM)
        self.assertIs(Phase.STOPPING, self.signals.phase)

    def test_a_hook_that_swallows_it_does_not_win(self) -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except KeyboardInterrupt:
            pass
        self.assertRaises(StopRequested, self.signals.check)
        self.assertRaises(StopRequested, self.signals.wait)

    def test_while_serving_it_wakes_the_wait(self) -> None:
        self.signals.phase = Phase.SERVING
        os.kill(os.getpid(), signal.SIGINT)
        self.assertIs(Phase.STOPPING, self.signals.phase)
        self.assertEqual(b"x", os.read(vars(self.signals)["_wake_reader"], 1))

    def test_a_second_one_does_nothing(self) -> None:
        self.signals.phase = Phase.STOPPING
        os.kill(os.getpid(), signal.SIGTERM)
        self.assertIs(Phase.STOPPING, self.signals.phase)


class HookRunnerTests(TestCase):
    def test_what_a_hook_raises_comes_back(self) -> None:
        error = ValueError("no")

        def fail() -> None:
            raise error

        async def fail_later() -> None:
            raise error

        runner = HookRunner()
        self.assertIs(error, runner.run(fail))
        self.assertIs(error, runner.run(fail_later))
        self.assertIsNone(runner.run(lambda: None))

    def test_system_exit_in_an_async_hook_does_not_hang(self) -> None:
        async def leave() -> None:
            sys.exit(3)

        self.assertIsInstance(HookRunner().run(leave), SystemExit)

    def test_a_stop_passes(self) -> None:
        def stopped() -> None:
            raise StopRequested

        self.assertRaises(StopRequested, HookRunner().run, stopped)

    def test_async_hooks_share_a_loop_that_goes_on(self) -> None:
        import asyncio
        import threading

        done = threading.Event()
        loops = []

        async def first() -> None:
            loops.append(asyncio.get_running_loop())
            asyncio.get_running_loop().call_later(0.01, done.set)

        async def second() -> None:
            loops.append(asyncio.get_running_loop())

        runner = HookRunner()
        runner.run(first)
        self.assertTrue(done.wait(10), "the loop stopped with its hook")
        runner.run(second)
        self.assertIs(loops[0], loops[1])

    def test_the_traceback_begins_with_the_users_line(self) -> None:
        said: list[str] = []
        self.patch(hooks, "log", said.append)

        def fail() -> None:
            raise ValueError("no such map")

        error = HookRunner().run(fail)
        assert error is not None
        hooks.print_failure("the enter hook Game.start", error)
        (text,) = said
        self.assertTrue(text.startswith("sticky: the enter hook Game.start failed\nTraceback"))
        self.assertIn("in fail", text)
        self.assertTrue(text.endswith("ValueError: no such map\n"))
        self.assertNotIn("hooks.py", text)


class LeftoversTests(TestCase):
    table = {
        process.pid: process
        for process in (
            Process(1, 0, 1),
            Process(10, 1, 10),  # the runtime
            Process(11, 10, 10),  # what a hook started
            Process(12, 11, 12),  # its child, in a group of its own
            Process(13, 1, 10),  # orphaned, still in the group
            Process(20, 1, 20),  # a stranger
        )
    }

    def test_descendants_and_the_rest_of_the_group(self) -> None:
        self.assertEqual({11, 12, 13}, leftovers.leftovers(self.table, 10, True))

    def test_a_foreign_group_is_not_touched(self) -> None:
        self.assertEqual({11, 12}, leftovers.leftovers(self.table, 10, False))

    def test_the_table_knows_this_process(self) -> None:
        mine = leftovers.process_table()[os.getpid()]
        self.assertEqual((os.getppid(), os.getpgrp()), (mine.parent, mine.group))

    def test_names_with_parentheses_are_read(self) -> None:
        proc = Path(self.mktemp())
        for pid, stat in (("5", "5 (a) R 1) S 4 3 0"), ("6", "6 (dead) Z 4 3 0"), ("self", "")):
            (proc / pid).mkdir(parents=True)
            (proc / pid / "stat").write_text(stat)
        self.assertEqual({5: Process(5, 4, 3)}, leftovers.process_table(proc))
        self.assertEqual({}, leftovers.process_table(proc / "nothing"))

    @given(st.integers(0, 200), st.booleans())
    def test_each_is_told_once_and_killed_after_the_grace(self, dies_after: int, listens: bool) -> None:
        clock = [0.0]
        alive = {7, 8}
        sent: list[tuple[int, int]] = []

        def kill(pid: int, number: int) -> None:
            sent.append((pid, number))
            if number == signal.SIGKILL:
                alive.discard(pid)

        def sleep(seconds: float) -> None:
            clock[0] += seconds
            if listens and clock[0] * 100 >= dies_after:
                alive.clear()

        leftovers.end(1.0, find=lambda: set(alive), kill=kill, now=lambda: clock[0], sleep=sleep)
        self.assertEqual(set(), alive)
        self.assertEqual([(7, signal.SIGTERM), (8, signal.SIGTERM)], sorted(sent[:2]))
        late = sent[2:]
        self.assertEqual({signal.SIGKILL} if late else set(), {number for _, number in late})
        self.assertLess(clock[0], 1.1)
        if listens and dies_after < 95:
            self.assertEqual([], late)

    def test_what_survives_sigkill_does_not_keep_it_for_ever(self) -> None:
        clock = [0.0]
        sent: list[int] = []

        def sleep(seconds: float) -> None:
            clock[0] += seconds

        leftovers.end(
            1.0, find=lambda: {7}, kill=lambda pid, number: sent.append(number), now=lambda: clock[0], sleep=sleep
        )
        self.assertLess(clock[0], 2.1)
        self.assertEqual(1, sent.count(signal.SIGTERM))


class LoadTests(TestCase):
    """Importing here what a runtime imports: this process is a test's own."""

    def setUp(self) -> None:
        self.folder = Path(self.mktemp()).absolute()
        self.folder.mkdir()
        self.patch(sys, "path", list(sys.path))
        before = set(sys.modules)
        self.addCleanup(lambda: [sys.modules.pop(name) for name in set(sys.modules) - before])

    def app(self, text: str, name: str = "game_for_load_tests.py") -> str:
        path = self.folder / name
        path.write_text(f"import sticky\n{text}")
        return str(path)

    @contextmanager
    def refused(self, text: str) -> Iterator[Any]:
        with self.assertRaises(LoadError) as caught:
            yield caught
        self.assertIn(text, str(caught.exception))
        self.assertNotIn("\n", str(caught.exception))

    GAME = "class Game:\n    @sticky.enter()\n    def start(self): ...\n"

    def test_the_only_server_needs_no_name(self) -> None:
        target = self.app(f"app = sticky.App('a')\n@app.server()\n{self.GAME}")
        self.assertEqual("Game", find_server(target, None).name)
        self.assertEqual("Game", find_server(target, "Game").name)

    def test_an_unknown_server_lists_the_known_ones(self) -> None:
        target = self.app(f"app = sticky.App('a')\n@app.server()\n{self.GAME}")
        with self.refused("there is no Server 'Gaem' in the app 'a'; it has: Game"):
            find_server(target, "Gaem")

    def test_of_several_servers_one_must_be_chosen(self) -> None:
        target = self.app(f"app = sticky.App('a')\n@app.server()\n{self.GAME}\n@app.server(name='Other')\n{self.GAME}")
        with self.refused("has these Servers: Game, Other; choose one with --server"):
            find_server(target, None)

    def test_a_server_with_a_command_is_not_served(self) -> None:
        target = self.app("app = sticky.App('a')\n@app.server(command=['x'])\nclass Game: ...\n")
        with self.refused("the Server 'Game' has a command: run that"):
            find_server(target, None)

    def test_no_app(self) -> None:
        target = self.app("x = 1")
        with self.refused(f"there is no App in {target}: write app = sticky.App(...)"):
            find_server(target, None)

    def test_several_apps(self) -> None:
        with self.refused("('a', 'b'): keep one"):
            find_server(self.app("one = sticky.App('a')\ntwo = sticky.App('b')"), None)

    def test_one_app_under_two_names_is_one(self) -> None:
        target = self.app(f"app = sticky.App('a')\nalias = app\n@app.server()\n{self.GAME}")
        self.assertEqual("Game", find_server(target, None).name)

    def test_a_sessioned_class_that_is_no_server(self) -> None:
        target = self.app(f"app = sticky.App('a')\n@sticky.sessioned()\n{self.GAME}")
        with self.refused("Game in"):
            find_server(target, None)

    def test_no_file(self) -> None:
        with self.refused("there is no file /nowhere/game.py"):
            find_server("/nowhere/game.py", None)

    def test_no_module(self) -> None:
        with self.refused("there is no module nowhere.at_all"):
            find_server("nowhere.at_all", None)

    def test_what_is_no_name_of_a_module_is_no_file(self) -> None:
        for name in ("a-b", ".x", "game_for_load_tests.py.", "nowhere.py:"):
            with self.refused(f"there is no file {Path.cwd() / name}"):
                find_server(name, None)
        with self.refused("there is no module nowhere.txt, and no file of that name"):
            find_server("nowhere.txt", None)

    def test_a_file_of_another_kind(self) -> None:
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)
        for name in ("rooms.yaml", "rooms-2"):
            Path(name).touch()
            with self.refused(f"{name} is not a Python file: its name must end with .py"):
                find_server(name, None)

    def test_a_folder(self) -> None:
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)
        Path("folder_for_load_tests").mkdir()
        for target, folder in (
            (".", self.folder),
            ("..", self.folder.parent),
            ("folder_for_load_tests", self.folder / "folder_for_load_tests"),
            ("./folder_for_load_tests", self.folder / "folder_for_load_tests"),
        ):
            with self.refused(f"{folder} is a folder: name the app's file in it, such as {folder}/app.py"):
                find_server(target, None)

    def test_an_import_that_raises_has_its_line_and_traceback(self) -> None:
        target = self.app("def broken():\n    raise ValueError('no such map')\nbroken()")
        with self.refused(f"failed: ValueError: no such map ({target}, line 3)") as caught:
            find_server(target, None)
        self.assertIn("in broken", caught.exception.trace)

    def test_an_import_that_exits_is_reported(self) -> None:
        with self.refused("failed: SystemExit: 3"):
            find_server(self.app("raise SystemExit(3)"), None)

    def test_a_syntax_error_has_its_line(self) -> None:
        target = self.app("def (")
        with self.refused(f"({target}, line 2)"):
            find_server(target, None)

    def test_a_wrong_argument_shows_the_users_line(self) -> None:
        target = self.app("app = sticky.App('a')\n@app.server(port=0)\nclass Game: ...")
        with self.refused(
            f"failed: port=0 is not allowed; it must be a whole number from 1 to 65535 ({target}, line 3)"
        ):
            find_server(target, None)

    def test_a_stop_during_the_import_is_no_load_error(self) -> None:
        self.assertRaises(KeyboardInterrupt, find_server, self.app("raise KeyboardInterrupt"), None)

    def test_a_file_finds_its_neighbours(self) -> None:
        (self.folder / "neighbour_for_load_tests.py").write_text("NAME = 'a'\n")
        target = self.app(f"import neighbour_for_load_tests as n\napp = sticky.App(n.NAME)\n@app.server()\n{self.GAME}")
        self.assertEqual("a", find_server(target, None).app)

    def test_a_file_may_have_the_name_of_a_loaded_module(self) -> None:
        target = self.app(f"app = sticky.App('a')\n@app.server()\n{self.GAME}", "json.py")
        before = sys.modules["json"]
        self.assertEqual("Game", find_server(target, None).name)
        self.assertIs(before, sys.modules["json"])

    def test_describe_gives_the_declaration_or_the_error(self) -> None:
        target = self.app(f"app = sticky.App('a')\n@app.server()\n{self.GAME}")
        self.assertEqual("a", runtime.describe(target)["app"])
        self.assertEqual(
            {"error": "there is no file /nowhere/game.py", "traceback": ""}, runtime.describe("/nowhere/game.py")
        )
