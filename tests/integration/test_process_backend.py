"""Containers as real children of this process."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import attrs
from twisted.internet import reactor
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from sticky.containers import spawn
from sticky.containers.child import Child
from sticky.containers.logs import last_lines, log_path
from sticky.containers.ownership import members
from sticky.containers.ports import Ports
from sticky.containers.process import IContainerReactor, ProcessBackend
from sticky.core.values import ContainerId, DeploymentId, ServerName
from sticky.errors import IllegalEvent
from sticky.isticky import ContainerSpec, Exit, TCPAddress, UNIXAddress
from tests.containers.conformance import BackendConformance, Program, Recorder
from tests.integration.children import LISTENS, PYTHON, STUBBORN, alive, written, zombies

DEADLINE = 20.0  # seconds for anything; a loaded machine needs some
REACTOR = cast(IContainerReactor, reactor)
ENVIRON = {"PATH": os.environ["PATH"], "HOME": "/", "PYTHONPATH": "/daemon/only", "SECRET": "hush"}

COMMANDS: Mapping[Program, tuple[str, ...]] = {
    Program.SERVES: (*PYTHON, LISTENS),
    Program.STUBBORN: (*PYTHON, STUBBORN),
    Program.SILENT: ("sleep", "600"),
    Program.EXITS: ("sh", "-c", "echo last words; exit 3"),
    Program.MISSING: ("no-such-program-anywhere",),
}


class _BackendTestCase(TestCase):
    """A backend, a folder, and nobody left at the end."""

    timeout = 120

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="sticky-"))  # short: a Unix socket's path has 107 bytes
        self.addCleanup(shutil.rmtree, self.folder)
        self.backend = self.make_backend()
        self.recorder = Recorder()
        self.spawned: list[Child] = []

    async def tearDown(self) -> None:  # type: ignore[override]  # trial awaits it
        for container in self.spawned:
            container.kill()
        await self.until(lambda: all(self.recorder.exit(container) for container in self.spawned))
        await self.backend.stop()

    def make_backend(self, **settings: Any) -> ProcessBackend:
        return ProcessBackend(REACTOR, environ=ENVIRON, **settings)

    def make_spec(self, *command: str, **changes: Any) -> ContainerSpec:
        container = ContainerId(f"ct-{os.urandom(8).hex()}")
        spec = ContainerSpec(
            container=container,
            server=ServerName("echo"),
            deployment=DeploymentId("d1"),
            app="app",
            command=command,
            directory=self.folder,
            log=log_path(self.folder / "logs", ServerName("echo"), container),
            scratch=self.folder / container,
            url="http://echo.localhost",
        )
        return attrs.evolve(spec, **changes)

    def run_container(self, *command: str, **changes: Any) -> Child:
        container = self.backend.spawn(self.make_spec(*command, **changes), self.recorder)
        self.spawned.append(container)
        return container

    async def until(self, condition: Callable[[], object]) -> None:
        give_up = REACTOR.seconds() + DEADLINE
        while not condition():
            self.assertLess(REACTOR.seconds(), give_up, f"waited too long; heard {self.recorder.facts}")
            await deferLater(REACTOR, 0.005, lambda: None)

    async def ready(self, container: Child) -> object:
        await self.until(lambda: self.recorder.address(container) or self.recorder.exit(container))
        address = self.recorder.address(container)
        self.assertIsNotNone(address, self.recorder.exit(container))
        return address

    async def exit(self, container: Child) -> Exit:
        await self.until(lambda: self.recorder.exit(container))
        found = self.recorder.exit(container)
        assert found is not None
        return found

    async def output(self, container: Child) -> list[str]:
        await self.until(lambda: written(container.spec.log))
        return written(container.spec.log).splitlines()


class ProcessConformanceTests(BackendConformance, _BackendTestCase):
    backend: ProcessBackend

    def spec(self, program: Program) -> ContainerSpec:
        return self.make_spec(*COMMANDS[program])

    async def until(self, condition: Callable[[], object]) -> None:
        await _BackendTestCase.until(self, condition)


class SurroundingsTests(_BackendTestCase):
    """What a program finds when it starts."""

    async def test_the_environment_is_exactly_what_the_contract_lists(self) -> None:
        container = self.run_container("env", env={"LEVEL": "1"})
        await self.exit(container)
        port = str(container.port)
        self.assertEqual(
            dict(line.split("=", 1) for line in await self.output(container)),
            {
                "PATH": ENVIRON["PATH"],
                "HOME": "/",
                "LEVEL": "1",
                "PORT": port,
                "STICKY_PORT": port,
                "STICKY_HOST": "127.0.0.1",
                "STICKY_URL": "http://echo.localhost",
                "STICKY_CONTAINER_ID": container.id,
                "STICKY_SERVER": "echo",
                "STICKY_DEPLOYMENT": "d1",
                "STICKY_APP": "app",
                "MODAL_TASK_ID": container.id,
                "MODAL_IS_REMOTE": "1",
            },
        )

    async def test_a_locale_that_is_set_arrives_as_it_is(self) -> None:
        for locale in ("C", "de_DE.UTF-8", ""):
            container = self.run_container("sh", "-c", "echo ${LC_CTYPE-none}", env={"LC_CTYPE": locale})
            self.assertEqual(await self.output(container), [locale])

    async def test_no_descriptor_of_the_daemon_leaks_into_it(self) -> None:
        held = [os.open("/dev/null", os.O_RDONLY) for _ in range(20)]
        for descriptor in held:
            os.set_inheritable(descriptor, True)
            self.addCleanup(os.close, descriptor)
        container = self.run_container(*PYTHON, "import os; print(sorted(map(int, os.listdir('/proc/self/fd'))))")
        self.assertEqual(await self.output(container), ["[0, 1, 2, 3]"])  # 3 is the listing itself

    def test_a_descriptor_that_slipped_through_is_closed_by_the_launcher(self) -> None:
        # As a C library's thread may open one, without close-on-exec, between Twisted's listing and its spawn.
        script = "import os; print(sorted(map(int, os.listdir('/proc/self/fd'))))"
        stray, report = os.open("/dev/null", os.O_RDONLY), os.open("/dev/null", os.O_WRONLY)
        self.addCleanup(os.close, stray)
        self.addCleanup(os.close, report)
        launch = f"import os, sys; os.dup2({report}, 3); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
        found = subprocess.run(
            [*PYTHON, launch, "-I", "-S", spawn.__file__, str(os.getpid()), "", "-", "/", *PYTHON, script],
            pass_fds=[stray, report],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
        )
        self.assertEqual(found.stdout, b"[0, 1, 2, 3]\n")

    def test_a_launcher_whose_daemon_died_before_it_could_ask_for_the_signal_starts_nothing(self) -> None:
        found = subprocess.run(
            [*PYTHON[:-1], spawn.__file__, str(os.getppid()), "", "-", "/", "echo", "started"],
            capture_output=True,
        )
        self.assertEqual((found.returncode, found.stdout), (127, b""))

    async def test_it_has_a_session_and_a_group_of_its_own_and_default_signals(self) -> None:
        script = "import os; print(os.getpid() == os.getsid(0) == os.getpgid(0))"
        # A Python would ignore SIGPIPE by itself: sh shows what it was given.
        container = self.run_container("sh", "-c", 'grep SigIgn /proc/$$/status; exec "$@"', "sh", *PYTHON, script)
        await self.exit(container)
        lines = await self.output(container)
        realtime = 1 << 31  # 32 and above are the C library's own
        self.assertEqual(int(lines[0].split()[1], 16) % realtime, 0)
        self.assertEqual(lines[1], "True")

    async def test_it_runs_in_its_directory_and_reads_nothing(self) -> None:
        container = self.run_container("sh", "-c", "pwd; wc -c")
        await self.exit(container)
        self.assertEqual(await self.output(container), [str(self.folder), "0"])

    async def test_stdout_and_stderr_are_the_log_itself(self) -> None:
        container = self.run_container("sh", "-c", "echo out; echo err >&2; readlink /proc/self/fd/1 /proc/self/fd/2")
        await self.exit(container)
        self.assertEqual(await self.output(container), ["out", "err", *[str(container.spec.log)] * 2])

    async def test_placeholders_are_filled(self) -> None:
        command = "echo {port} {host} {container_id} {url} {{port}} {what}"
        container = self.run_container("sh", "-c", command)
        self.assertEqual(
            await self.output(container),
            [f"{container.port} 127.0.0.1 {container.id} http://echo.localhost {{port}} {{what}}"],
        )

    async def test_the_scratch_folder_is_private_and_goes_with_the_container(self) -> None:
        container = self.run_container(*COMMANDS[Program.SERVES])
        await self.ready(container)
        self.assertEqual(container.spec.scratch.stat().st_mode & 0o777, 0o700)
        container.kill()
        await self.exit(container)
        self.assertFalse(container.spec.scratch.exists())


class ReadyTests(_BackendTestCase):
    """When it is ready, and where."""

    async def test_a_common_server_with_its_port_on_the_command_line(self) -> None:
        container = self.run_container("python3", "-m", "http.server", "{port}", "--bind", "{host}")
        self.assertEqual(await self.ready(container), TCPAddress("127.0.0.1", container.port or 0))

    async def test_a_server_that_is_a_grandchild_in_the_background_counts(self) -> None:
        container = self.run_container("sh", "-c", '"$@" & wait', "sh", *PYTHON, LISTENS)
        await self.ready(container)

    async def test_a_server_that_left_the_session_is_known_by_its_environment(self) -> None:
        container = self.run_container("sh", "-c", 'setsid "$@" & sleep 600', "sh", *PYTHON, LISTENS)
        await self.ready(container)

    async def test_a_unix_socket(self) -> None:
        script = (
            "import socket, sys, time; s = socket.socket(socket.AF_UNIX);"
            "s.bind(sys.argv[1]); s.listen(); time.sleep(600)"
        )
        container = self.run_container(*PYTHON, script, "{socket}")
        self.assertEqual(await self.ready(container), UNIXAddress(str(container.spec.scratch / "http.sock")))

    async def test_a_unix_socket_with_too_long_a_path_is_refused_with_its_limit(self) -> None:
        container = self.run_container("serve", "{socket}", scratch=self.folder / ("x" * 100))
        exit = await self.exit(container)
        self.assertEqual(exit.detail, "failed")
        self.assertIn("107", exit.message)

    async def test_with_a_ready_path_it_is_ready_when_that_answers_well(self) -> None:
        script = """
import http.server, os
class H(http.server.BaseHTTPRequestHandler):
    asked = 0
    def do_GET(self):
        H.asked += 1
        print("asked", self.path, flush=True)
        self.send_response(200 if H.asked > 2 else 503)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(os.environ["PORT"])), H).serve_forever()
"""
        container = self.run_container(*PYTHON, script, ready_path="/healthz")
        await self.ready(container)
        asked = [line for line in await self.output(container) if line.startswith("asked")]
        self.assertEqual(asked, ["asked /healthz"] * 3)

    async def test_who_reports_by_itself_is_not_ready_before_that(self) -> None:
        script = LISTENS.replace(
            "time.sleep(600)",
            """
while not os.path.exists("go"):
    time.sleep(0.005)
fd = int(os.environ["STICKY_READY_FD"])
os.write(fd, b"ready\\n")
os.close(fd)
time.sleep(600)""",
        )
        container = self.run_container(*PYTHON, script, reports_ready=True)
        other = self.run_container(*COMMANDS[Program.SERVES])
        await self.output(container)  # it listens
        await self.ready(other)
        self.assertEqual(self.recorder.heard(container), [])
        (self.folder / "go").touch()
        await self.ready(container)

    async def test_after_the_report_our_end_of_the_pipe_is_given_back(self) -> None:
        await self.exit(self.run_container("true"))  # the reactor opens descriptors of its own at its first start
        before = len(os.listdir("/proc/self/fd"))
        script = LISTENS.replace("time.sleep", "os.write(int(os.environ['STICKY_READY_FD']), b'ready\\n'); time.sleep")
        await self.ready(self.run_container(*PYTHON, script, reports_ready=True))
        await self.until(lambda: len(os.listdir("/proc/self/fd")) == before)

    async def test_a_report_alone_is_not_enough(self) -> None:
        script = (
            "import os, time; os.write(int(os.environ['STICKY_READY_FD']), b'ready\\n');"
            "print('said', flush=True); time.sleep(600)"
        )
        container = self.run_container(*PYTHON, script, reports_ready=True)
        await self.output(container)
        await self.ready(self.run_container(*COMMANDS[Program.SERVES]))
        self.assertEqual(self.recorder.heard(container), [])

    async def test_a_foreign_server_on_its_port_never_counts(self) -> None:
        foreign = socket.create_server(("127.0.0.1", 0))
        foreign.setblocking(False)
        self.addCleanup(foreign.close)
        port = foreign.getsockname()[1]
        self.backend = self.make_backend(ports=Ports(port, port, ephemeral=range(0), bindable=lambda _: True))
        container = self.run_container("sleep", "600")
        knocks = 0

        def knocked() -> bool:
            nonlocal knocks
            try:
                foreign.accept()[0].close()
                knocks += 1
            except BlockingIOError:
                pass
            return knocks >= 3

        await self.until(knocked)
        self.assertEqual(self.recorder.heard(container), [])
        container.terminate()
        exit = await self.exit(container)
        self.assertIn(f"port {port} is in use by another program", exit.message)


class FixedPortTests(_BackendTestCase):
    """Programs that ignore PORT."""

    def setUp(self) -> None:
        super().setUp()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.fixed = free.getsockname()[1]

    def run_copy(self, **changes: Any) -> Child:
        return self.run_container(*PYTHON, LISTENS, str(self.fixed), port=self.fixed, **changes)

    async def test_one_copy_is_ready_on_the_fixed_port(self) -> None:
        self.assertEqual(await self.ready(self.run_copy()), TCPAddress("127.0.0.1", self.fixed))

    async def test_a_second_copy_is_refused_with_what_to_do(self) -> None:
        first = self.run_copy()
        await self.ready(first)
        exit = await self.exit(self.run_copy())
        self.assertEqual((exit.detail, exit.status), ("failed", None))
        for expected in (str(self.fixed), first.id, "PORT", "{port}", "max_containers"):
            self.assertIn(expected, exit.message)
        self.assertEqual(self.recorder.heard(first), ["ready"])

    async def test_of_copies_that_start_at_once_one_is_ready_and_the_others_are_told_why(self) -> None:
        copies = [self.run_copy() for _ in range(3)]
        await self.until(lambda: len(self.recorder.facts) >= 3)
        heard = sorted(self.recorder.heard(copy) for copy in copies)
        self.assertEqual(heard, [["exited"], ["exited"], ["ready"]])
        exits = [self.recorder.exit(copy) for copy in copies]
        for exit in filter(None, exits):
            self.assertIn("only one copy", exit.message)

    async def test_a_copy_that_would_wait_forever_is_ended_when_another_one_has_the_port(self) -> None:
        first = self.run_copy()
        second = self.run_container("sh", "-c", "exec sleep 600", port=self.fixed)
        await self.ready(first)
        exit = await self.exit(second)
        self.assertEqual(exit.detail, "failed")
        self.assertIn("only one copy", exit.message)

    async def test_the_port_is_free_for_the_next_copy_once_the_first_is_gone(self) -> None:
        first = self.run_copy()
        await self.ready(first)
        first.kill()
        await self.exit(first)
        await self.ready(self.run_copy())

    async def test_another_server_on_the_same_port_learns_who_has_it(self) -> None:
        first = self.run_copy()
        await self.ready(first)
        exit = await self.exit(self.run_copy(server=ServerName("other")))
        self.assertEqual((exit.detail, exit.status), ("exited", 1))
        self.assertIn(f"container {first.id} of Server echo", exit.message)

    async def test_a_program_that_uses_port_is_not_bound_by_it(self) -> None:
        copies = [self.run_container(*PYTHON, LISTENS, port=self.fixed) for _ in range(2)]
        self.assertEqual(len({await self.ready(copy) for copy in copies}), 2)


class EndTests(_BackendTestCase):
    """How it ends, and that nothing is left."""

    async def test_each_way_not_to_start_says_why(self) -> None:
        (self.folder / "data").write_text("x")
        (self.folder / "script").write_text("#!/nowhere/at/all\n")
        (self.folder / "script").chmod(0o755)
        cases = [
            (self.make_spec("no-such-program"), "command not found: no-such-program"),
            (self.make_spec("./data"), "not executable: ./data"),
            (self.make_spec("./script"), "interpreter"),
            (self.make_spec("sh", "a\0b"), "cannot start sh"),
            (self.make_spec(), "nothing to run"),
            (self.make_spec("sh", directory=self.folder / "none"), "working directory"),
            (self.make_spec("sh", log=self.folder / "data" / "log"), "cannot start sh"),
        ]
        for spec, expected in cases:
            container = self.backend.spawn(spec, self.recorder)
            exit = await self.exit(container)
            self.assertEqual((exit.detail, exit.status, exit.signal), ("failed", None, None))
            self.assertIn(expected, exit.message)
            self.assertNotIn("\n", exit.message)

    async def test_when_no_port_is_free_it_says_so_and_recovers(self) -> None:
        self.backend = self.make_backend(ports=Ports(20_500, 20_500, ephemeral=range(0)))
        first = self.run_container("sleep", "600")
        exit = await self.exit(self.run_container("sleep", "600"))
        self.assertEqual(exit.detail, "failed")
        self.assertIn("no free port", exit.message)
        first.kill()
        await self.exit(first)
        await self.ready(self.run_container(*COMMANDS[Program.SERVES]))

    async def test_a_grandchild_that_holds_the_output_neither_delays_the_exit_nor_survives(self) -> None:
        container = self.run_container("sh", "-c", "sleep 600 & echo $!; exit 4")
        exit = await self.exit(container)
        self.assertEqual((exit.detail, exit.status), ("exited", 4))
        self.assertFalse(alive(int(exit.last_lines[0])))

    async def test_a_grandchild_that_left_the_session_does_not_survive(self) -> None:
        container = self.run_container("sh", "-c", "setsid sh -c 'echo $$; exec sleep 600' & wait")
        (stray,) = await self.output(container)
        self.assertTrue(alive(int(stray)))
        container.terminate()
        await self.exit(container)
        self.assertFalse(alive(int(stray)))

    async def test_a_double_fork_within_the_group_does_not_survive(self) -> None:
        container = self.run_container("sh", "-c", "(sleep 600 & echo $!) ; exec sleep 600")
        (orphan,) = await self.output(container)
        container.kill()
        await self.exit(container)
        self.assertFalse(alive(int(orphan)))

    async def test_kill_reaches_everybody_when_all_ignore_terminate(self) -> None:
        container = self.run_container("sh", "-c", "trap '' TERM; sleep 600 & echo $!; wait; sleep 600")
        (child,) = await self.output(container)
        container.terminate()
        container.kill()
        exit = await self.exit(container)
        self.assertEqual((exit.detail, exit.signal), ("killed", 9))
        self.assertFalse(alive(int(child)))
        assert container.pid is not None
        self.assertEqual(members(container.id, container.pid), [])

    async def test_an_id_that_runs_already_is_our_own_mistake(self) -> None:
        container = self.run_container("sleep", "600")
        self.assertRaises(IllegalEvent, self.backend.spawn, container.spec, self.recorder)
        self.assertEqual(self.recorder.facts, [])

    async def test_a_log_is_bounded_while_its_container_runs(self) -> None:
        self.backend = self.make_backend(log_limit=100_000, log_check=0.05)
        container = self.run_container("sh", "-c", "seq 100000; echo the end; exec sleep 600")
        await self.until(lambda: last_lines(container.spec.log)[-1:] == ("the end",))
        await self.until(lambda: container.spec.log.stat().st_size < 100_000)
        self.assertEqual(last_lines(container.spec.log)[-1], "the end")

    async def test_terminate_reaches_the_whole_group(self) -> None:
        grandchild = """
import os, signal, time
signal.signal(signal.SIGTERM, lambda *_: (print("told", flush=True), os._exit(0)))
print("up", flush=True)
time.sleep(600)
"""
        container = self.run_container("sh", "-c", "trap '' TERM; \"$@\" & wait", "sh", *PYTHON, grandchild)
        await self.output(container)
        container.terminate()
        await self.exit(container)
        self.assertEqual(await self.output(container), ["up", "told"])

    async def test_a_crash_after_ready_is_told_with_its_signal(self) -> None:
        container = self.run_container(*COMMANDS[Program.SERVES])
        await self.ready(container)
        assert container.pid is not None
        os.kill(container.pid, signal.SIGSEGV)
        exit = await self.exit(container)
        self.assertEqual((exit.detail, exit.status, exit.signal), ("killed", None, 11))
        self.assertEqual(exit.message, "ended by SIGSEGV")

    async def test_nothing_leaks_over_fifty_starts(self) -> None:
        await self.exit(self.run_container("true"))
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(5):
            batch = [self.run_container(*(("true",) if number % 2 else ("no-such",))) for number in range(10)]
            for container in batch:
                await self.exit(container)
        self.assertEqual(len(os.listdir("/proc/self/fd")), before)
        self.assertEqual(zombies(), [])
        self.assertEqual(len(list((self.folder / "logs").iterdir())), 20)

    async def test_the_log_is_bounded_and_its_end_is_kept(self) -> None:
        self.backend = self.make_backend(log_limit=100_000)
        container = self.run_container("sh", "-c", "seq 100000; echo the end")
        exit = await self.exit(container)
        self.assertEqual(exit.last_lines[-1], "the end")
        self.assertLess(container.spec.log.stat().st_size, 100_000)

    async def test_containers_die_with_a_daemon_that_is_killed(self) -> None:
        script = """
import sys
from pathlib import Path
from twisted.internet import reactor
from zope.interface import implementer
from sticky.containers.process import ProcessBackend
from sticky.errors import IllegalEvent
from sticky.isticky import ContainerSpec, IContainerListener
@implementer(IContainerListener)
class Prints:
    def ready(self, container, address):
        print(child.pid, flush=True)
    def exited(self, container, exit):
        print("exited", exit, flush=True)
folder = Path(sys.argv[1])
spec = ContainerSpec(container="ct-1", server="s", deployment="d", app="a", command=tuple(sys.argv[2:]),
    directory=folder, log=folder / "log", scratch=folder / "scratch")
def start():
    global child
    child = ProcessBackend(reactor).spawn(spec, Prints())
reactor.callWhenRunning(start)
reactor.run()
"""
        root = str(Path(__file__).resolve().parents[2])
        said = self.folder / "said"
        with said.open("w") as output:
            daemon = subprocess.Popen(
                [sys.executable, "-c", script, str(self.folder), *PYTHON, STUBBORN],
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": root},
            )
        try:
            await self.until(lambda: written(said))
            container = int(written(said))
            self.assertTrue(alive(container))
        finally:
            daemon.kill()
            daemon.wait()
        await self.until(lambda: not alive(container))
