"""A daemon is killed with -9 and the next one takes its containers over, or clears away what is left of them."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any
from unittest import SkipTest, mock

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from sticky.containers import adopted
from sticky.containers.census import look
from sticky.containers.ownership import carriers, orphans
from sticky.containers.ports import Ports
from sticky.containers.process import ProcessBackend
from sticky.core.values import ContainerId
from sticky.errors import IllegalEvent
from sticky.isticky import ContainerSpec, TCPAddress
from tests.containers.conformance import AdoptionConformance, LeftBehind, Program, Recorder
from tests.integration.children import LISTENS, PYTHON, STUBBORN, alive, written
from tests.integration.earlier_daemon import EarlierDaemon
from tests.integration.isolation_case import possible
from tests.integration.process_case import COMMANDS, ENVIRON, HIDES, REACTOR, ProcessTestCase, forget_cgroups


class AdoptionCase(ProcessTestCase):
    """A realm of its own, earlier daemons in it, and nobody of it left at the end."""

    backend: ProcessBackend

    def setUp(self) -> None:
        self.realm = f"test-{os.urandom(8).hex()}"
        self.addCleanup(self.clean, self.realm)
        super().setUp()

    def make_backend(self, **settings: Any) -> ProcessBackend:
        settings.setdefault("realm", self.realm)
        return ProcessBackend(REACTOR, environ=ENVIRON, die_with_daemon=False, **settings)

    def clean(self, realm: str) -> None:
        for pids in orphans(realm, []).values():
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
        forget_cgroups(realm)

    def earlier(self, realm: str | None = None, **settings: Any) -> EarlierDaemon:
        daemon = EarlierDaemon(self.realm if realm is None else realm, **settings)
        self.addCleanup(daemon.kill)
        return daemon

    async def started(self, daemon: EarlierDaemon, *specs: ContainerSpec, ready: bool = True) -> list[LeftBehind]:
        for spec in specs:
            daemon.order(spec)
        await self.until(lambda: all(daemon.said("place", spec) for spec in specs))
        if ready:
            await self.until(lambda: all(daemon.address(spec) for spec in specs))
        return [LeftBehind(spec, daemon.place(spec), daemon.address(spec)) for spec in specs]

    async def left(self, *command: str, ready: bool = True, **changes: Any) -> LeftBehind:
        """A container whose daemon was killed."""
        daemon = self.earlier()
        (found,) = await self.started(daemon, self.make_spec(*command, **changes), ready=ready)
        daemon.kill()
        return found

    def take(self, left: LeftBehind, recorder: Recorder | None = None) -> Any:
        return self.backend.adopt(left.spec, left.place, left.address, recorder or self.recorder)

    def main(self, left: LeftBehind) -> int:
        pid = left.place["pid"]
        assert isinstance(pid, int)
        return pid

    def forged(self, left: LeftBehind, **changes: object) -> LeftBehind:
        return attrs.evolve(left, place={**left.place, **changes})


class ProcessAdoptionConformanceTests(AdoptionCase, AdoptionConformance):
    backend: ProcessBackend
    status_is_lost = "the system tells it to the parent alone"
    OPTIONS: Mapping[str, object] = {}
    may_hide = (
        "without a cgroup, which not every machine has, processes are found by parents, session, group and environment"
    )
    family = 4

    def spec(self, program: Program) -> ContainerSpec:
        possible(**self.OPTIONS)
        hides = (HIDES,) if program is Program.FAMILY and not self.may_hide else ()
        return self.make_spec(*COMMANDS[program], *hides, options=self.OPTIONS)

    async def turn(self) -> None:
        waited: Deferred[None] = deferLater(REACTOR, 0.005, lambda: None)
        await waited

    async def left_behind(self, program: Program, *, ready: bool) -> LeftBehind:
        daemon = self.earlier()
        (found,) = await self.started(daemon, self.spec(program), ready=ready)
        daemon.kill()
        return found

    async def end_unseen(self, left: LeftBehind) -> None:
        os.killpg(self.main(left), signal.SIGTERM)  # the group: in a pid namespace the program is not the main process
        await self.until(lambda: not alive(self.main(left)))

    async def runs(self, left: LeftBehind) -> bool:
        return bool(carriers(left.spec.container, self.realm))


class ConfinedAdoptionConformanceTests(ProcessAdoptionConformanceTests):
    """With everything that can be asked for at once."""

    OPTIONS = {"network": True, "read_only": True, "memory": 256 << 20, "pids": 200, "descendants": "pid_namespace"}
    may_hide = ""
    family = 5


class IdentityTests(AdoptionCase):
    """Who is the same process, and who is not."""

    async def refused(self, left: LeftBehind) -> None:
        self.assertIsNone(self.take(left))
        self.assertEqual(self.recorder.facts, [])
        await self.until(lambda: not left.spec.scratch.exists())

    async def test_a_recycled_pid_is_not_adopted(self) -> None:
        left = await self.left(*PYTHON, LISTENS)
        started = left.place["started"]
        assert isinstance(started, int)
        await self.refused(self.forged(left, started=started + 1))
        await self.until(lambda: not alive(self.main(left)))  # it carries the mark all the same

    async def test_a_strangers_process_is_neither_adopted_nor_harmed(self) -> None:
        left = await self.left(*PYTHON, LISTENS)
        stranger = self.run_container("sleep", "600")
        assert stranger.pid is not None
        process = look(stranger.pid)
        assert process is not None
        await self.refused(self.forged(left, pid=stranger.pid, started=process.started))
        self.assertTrue(alive(stranger.pid))

    async def test_another_boot_means_another_process(self) -> None:
        left = await self.left(*PYTHON, LISTENS)
        await self.refused(self.forged(left, boot="6f1b9a5e-0000-4000-8000-000000000000"))

    async def test_a_damaged_place_is_as_good_as_none(self) -> None:
        for damage in ({"pid": "1"}, {"pid": -1}, {"started": True}, {"candidates": [["tcp"]]}, {"boot": None}):
            left = await self.left(*PYTHON, LISTENS)
            await self.refused(self.forged(left, **damage))
            await self.until(lambda left=left: not alive(self.main(left)))  # type: ignore[misc]

    async def test_a_zombie_is_not_adopted_and_its_session_is_ended(self) -> None:
        # Its daemon lives, and does not reap: only so a zombie stays for certain.
        daemon = self.earlier()
        spec = self.make_spec("sh", "-c", "env - sleep 600 & echo $!; exec sleep 600")
        (left,) = await self.started(daemon, spec, ready=False)
        await self.until(lambda: written(spec.log))
        helper = int(written(spec.log))
        await self.until(lambda: look(helper) is not None)
        daemon.process.send_signal(signal.SIGSTOP)
        os.kill(self.main(left), signal.SIGKILL)
        await self.until(lambda: not alive(self.main(left)))
        zombie = look(self.main(left))
        self.assertEqual(zombie and zombie.state, "Z")
        self.assertTrue(alive(helper))  # without any mark: by its session alone
        await self.refused(left)
        await self.until(lambda: not alive(helper))

    async def test_a_program_that_wrote_over_its_environment_is_known_by_the_rest(self) -> None:
        left = await self.left("env", "-", "PORT=0", *PYTHON[:4], LISTENS, "{port}")
        self.assertEqual(carriers(left.spec.container, self.realm), set())
        container = self.take(left)
        self.spawned.append(container)
        container.terminate()
        await self.exit(container)
        self.assertFalse(alive(self.main(left)))

    async def test_one_of_another_realm_is_not_adopted(self) -> None:
        left = await self.left(*PYTHON, LISTENS)
        other = self.make_backend(realm="another")
        self.assertIsNone(other.adopt(left.spec, left.place, left.address, self.recorder))
        self.assertTrue(alive(self.main(left)))
        await other.stop()

    async def test_an_id_that_runs_already_is_our_own_mistake(self) -> None:
        left = await self.left(*PYTHON, LISTENS)
        self.spawned.append(self.take(left))
        self.assertRaises(IllegalEvent, self.take, left)


class AdoptedTests(AdoptionCase):
    """What an adopted container does."""

    async def taken(self, left: LeftBehind) -> Any:
        container = self.take(left)
        self.assertIsNotNone(container)
        self.spawned.append(container)
        return container

    async def test_its_exit_is_heard_of_within_milliseconds_and_without_a_status(self) -> None:
        container = await self.taken(await self.left(*PYTHON, LISTENS))
        before = REACTOR.seconds()
        os.kill(container.pid, signal.SIGTERM)
        exit = await self.exit(container)
        self.assertLess(REACTOR.seconds() - before, 1.0)  # a loaded machine; the polls of the fallback take 50 ms
        self.assertEqual((exit.detail, exit.status, exit.signal), ("exited", None, None))
        self.assertIn("not known", exit.message)
        self.assertEqual(exit.last_lines, ("listening",))
        await self.until(lambda: not container.spec.scratch.exists())

    async def test_without_pidfds_its_exit_is_heard_of_all_the_same(self) -> None:
        left = await self.left(*PYTHON, STUBBORN)
        find: Callable[..., Any] = adopted.find

        def old_kernel(*arguments: Any) -> Any:
            return find(*arguments, mock.Mock(side_effect=OSError(38, "Function not implemented")))

        self.patch(adopted, "find", old_kernel)
        container = await self.taken(left)
        container.terminate()
        container.kill()
        exit = await self.exit(container)
        self.assertEqual((exit.detail, exit.status), ("exited", None))

    async def test_kill_reaches_what_left_its_session(self) -> None:
        script = 'setsid sh -c \'trap "" TERM; echo $$; while :; do sleep 600; done\' & exec "$@"'
        left = await self.left("sh", "-c", script, "sh", *PYTHON, LISTENS)
        await self.until(lambda: len(written(left.spec.log).split()) >= 2)
        stray = next(int(line) for line in written(left.spec.log).split() if line.isdigit())
        container = await self.taken(left)
        self.assertTrue(alive(stray))
        container.kill()
        await self.exit(container)
        self.assertFalse(alive(stray))

    async def test_a_fixed_port_is_still_its_own(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            fixed = free.getsockname()[1]
        left = await self.left(*PYTHON, LISTENS, str(fixed), port=fixed)
        first = await self.taken(left)
        exit = await self.exit(self.run_container(*PYTHON, LISTENS, str(fixed), port=fixed))
        self.assertEqual(exit.detail, "failed")
        self.assertIn(first.id, exit.message)

    async def test_its_port_is_not_given_to_another_before_it_is_gone(self) -> None:
        left = await self.left("sleep", "600", ready=False)
        port = left.place["port"]
        assert isinstance(port, int)
        await self.backend.stop()
        self.backend = self.make_backend(ports=Ports(port, port, ephemeral=range(0), bindable=lambda _: True))
        container = await self.taken(left)
        exit = await self.exit(self.run_container("sleep", "600"))
        self.assertIn("no free port", exit.message)
        container.kill()
        await self.exit(container)
        self.assertEqual(self.run_container("sleep", "600").port, port)

    async def test_a_report_that_nobody_heard_is_found_in_its_folder(self) -> None:
        game = self.folder / "game.py"
        game.write_text(
            "import os, socket, time\nimport sticky\napp = sticky.App('a')\n@app.server()\nclass G:\n"
            "    @sticky.enter()\n    def start(self):\n"
            "        self.s = socket.create_server(('127.0.0.1', int(os.environ['PORT'])))\n"
            "        print('listening', flush=True)\n"
            "        while not os.path.exists('go'): time.sleep(0.005)\n"
        )
        left = await self.left(
            sys.executable,
            "-m",
            "sticky.containers.runtime",
            "serve",
            str(game),
            ready=False,
            reports_ready=True,
        )
        await self.until(lambda: "listening" in written(left.spec.log))
        container = await self.taken(left)
        other = self.run_container(*COMMANDS[Program.SERVES])
        await self.ready(other)
        self.assertEqual(self.recorder.heard(container), [])
        (self.folder / "go").touch()
        address = await self.ready(container)
        self.assertEqual(address, TCPAddress("127.0.0.1", left.place["port"]))  # type: ignore[arg-type]

    async def test_fifty_are_taken_over_and_ended(self) -> None:
        daemon = self.earlier()
        script = "sh", "-c", "echo up; exec sleep 600"
        specs = [self.make_spec(*script) for _ in range(50)]
        lefts = await self.started(daemon, *specs, ready=False)
        await self.until(lambda: all(written(spec.log) for spec in specs))
        daemon.kill()
        before = len(os.listdir("/proc/self/fd"))
        containers = [await self.taken(left) for left in lefts]
        self.assertEqual(len(os.listdir("/proc/self/fd")), before + 50)
        for container in containers[:25]:
            container.terminate()
        for container in containers[25:]:
            os.kill(container.pid, signal.SIGKILL)
        for container in containers:
            await self.exit(container)
        self.assertEqual([self.recorder.heard(container) for container in containers], [["exited"]] * 50)
        await self.until(lambda: len(os.listdir("/proc/self/fd")) <= before)  # of an earlier test's, some go meanwhile

    async def test_a_backend_that_stops_leaves_it_running_and_nothing_behind(self) -> None:
        left = await self.left(*PYTHON, LISTENS, ready=False)
        before = len(os.listdir("/proc/self/fd"))
        self.take(left)
        await self.backend.stop()
        self.assertEqual(len(os.listdir("/proc/self/fd")), before)
        self.assertTrue(alive(self.main(left)))
        self.backend = self.make_backend()
        self.spawned.append(self.take(left))


class OrphanTests(AdoptionCase):
    """What nobody knows."""

    async def lines(self, spec: ContainerSpec, count: int) -> list[int]:
        await self.until(lambda: len(written(spec.log).split()) >= count)
        return [int(line) for line in written(spec.log).split()]

    async def dead(self, pids: Collection[int]) -> None:
        await self.until(lambda: not any(alive(pid) for pid in pids))

    async def test_all_of_it_is_killed_wherever_it_hid_and_the_known_go_on(self) -> None:
        daemon = self.earlier()
        hides = "setsid sh -c 'echo $$; exec sleep 600' & (sleep 600 & echo $!); env - sleep 600 & echo $! $$; exec sleep 600"
        unknown, known, ours = (self.make_spec("sh", "-c", hides) for _ in range(3))
        _, _, left = await self.started(daemon, unknown, known, ours, ready=False)
        pids, kept, adopted_pids = [await self.lines(spec, 4) for spec in (unknown, known, ours)]
        daemon.kill()
        self.spawned.append(self.take(left))
        running = self.run_container("sleep", "600")
        self.assertEqual(self.backend.orphans([known.container]), {unknown.container})
        await self.dead(pids)
        self.assertTrue(all(alive(pid) for pid in (*kept, *adopted_pids, running.pid or 0)))
        self.assertEqual(self.backend.orphans([known.container]), frozenset())
        self.assertEqual(self.backend.orphans([]), {known.container})
        await self.dead(kept)

    async def test_one_whose_main_process_is_gone_is_found_by_its_marks(self) -> None:
        daemon = self.earlier()
        spec = self.make_spec("sh", "-c", "setsid sh -c 'echo $$; exec sleep 600' & echo $!; exec sleep 600")
        (left,) = await self.started(daemon, spec, ready=False)
        pids = await self.lines(spec, 2)
        daemon.kill()
        os.kill(self.main(left), signal.SIGKILL)
        await self.dead([self.main(left)])
        self.assertEqual(self.backend.orphans([]), {spec.container})
        await self.dead(pids)

    async def test_two_daemons_never_touch_each_others(self) -> None:
        neighbour = f"{self.realm}-neighbour"
        self.addCleanup(self.clean, neighbour)
        mine, theirs = self.earlier(), self.earlier(neighbour)
        spec, other = self.make_spec("sleep", "600"), self.make_spec("sleep", "600")
        (left,) = await self.started(mine, spec, ready=False)
        (foreign,) = await self.started(theirs, other, ready=False)
        mine.kill()
        self.assertEqual(self.backend.orphans([]), {spec.container})
        await self.dead([self.main(left)])
        self.assertIsNone(self.take(attrs.evolve(foreign, place={})))
        self.assertTrue(alive(self.main(foreign)))
        theirs.kill()
        self.assertEqual(self.backend.orphans([]), frozenset())
        self.assertTrue(alive(self.main(foreign)))

    async def test_without_a_realm_nobody_is_an_orphan(self) -> None:
        left = await self.left("sleep", "600", ready=False)
        self.assertEqual(self.make_backend(realm="").orphans([]), frozenset())
        self.assertTrue(alive(self.main(left)))

    async def test_containers_that_die_with_their_daemon_leave_nothing(self) -> None:
        daemon = self.earlier(mortal=True)
        (left,) = await self.started(daemon, self.make_spec(*PYTHON, STUBBORN))
        daemon.kill()
        await self.dead([self.main(left)])
        self.assertIsNone(self.take(left))
        self.assertEqual(self.backend.orphans([ContainerId("ct-0")]), frozenset())

    async def test_one_that_changed_its_user_survives_its_daemon_and_is_reaped_by_the_next(self) -> None:
        # prctl(2): the kernel drops the wish to die with the parent at such a change.
        if os.getuid() != 0 or shutil.which("setpriv") is None:
            raise SkipTest("needs root and setpriv")
        daemon = self.earlier(mortal=True)
        change = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "sh", "-c")
        spec = self.make_spec(*change, "echo $$; exec sleep 600")
        await self.started(daemon, spec, ready=False)
        (pid,) = await self.lines(spec, 1)
        daemon.kill()
        self.assertTrue(alive(pid))
        self.assertEqual(self.backend.orphans([]), {spec.container})
        await self.dead([pid])


class RealmTests(AdoptionCase):
    async def test_a_container_is_told_its_realm_and_nothing_else_is_new(self) -> None:
        container = self.run_container("sh", "-c", "echo $STICKY_STATE; env | grep -c STICKY_READY")
        self.assertEqual((await self.exit(container)).status, 1)  # grep found none
        self.assertEqual(await self.output(container), [self.realm, "0"])
        self.assertNotIn(self.realm, Path("/proc/self/environ").read_text())
