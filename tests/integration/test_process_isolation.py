"""Isolated child processes on the real backend: networks, users, file systems, limits of a process. Skipped where forbidden."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import mock

from twisted.internet.task import deferLater

from sticky import networks
from sticky.containers import confinement
from sticky.containers.knocking import Knocker, http_status
from sticky.containers.process import ProcessBackend
from sticky.isticky import ContainerSpec, TCPAddress, UNIXAddress
from tests.containers.conformance import BackendConformance, Program
from tests.integration.children import LISTENS, PYTHON, alive
from tests.integration.isolation_case import IsolationCase, possible, system_python
from tests.integration.process_case import COMMANDS, HIDES, REACTOR

#: Listens on a hard-coded port of 127.0.0.1 and answers GET with its container's id.
HARD_CODED = """
import http.server, os
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = os.environ["STICKY_CONTAINER_ID"].encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers()
        self.wfile.write(body)
http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Page).serve_forever()
"""


def asked(address: TCPAddress) -> str:
    """The body of a GET, on a socket made in the address's network."""
    with networks.inside(address.network):
        connection = socket.socket()
    with connection:
        connection.settimeout(10)
        connection.connect((address.host, address.port))
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        received = b""
        while chunk := connection.recv(4096):
            received += chunk
    return received.partition(b"\r\n\r\n")[2].decode()


class ConfinedConformance(IsolationCase, BackendConformance):
    """The common promises, with everything that can be asked for at once."""

    backend: ProcessBackend
    OPTIONS: dict[str, object] = {}
    family = 5

    def spec(self, program: Program) -> ContainerSpec:
        possible(**self.OPTIONS)
        hides = (HIDES,) if program is Program.FAMILY else ()
        return self.make_spec(*COMMANDS[program], *hides, options=self.OPTIONS)


class LimitedConformanceTests(ConfinedConformance):
    OPTIONS = {"network": True, "memory": 256 << 20, "pids": 200, "cpu": 2.0, "rlimits": {"core": 0}}


class PidNamespaceConformanceTests(ConfinedConformance):
    OPTIONS = {"descendants": "pid_namespace"}
    fifty_take_long = "three processes for each"


class WrappedConformanceTests(ConfinedConformance):
    OPTIONS = {"network": True, "read_only": True}
    fifty_take_long = "three processes for each"


del ConfinedConformance


class NetworkTests(IsolationCase):
    async def test_five_copies_with_the_same_port_run_at_once_each_reached_in_its_own_network(self) -> None:
        copies = [self.confined(*PYTHON, HARD_CODED, options={"network": True}, port=8000) for _ in range(5)]
        for copy in copies:
            address = await self.ready(copy)
            assert isinstance(address, TCPAddress)
            self.assertEqual((address.host, address.port), ("127.0.0.1", 8000))
            self.assertEqual(asked(address), copy.id)
        self.assertEqual(len({self.recorder.address(copy) for copy in copies}), 5)

    async def test_a_unix_socket_that_only_its_own_network_lists_is_found_to_be_its_own(self) -> None:
        script = "import socket, sys, time; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); time.sleep(600)"
        for more in ({}, {"read_only": True}, {"descendants": "pid_namespace"}):
            container = self.confined(*PYTHON, script, "{socket}", options={"network": True, **more})
            self.assertEqual(await self.ready(container), UNIXAddress(str(container.spec.scratch / "http.sock")))

    async def test_a_probe_by_http_reaches_it(self) -> None:
        copy = self.confined(*PYTHON, HARD_CODED, options={"network": True}, port=8000, ready_path="/")
        address = await self.ready(copy)
        assert isinstance(address, TCPAddress)
        self.assertEqual(await http_status(REACTOR, address, "/"), 200)

    async def test_who_listens_outside_on_the_same_port_is_not_taken_for_it(self) -> None:
        options: dict[str, object] = {"network": True}
        possible(**options)
        outside = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(outside.close)
        port = outside.getsockname()[1]
        copy = self.confined("sleep", "600", options=options, port=port)
        await deferLater(REACTOR, 0.3, lambda: None)
        self.assertIsNone(self.recorder.address(copy))
        outside.setblocking(False)
        self.assertRaises(BlockingIOError, outside.accept)  # nobody even knocked

    async def test_it_reaches_nothing_outside(self) -> None:
        outside = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(outside.close)
        script = (
            "import socket, sys\n"
            "try: socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5)\n"
            "except OSError as error: print(type(error).__name__)\n"
            "print(sorted(name for _, name in socket.if_nameindex()))"
        )
        port = str(outside.getsockname()[1])
        copy = self.confined(*PYTHON, script, port, options={"network": True})
        await self.exit(copy)
        refused, interfaces = await self.output(copy)
        self.assertEqual(refused, "ConnectionRefusedError")
        self.assertIn("'lo'", interfaces)
        self.assertNotIn("eth", interfaces)

    async def test_the_network_is_gone_with_it_and_the_address_reaches_nobody(self) -> None:
        copy = self.confined(*PYTHON, LISTENS, options={"network": True})
        address = await self.ready(copy)
        assert isinstance(address, TCPAddress)
        copy.kill()
        await self.exit(copy)
        self.assertFalse(Knocker().knock(address))
        await self.assertFailure(http_status(REACTOR, address, "/"), Exception)


class UserTests(IsolationCase):
    def setUp(self) -> None:
        super().setUp()
        self.folder.chmod(0o755)
        self.addCleanup(os.umask, os.umask(0o022))

    async def test_it_is_the_user_with_its_home_and_no_way_back(self) -> None:
        script = (
            "import os; print(os.getresuid(), os.getresgid(), os.getgroups(), os.environ['HOME'], os.environ['USER'])\n"
            "try: os.setuid(0)\n"
            "except PermissionError: print('no way back')\n"
            "print([line for line in open('/proc/self/status') if line.startswith(('NoNewPrivs', 'CapEff'))])"
        )
        python = system_python()
        container = self.confined(python, "-I", "-S", "-c", script, options={"user": "nobody:65534"})
        await self.exit(container)
        lines = await self.output(container)
        self.assertEqual(
            lines[:2], ["(65534, 65534, 65534) (65534, 65534, 65534) [65534] /nonexistent nobody", "no way back"]
        )
        self.assertIn("NoNewPrivs:\\t1", lines[2])
        self.assertIn("CapEff:\\t0000000000000000", lines[2])

    async def test_it_becomes_ready_and_ends_as_any_other(self) -> None:
        python = system_python()
        container = self.confined(python, "-I", "-S", "-c", LISTENS, options={"user": "nobody"})
        await self.ready(container)
        container.terminate()
        self.assertEqual((await self.exit(container)).signal, 15)

    async def test_what_it_keeps_is_its_own_and_the_next_one_finds_it(self) -> None:
        kept = self.folder / "cache" / "nobody" / "packages"
        script = (
            "import os, sys; folder = sys.argv[1]\n"
            "print(os.listdir(folder), oct(os.stat(folder).st_mode & 0o777), os.access(os.path.dirname(folder), os.W_OK))\n"
            "open(folder + '/done', 'w').close()"
        )
        python = system_python()
        for wrapped in ({}, {"private_tmp": True}):
            for found in ("[]", "['done']"):
                container = self.confined(
                    python,
                    "-I",
                    "-S",
                    "-c",
                    script,
                    str(kept),
                    options={"user": "nobody", "kept": str(kept), **wrapped},
                )
                await self.exit(container)
                self.assertEqual(await self.output(container), [f"{found} 0o700 False"])
            (kept / "done").unlink()

    async def test_it_cannot_read_what_the_daemon_keeps_nor_another_container(self) -> None:
        state = self.folder / "state"
        state.mkdir(mode=0o700)
        (state / "signing-key").write_text("hush")
        script = (
            "import os, sys\n"
            "for path in sys.argv[1:]:\n"
            "    try: open(path).close(); print('read', path)\n"
            "    except PermissionError: print('refused')\n"
            "try: os.listdir(os.path.dirname(sys.argv[1])); print('listed')\n"
            "except PermissionError: print('refused')\n"
            "try: os.kill(int(sys.argv[2].split('/')[2]), 9)\n"
            "except PermissionError: print('refused')"
        )
        python = system_python()
        paths = (str(state / "signing-key"), f"/proc/{os.getpid()}/environ")
        container = self.confined(python, "-I", "-S", "-c", script, *paths, options={"user": "nobody"})
        await self.exit(container)
        self.assertEqual(await self.output(container), ["refused"] * 4)

    async def test_its_scratch_folder_is_its_own(self) -> None:
        run = Path(tempfile.mkdtemp(prefix="sticky-", dir="/run"))
        self.addCleanup(self.remove, run)
        run.chmod(0o755)
        python = system_python()
        script = "import os, socket, sys, time; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); time.sleep(600)"
        scratch = run / "scratch"
        command = (python, "-I", "-S", "-c", script, "{socket}")
        container = self.confined(*command, options={"user": "nobody"}, scratch=scratch)
        await self.ready(container)
        self.assertEqual((scratch.stat().st_uid, scratch.stat().st_mode & 0o777), (65534, 0o700))
        container.kill()
        await self.exit(container)
        await self.until(lambda: not scratch.exists())

    async def test_it_dies_with_its_daemon_although_a_change_of_user_undoes_that(self) -> None:
        script = "import ctypes; n = ctypes.c_int(); ctypes.CDLL(None).prctl(2, ctypes.byref(n)); print(n.value)"
        container = self.confined(system_python(), "-I", "-S", "-c", script, options={"user": "nobody"})
        await self.exit(container)
        self.assertEqual(await self.output(container), ["9"])  # PR_GET_PDEATHSIG

    async def test_what_the_user_may_not_run_or_enter_is_said(self) -> None:
        private = self.folder / "private"
        private.mkdir(mode=0o700)
        container = self.confined("true", options={"user": "nobody"}, directory=private)
        exit = await self.exit(container)
        self.assertEqual(exit.message, f"cannot use the working directory {private}: Permission denied")


class LimitsOfAProcessTests(IsolationCase):
    async def test_rlimits_are_soft_and_hard(self) -> None:
        script = "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE), resource.getrlimit(resource.RLIMIT_CORE))"
        container = self.confined(*PYTHON, script, options={"rlimits": {"nofile": 77, "core": 0}})
        await self.exit(container)
        self.assertEqual(await self.output(container), ["(77, 77) (0, 0)"])

    async def test_one_that_cannot_be_set_ends_it_with_a_reason(self) -> None:
        container = self.run_container("true", options={"rlimits": {"nofile": 1 << 62}})
        exit = await self.exit(container)
        self.assertEqual(exit.detail, "failed")
        self.assertEqual(exit.message, "cannot start true: Operation not permitted (rlimit_nofile)")


class FileSystemTests(IsolationCase):
    SCRIPT = (
        "import os, sys\n"
        "for path in sys.argv[1:]:\n"
        "    try: open(path, 'w').close(); print('wrote')\n"
        "    except OSError as error: print(error.strerror)\n"
        "print(sorted(os.listdir('/tmp')))"
    )

    def setUp(self) -> None:
        super().setUp()
        self.state = Path(tempfile.mkdtemp(prefix="sticky-", dir="/var"))
        self.addCleanup(self.remove, self.state)
        (self.state / "signing-key").write_text("hush")
        self.scratch = self.state / "run" / "ct-one"

    async def test_nothing_can_be_written_but_what_is_its_own(self) -> None:
        given = self.state.with_name(self.state.name + "-given")
        given.mkdir()
        self.addCleanup(shutil.rmtree, given)
        paths = ("/etc/sticky-test", "/tmp/one", f"{given}/two", f"{self.scratch}/three")
        options = {"read_only": True, "writable": (str(given),), "state_dir": str(self.state)}
        container = self.confined(*PYTHON, self.SCRIPT, *paths, options=options, scratch=self.scratch)
        await self.exit(container)
        *wrote, seen = await self.output(container)
        self.assertEqual(wrote, ["Read-only file system", "wrote", "wrote", "wrote"])
        self.assertTrue((given / "two").exists())
        self.assertFalse(Path("/tmp/one").exists())
        self.assertIn("'one'", seen)

    async def test_the_state_directory_is_not_there(self) -> None:
        script = "import os, sys; print(os.listdir(sys.argv[1]))"
        options = {"private_tmp": True, "state_dir": str(self.state)}
        container = self.confined(*PYTHON, script, str(self.state), options=options, scratch=self.scratch)
        await self.exit(container)
        self.assertEqual(await self.output(container), ["['run']"])

    async def test_its_tmp_is_its_own_and_its_working_directory_in_there_is_not_lost(self) -> None:
        marker = Path(tempfile.mkdtemp(prefix="sticky-"))
        self.addCleanup(shutil.rmtree, marker)
        (self.folder / "here").touch()
        script = "import os; print(os.listdir('.'), os.path.exists(os.sys.argv[1]))"
        container = self.confined(*PYTHON, script, str(marker), options={"private_tmp": True})
        await self.exit(container)
        (line,) = await self.output(container)
        self.assertIn("'here'", line)
        self.assertIn("False", line)

    async def test_exit_hooks_have_their_time_and_its_status_is_the_programs(self) -> None:
        script = (
            "import signal, sys, time\n"
            "def bye(*_): time.sleep(1.5); print('bye', flush=True); sys.exit(7)\n"
            "signal.signal(signal.SIGTERM, bye)\n" + LISTENS
        )
        container = self.confined(*PYTHON, script, options={"private_tmp": True})
        await self.ready(container)
        container.terminate()
        exit = await self.exit(container)
        self.assertEqual((exit.status, exit.last_lines[-1]), (7, "bye"))

    async def test_a_sigterm_that_comes_before_the_program_is_there_is_not_lost(self) -> None:
        waits, there, go = (self.folder / name for name in ("waits", "there", "go"))
        waits.write_text(
            f'#!/bin/sh\n>{there}\nuntil [ -e {go} ]; do sleep 0.01; done\nexec {confinement.BUBBLEWRAP} "$@"\n'
        )
        waits.chmod(0o755)
        for more in ({}, {"descendants": "pid_namespace"}):
            options = {"private_tmp": True, **more}
            possible(**options)
            with mock.patch.object(confinement, "bubblewrap", lambda: str(waits)):
                container = self.run_container(*PYTHON, LISTENS, options=options)
            await self.until(there.exists)
            container.terminate()
            go.touch()
            exit = await self.exit(container)
            self.assertEqual((exit.signal, exit.last_lines), (signal.SIGTERM, ()), more)
            there.unlink()
            go.unlink()

    def test_a_sigterm_before_there_is_anybody_in_the_namespace_is_handed_on(self) -> None:
        possible(descendants="pid_namespace")
        script = (
            "import ctypes, os, sys\n"
            f"sys.path.append({str(Path(confinement.__file__).parent)!r})\n"
            "import confine\n"
            "fork, forks = os.fork, []\n"
            "def told_before_it_forks():\n"
            "    forks.append(os.getpid())\n"
            "    if sys.argv[1] == str(len(forks)): os.kill(os.getpid() if len(forks) == 1 else 1, 15)\n"
            "    return fork()\n"
            "os.fork = told_before_it_forks\n"
            "confine.apply(ctypes.CDLL(None, use_errno=True), [('pid_namespace', 'yes')], [], [])\n"
            "if sys.argv[1] != 'never': __import__('signal').pause()\n"
        )
        for when, status in (("1", -signal.SIGTERM), ("2", -signal.SIGTERM), ("never", 0)):
            self.assertEqual(subprocess.run([*PYTHON, script, when], timeout=60, check=False).returncode, status, when)

    async def test_a_python_server_says_it_is_ready_and_runs_its_exit_hooks_in_there(self) -> None:
        app = self.folder / "game.py"
        app.write_text(
            "import sticky, subprocess\n"
            "app = sticky.App('game')\n"
            "@app.server(port=8000)\n"
            "class Server:\n"
            "    @sticky.enter()\n"
            "    def start(self): subprocess.Popen(['python3', '-m', 'http.server', '8000', '--bind', '127.0.0.1'])\n"
            "    @sticky.exit()\n"
            "    def stop(self): print('bye')\n"
        )
        command = (sys.executable, "-m", "sticky.containers.runtime", "serve", str(app), "--server", "Server")
        for more in (
            {"read_only": True},
            {"descendants": "pid_namespace"},
            {"read_only": True, "descendants": "pid_namespace"},
        ):
            options = {"network": True, "state_dir": str(self.state), **more}
            scratch = self.state / "run" / f"ct-{os.urandom(4).hex()}"
            container = self.confined(*command, options=options, port=8000, reports_ready=True, scratch=scratch)
            await self.ready(container)
            self.assertTrue((scratch / "ready").exists())
            container.terminate()
            exit = await self.exit(container)
            self.assertEqual((exit.status, exit.last_lines[-1:]), (0, ("bye",)), more)

    async def test_with_everything_at_once_as_another_user(self) -> None:
        options = {
            "network": True, "read_only": True, "user": "nobody", "memory": 128 << 20, "pids": 20, "cpu": 1.0,
            "rlimits": {"nofile": 100}, "descendants": "cgroup", "state_dir": str(self.state),
        }  # fmt: skip
        python = system_python()
        run = Path(tempfile.mkdtemp(prefix="sticky-", dir="/run"))
        self.addCleanup(self.remove, run)
        run.chmod(0o711)
        command = (python, "-I", "-S", "-c", HARD_CODED)
        container = self.confined(*command, options=options, port=8000, directory=Path("/"), scratch=run / "ct-one")
        address = await self.ready(container)
        assert isinstance(address, TCPAddress)
        self.assertEqual(asked(address), container.id)
        pid = container.pid
        assert pid is not None
        container.terminate()
        exit = await self.exit(container)
        self.assertEqual((exit.detail, exit.signal), ("killed", 15))
        self.assertFalse(alive(pid))
