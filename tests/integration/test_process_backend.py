"""Containers as real children of this process: the common promises, and what a program finds when it starts."""

from __future__ import annotations

import os
import subprocess

from sticky.containers import spawn
from sticky.containers.process import ProcessBackend
from sticky.isticky import ContainerSpec
from tests.containers.conformance import BackendConformance, Program
from tests.integration.children import PYTHON
from tests.integration.process_case import COMMANDS, ENVIRON, ProcessTestCase


class ProcessConformanceTests(ProcessTestCase, BackendConformance):
    backend: ProcessBackend
    may_hide = "without a cgroup processes are found by parents, session, group and environment"
    family = 4

    def spec(self, program: Program) -> ContainerSpec:
        return self.make_spec(*COMMANDS[program])


class SurroundingsTests(ProcessTestCase):
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
                "PYTHONUNBUFFERED": "1",
            },
        )

    async def test_what_a_python_program_prints_is_in_its_log_while_it_runs(self) -> None:
        prints = self.run_container("python3", "-c", "import time; print('hello'); time.sleep(600)")
        self.assertEqual(await self.output(prints), ["hello"])
        self.assertIsNone(self.recorder.exit(prints))

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
            [*PYTHON, launch, "-I", "-S", spawn.__file__, str(os.getpid()), "", "-", "/", "", *PYTHON, script],
            pass_fds=[stray, report],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
        )
        self.assertEqual(found.stdout, b"[0, 1, 2, 3]\n")

    def test_a_launcher_whose_daemon_died_before_it_could_ask_for_the_signal_starts_nothing(self) -> None:
        found = subprocess.run(
            [*PYTHON[:-1], spawn.__file__, str(os.getppid()), "", "-", "/", "", "echo", "started"],
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
        await self.until(lambda: not container.spec.scratch.exists())
