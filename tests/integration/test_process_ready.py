"""When a real child is ready, and where: own port, fixed port, Unix socket, probe, report."""

from __future__ import annotations

import os
import socket
from typing import Any

from sticky.containers.child import Child
from sticky.containers.ports import Ports
from sticky.core.values import ServerName
from sticky.isticky import TCPAddress, UNIXAddress
from tests.containers.conformance import Program
from tests.integration.children import LISTENS, PYTHON
from tests.integration.process_case import COMMANDS, ProcessTestCase


class ReadyTests(ProcessTestCase):
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

    async def test_a_server_that_listens_on_the_ipv6_loopback_alone(self) -> None:
        # What Node does with "localhost".
        script = LISTENS.replace("socket.socket()", "socket.socket(socket.AF_INET6)").replace("127.0.0.1", "::1")
        container = self.run_container(*PYTHON, script)
        self.assertEqual(await self.ready(container), TCPAddress("::1", container.port or 0))

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
        await self.until(lambda: len(os.listdir("/proc/self/fd")) <= before)  # of an earlier test's, some go meanwhile

    async def test_one_that_reports_twice_is_ready_once_and_what_it_says_later_counts_for_nothing(self) -> None:
        lines = "b'ready\\nready\\nfailed exec 2\\n'"
        script = LISTENS.replace("time.sleep", f"os.write(int(os.environ['STICKY_READY_FD']), {lines}); time.sleep")
        container = self.run_container(*PYTHON, script, reports_ready=True)
        await self.ready(container)
        container.terminate()
        exit = await self.exit(container)
        self.assertEqual((exit.detail, exit.signal), ("killed", 15))
        self.assertEqual(self.recorder.heard(container), ["ready", "exited"])

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


class WaitsForTests(ProcessTestCase):
    """What one is told to lack that runs and is not ready."""

    EXPECTED = (
        "nothing of it listens on port {} of 127.0.0.1, which is PORT in its environment and {{port}} in its command"
    )

    async def waiting(self, container: Child) -> str:
        await self.until(lambda: container.waits_for())
        return container.waits_for()

    async def test_the_port_that_it_was_given_and_where_it_listens_instead(self) -> None:
        script = LISTENS.replace('int(sys.argv[1] if len(sys.argv) > 1 else os.environ["PORT"])', "0").replace(
            'print("listening"', "print(s.getsockname()[1]"
        )
        for command in ((*PYTHON, script), ("sh", "-c", '"$@" & wait', "sh", *PYTHON, script)):
            container = self.run_container(*command)
            (port,) = await self.output(container)
            said = f"{self.EXPECTED.format(container.port)}; it listens on port {port} of 127.0.0.1: "
            self.assertEqual(await self.waiting(container), f"{said}set port = {port} if it cannot take another")

    async def test_one_that_listens_nowhere(self) -> None:
        container = self.run_container("sleep", "600")
        self.assertEqual(await self.waiting(container), self.EXPECTED.format(container.port))
        container.kill()
        await self.exit(container)
        self.assertEqual(container.waits_for(), "")

    async def test_a_probe_that_is_refused(self) -> None:
        container = self.run_container("python3", "-m", "http.server", "{port}", "--bind", "{host}", ready_path="/none")
        await self.until(lambda: "GET" in container.waits_for())
        self.assertEqual(container.waits_for(), "GET /none is not answered with a status under 400 (status 404)")

    async def test_a_report_that_was_not_given(self) -> None:
        container = self.run_container("sleep", "600", reports_ready=True)
        self.assertEqual(container.waits_for(), "it has not said that its enter hooks are done")

    async def test_nothing_is_said_of_one_that_could_not_be_launched(self) -> None:
        container = self.run_container("sh", directory=self.folder / "none")
        await self.exit(container)
        self.assertEqual(container.waits_for(), "")


class FixedPortTests(ProcessTestCase):
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
