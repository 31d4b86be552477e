"""What programs find, may use and leave behind on a real Docker Engine, and what happens when that goes away."""

from __future__ import annotations

import os
import socket

from twisted.internet.defer import Deferred

from sticky.containers.docker import recipe
from sticky.containers.knocking import http_status
from sticky.containers.ports import Ports
from sticky.isticky import Address, TCPAddress
from tests.containers.conformance import Program
from tests.integration.children import LISTENS
from tests.integration.docker_case import COMMANDS, PYTHON, REACTOR, SERVES, RealEngineCase
from tests.integration.dockerd import INTERPRETER, EngineProcess, dockerd

HTTP = (INTERPRETER, "-m", "http.server", "8000", "--directory", "/usr/share")


def answers(address: Address) -> Deferred[int]:
    return http_status(REACTOR, address, "/")


class SurroundingsTests(RealEngineCase):
    async def test_the_environment_is_what_the_contract_lists_and_the_images_own(self) -> None:
        container = self.run_container("env", env={"LEVEL": "1"})
        await self.exit(container)
        found = dict(line.split("=", 1) for line in self.written(self.spec_of(container.id)).splitlines())
        for of_the_engine in ("PATH", "HOME", "HOSTNAME"):
            del found[of_the_engine]
        self.assertEqual(
            found,
            {
                "LEVEL": "1",
                "PORT": "8000",
                "STICKY_PORT": "8000",
                "STICKY_HOST": "0.0.0.0",
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

    async def test_placeholders_are_filled(self) -> None:
        container = self.run_container("echo", "{port} {host} {container_id} {url} {{port}}", port=9000)
        await self.exit(container)
        self.assertEqual(
            self.written(self.spec_of(container.id)), f"9000 0.0.0.0 {container.id} http://echo.localhost {{port}}\n"
        )

    async def test_five_copies_of_a_program_with_a_fixed_port_answer_at_once(self) -> None:
        containers = [self.run_container(*HTTP) for _ in range(5)]
        for container in containers:
            self.assertEqual(await answers(await self.ready(container)), 200)

    async def test_a_published_port_whose_program_does_not_listen_yet_is_not_ready(self) -> None:
        script = f"import time; time.sleep(1.5)\n{SERVES}"
        container = self.run_container(*PYTHON, script)
        await self.ready(container)
        self.assertEqual(self.written(self.spec_of(container.id)), "listening\n")

    async def test_the_probe_goes_through_the_published_port(self) -> None:
        container = self.run_container(*HTTP, ready_path="/")
        self.assertEqual(await answers(await self.ready(container)), 200)

    async def test_user_directory_and_a_root_that_cannot_be_written(self) -> None:
        script = "id -u; pwd; touch /made 2>/dev/null || echo refused; touch /tmp/made && echo kept"
        options = self.options(user="1234", workdir="/usr", read_only=True)
        container = self.run_container("sh", "-c", script, options=options)
        await self.exit(container)
        self.assertEqual(self.written(self.spec_of(container.id)).split(), ["1234", "/usr", "refused", "kept"])


class WaitsForTests(RealEngineCase):
    """What one is told to lack that runs and is not ready."""

    EXPECTED = (
        "nothing of it listens on port 8000 of 0.0.0.0, which is PORT in its environment and {port} in its command"
    )

    async def waits(self, script: str, said: str) -> None:
        container = self.run_container(*PYTHON, script)
        await self.until(lambda: container.waits_for() == f"{self.EXPECTED}; it listens on port {said}")

    async def test_the_port_that_is_published_and_where_it_listens_instead(self) -> None:
        script = SERVES.replace('int(sys.argv[1] if len(sys.argv) > 1 else os.environ["PORT"])', "3000")
        await self.waits(script, "3000: set port = 3000 if it cannot take another")

    async def test_the_right_port_on_its_own_loopback(self) -> None:
        said = "8000 of 127.0.0.1, where it is not reached: let it take the address from STICKY_HOST or {host}"
        await self.waits(LISTENS, said)

    async def test_one_that_listens_nowhere(self) -> None:
        container = self.run_container(*COMMANDS[Program.SILENT])
        await self.until(lambda: container.waits_for())
        self.assertEqual(container.waits_for(), self.EXPECTED)


class LimitTests(RealEngineCase):
    async def test_more_memory_than_allowed_is_told_as_that(self) -> None:
        script = "x = bytearray(1 << 30); print(len(x))"
        container = self.run_container(*PYTHON, script, options=self.options(memory=64 << 20))
        exit = await self.exit(container)
        self.assertEqual((exit.detail, exit.status, exit.signal), ("out_of_memory", None, 9))
        self.assertIn("67108864 bytes", exit.message)

    async def test_processes_are_limited(self) -> None:
        script = (
            "import os, time\nmade = 0\ntry:\n  while made < 100:\n    made += 1\n"
            "    if not os.fork(): time.sleep(60)\nexcept OSError: print('stopped', made < 30)"
        )
        container = self.run_container(*PYTHON, script, options=self.options(pids=30))
        await self.exit(container)
        self.assertEqual(self.written(self.spec_of(container.id)), "stopped True\n")

    async def test_processors_are_limited(self) -> None:
        script = "import time; s = time.time()\nwhile time.time() - s < 1: pass\nprint(time.process_time() < 0.5)"
        container = self.run_container(*PYTHON, script, options=self.options(cpus=0.25))
        await self.exit(container)
        self.assertEqual(self.written(self.spec_of(container.id)), "True\n")


class EndTests(RealEngineCase):
    async def test_nothing_stays_on_the_engine(self) -> None:
        container = self.run_container(*COMMANDS[Program.EXITS])
        await self.exit(container)
        await self.until(lambda: not self.labelled(container.id))

    async def test_what_it_started_goes_with_it_even_out_of_its_session(self) -> None:
        mark = f"7{os.getpid()}31"
        container = self.run_container("sh", "-c", f'setsid setsid sleep {mark} & exec "$@"', "sh", *PYTHON, SERVES)
        await self.ready(container)
        self.assertTrue(_running(f"sleep\0{mark}"))
        container.kill()
        await self.exit(container)
        await self.until(lambda: not _running(f"sleep\0{mark}"))

    async def test_a_flood_of_output_is_bounded_and_its_end_is_told(self) -> None:
        self.backend = self.make_backend(log_limit=1 << 20)
        container = self.run_container("sh", "-c", "yes 0123456789012345678901234567890 | head -c 12000000; echo over")
        exit = await self.exit(container)
        self.assertEqual(exit.last_lines[-1], "over")
        log = self.spec_of(container.id).log
        self.assertLess(log.stat().st_size, 2 << 20)
        self.assertIn("older output was dropped", log.read_text()[:100])

    async def test_somebody_else_removes_it(self) -> None:
        container = self.run_container(*COMMANDS[Program.SERVES])
        await self.ready(container)
        self.engine.ask("DELETE", f"/v1.41/containers/{recipe.name(container.id)}?force=1")
        exit = await self.exit(container)
        self.assertEqual(exit.detail, "killed")

    async def test_an_unknown_image_says_what_to_do(self) -> None:
        container = self.run_container("true", options=self.options(image="nowhere/none:1"))
        exit = await self.exit(container)
        self.assertEqual(exit.detail, "failed")
        self.assertIn("has no image nowhere/none:1: bring it there with docker pull", exit.message)

    async def test_a_mount_whose_source_does_not_exist_is_refused_and_not_made(self) -> None:
        source = self.folder / "missing"
        container = self.run_container("true", options=self.options(mounts=(f"{source}:/x",)))
        exit = await self.exit(container)
        self.assertIn("bind source path does not exist", exit.message)
        self.assertFalse(source.exists())

    async def test_a_port_that_is_taken_costs_only_another_try(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            free = next(other for other in range(20_000, 30_000) if _free(other) and other != port)
            ports = Ports(
                min(port, free),
                max(port, free),
                ephemeral=range(0),
                bindable=lambda each: each in (port, free),
                start=port,
            )
            self.backend = self.make_backend(ports=ports)
            container = self.run_container(*COMMANDS[Program.SERVES])
            self.assertEqual(await self.ready(container), TCPAddress("127.0.0.1", free))

    async def test_what_an_earlier_daemon_left_is_removed_and_a_strangers_stays(self) -> None:
        earlier, self.realm = self.make_backend(), "another-state-dir"
        stranger = self.make_backend()
        specs = [self.make_spec(*COMMANDS[Program.SERVES]) for _ in range(2)]
        for backend, spec in zip((earlier, stranger), specs, strict=True):
            left = backend.spawn(spec, self.recorder)
            await self.ready(left)
            await backend.stop()
        self.realm = type(self).realm
        backend = self.make_backend()
        self.assertEqual(set(backend.orphans(())), {specs[0].container})
        await self.until(lambda: not self.labelled(specs[0].container))
        self.assertTrue(self.labelled(specs[1].container))
        await backend.stop()
        self.realm = "another-state-dir"
        cleaner = self.make_backend()
        cleaner.orphans(())
        await self.until(lambda: not self.labelled(specs[1].container))
        await cleaner.stop()


class EngineGoneTests(RealEngineCase):
    """With an engine of its own, to be stopped."""

    def make_engine(self) -> EngineProcess:
        engine = dockerd()
        self.addCleanup(engine.remove)
        engine.start()
        engine.import_empty_image()
        return engine

    async def tearDown(self) -> None:  # type: ignore[override]  # trial awaits it, after the cleanups
        self.spawned = []
        await super().tearDown()

    async def test_containers_that_end_with_it_are_heard_of_when_it_is_back_and_new_ones_run(self) -> None:
        for kill in (False, True):
            container = self.run_container(*COMMANDS[Program.SERVES])
            await self.ready(container)
            self.engine.stop(kill=kill)
            early = self.run_container(*COMMANDS[Program.SERVES])
            exit = await self.exit(early)
            self.assertEqual(exit.detail, "failed")
            self.assertIn("cannot be reached", exit.message)
            self.engine.start()
            await self.exit(container)
            again = self.run_container(*COMMANDS[Program.SERVES])
            await self.ready(again)
            again.kill()
            await self.exit(again)
            await self.until(lambda: not self.on_the_engine())


def _running(command: str) -> bool:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline") as line:
                if line.read().startswith(command):
                    return True
        except OSError:
            continue
    return False


def _free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
            return True
        except OSError:
            return False
