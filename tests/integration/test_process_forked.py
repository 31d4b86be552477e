"""Forked containers on the real backend: the common promises, and what becomes of them when their fork server ends."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import SkipTest

import attr

from sticky.containers import forked, snapshots
from sticky.containers.census import STOPPED
from sticky.containers.child import Child
from sticky.containers.process import ProcessBackend
from sticky.core.values import ContainerId, DeploymentId, ServerName
from sticky.isticky import ContainerSpec
from tests.containers.conformance import BackendConformance, Program
from tests.integration.children import GO, PYTHON, alive, written
from tests.integration.isolation_case import IsolationCase, possible, system_python
from tests.integration.process_case import COMMANDS, REACTOR, ProcessTestCase
from tests.integration.running_daemon import until

#: The text of each, and its arguments.
PROGRAMS = {
    **{one.value: words[len(PYTHON) :] for one, words in COMMANDS.items() if words[: len(PYTHON)] == PYTHON},
    Program.SILENT.value: ("import time\ntime.sleep(600)",),
    Program.EXITS.value: ("import os\nos.write(1, b'last words\\n')\nos._exit(3)",),
}

#: Prepares nothing, and forks what PROGRAM says, or runs the text in SCRIPT.
ZYGOTE = f"""
import os, signal, sys
from sticky.forking.serving import Control
programs = {PROGRAMS!r}
def begin(given):
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if "SCRIPT" in os.environ:
        text = os.environ["SCRIPT"]
    else:
        text, *arguments = programs[os.environ["PROGRAM"]]
        sys.argv = ["-c", *(one.replace({GO!r}, os.environ.get("GO", "")) for one in arguments)]
    try:
        exec(text, {{}})
    except SystemExit as end:
        os._exit(end.code)
    os._exit(0)
Control().serve(lambda: None, begin)
"""
#: Says of a process that is no child of its own that it has forked it.
LIAR = """
import json, os, socket, sys
control = socket.socket(fileno=os.dup(0))
control.send(b'{"warm": true}')
while control.recv(1 << 17):
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    socket.send_fds(control, [json.dumps({"pid": int(sys.argv[1])}).encode()], [theirs.fileno()])
    kept = ours
"""
SNAPSHOT = (sys.executable, "-c", ZYGOTE)
ECHO = ServerName("echo")


class ForkedCase(ProcessTestCase):
    """A backend whose Server "echo" has a fork server that is warm."""

    backend: ProcessBackend

    async def warmed(self, **changes: Any) -> int:
        """Its pid."""
        self.backend.warm(self.forked_spec(**changes))
        return await self.warm()

    async def warm(self, but: int | None = None) -> int:
        def pid() -> int | None:
            found = self.backend.snapshot(ECHO)
            return found.pid if found is not None and found.state == "warm" and found.pid != but else None

        await self.until(pid)
        found = pid()
        assert found is not None
        return found

    def forked_spec(self, program: Program | str = Program.SERVES, **changes: Any) -> ContainerSpec:
        """One to be forked: `program`, or the text of one."""
        env = {"PROGRAM": program.value} if isinstance(program, Program) else {"SCRIPT": program}
        changes = {"env": env, "snapshot": SNAPSHOT, **changes}
        return self.make_spec(
            "no-such-program-anywhere", container=ContainerId(f"ct-{secrets.token_urlsafe(16)}"), **changes
        )

    def fork(self, program: Program | str = Program.SERVES, **changes: Any) -> Child:
        container = self.backend.spawn(self.forked_spec(program, **changes), self.recorder)
        self.spawned.append(container)
        return container

    def parent(self, container: Child) -> int:
        return int(Path(f"/proc/{container.pid}/stat").read_text().rpartition(") ")[2].split()[1])


class ForkedConformanceTests(BackendConformance, ForkedCase):
    backend: ProcessBackend

    async def setUp(self) -> None:  # type: ignore[override]  # trial awaits it
        super().setUp()
        await self.warmed()

    def spec(self, program: Program) -> ContainerSpec:
        if program is Program.MISSING:
            return self.make_spec(*COMMANDS[program])
        spec = self.forked_spec(program)
        return attr.evolve(spec, env={**spec.env, "GO": str(self.go(spec))})

    def go(self, spec: ContainerSpec) -> Path:
        return self.folder / f"go-{spec.container}"

    def go_on(self, spec: ContainerSpec) -> None:
        self.go(spec).touch()

    def alive(self, spec: ContainerSpec) -> int:
        mark, found = f"STICKY_CONTAINER_ID={spec.container}".encode(), 0
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):  # it has just gone
                found += alive(int(name)) and mark in Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
        return found

    async def until(self, condition: Callable[[], object]) -> None:
        await ProcessTestCase.until(self, condition)


class LifeTests(ForkedCase):
    async def test_it_is_forked_into_a_session_of_its_own_with_its_own_marks_and_nothing_of_the_zygotes(self) -> None:
        pid = await self.warmed()
        script = (
            "import os\nprint(os.getsid(0) == os.getpgid(0) == os.getpid())\nprint(os.getcwd())\n"
            "print(sorted(os.listdir('/proc/self/fd'), key=int))\nprint(os.readlink('/proc/self/fd/0'), flush=True)\n"
            "import time\ntime.sleep(600)"
        )
        container = self.fork(script)
        self.assertEqual(self.parent(container), pid)
        alone, where, descriptors, null = (await self.lines(container, 4))[:4]
        self.assertEqual((alone, where, null), ("True", str(self.folder), "/dev/null"))
        # 0 to 2, the pipe that ties it to the daemon, and the listing itself
        self.assertEqual(len(descriptors.split(",")), 5, descriptors)
        marks = Path(f"/proc/{container.pid}/environ").read_bytes().split(b"\0")
        self.assertIn(f"STICKY_CONTAINER_ID={container.id}".encode(), marks)

    async def lines(self, container: Child, count: int) -> list[str]:
        await self.until(lambda: len(written(container.spec.log).splitlines()) >= count)
        return written(container.spec.log).splitlines()

    async def test_the_environment_is_what_a_launched_one_has(self) -> None:
        script = (
            "import os\nfor item in os.environ.items(): print(repr('='.join(item)))\nprint(flush=True)\nos._exit(0)"
        )
        env = {"LEVEL": "1", "SCRIPT": script}
        await self.warmed(env=env)
        container = self.fork(script, env=env)
        await self.exit(container)
        launched = self.run_container(*PYTHON, script, env=env)
        await self.exit(launched)

        def told(child: Child) -> set[str]:
            mine = (f"={child.port}'", f"={child.id}'")
            lines = written(child.spec.log).splitlines()
            return {line.partition("=")[0] if line.endswith(mine) else line for line in lines}

        self.assertEqual(told(container), told(launched))
        self.assertIn("'PORT", told(container))

    async def test_the_zygote_knows_no_port_and_no_container(self) -> None:
        pid = await self.warmed()
        names = {line.partition(b"=")[0] for line in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")}
        self.assertFalse(names & {b"PORT", b"STICKY_PORT", b"MODAL_TASK_ID", b"STICKY_READY_FD"})

    async def test_the_death_of_the_zygote_touches_no_container_and_another_one_comes(self) -> None:
        pid = await self.warmed()
        container = self.fork()
        await self.ready(container)
        os.kill(pid, signal.SIGKILL)
        again = await self.warm(but=pid)
        self.assertTrue(container.pid and alive(container.pid))
        other = self.fork()
        self.assertEqual(self.parent(other), again)
        await self.ready(other)
        container.terminate()
        exit = await self.exit(container)
        self.assertEqual((exit.detail, exit.status, exit.signal), ("exited", None, None))  # nobody could tell

    async def test_a_fork_that_is_killed_while_it_waits_is_replaced_and_nobody_is_told_of_it(self) -> None:
        zygote = await self.warmed()
        for heard in (False, True):
            (waiting,) = self.children(zygote)
            os.kill(waiting, signal.SIGKILL)
            if heard:
                await self.until(lambda waiting=waiting: self.children(zygote) not in ([], [waiting]))  # type: ignore[misc]
            else:
                until("it has ended", lambda waiting=waiting: not alive(waiting))  # type: ignore[misc]
            container = self.fork()
            self.assertEqual(self.parent(container), zygote)
            self.assertNotEqual(container.pid, waiting)
            await self.ready(container)
            container.kill()
            await self.exit(container)
            await self.until(lambda: len(self.children(zygote)) == 1)

    async def test_who_comes_before_the_next_one_is_made_waits_for_it(self) -> None:
        zygote = await self.warmed()
        containers = [self.fork() for _ in range(3)]
        self.assertEqual({self.parent(container) for container in containers}, {zygote})
        for container in containers:
            await self.ready(container)

    async def test_one_that_was_stopped_is_replaced_and_nobody_waits_for_it(self) -> None:
        zygote = await self.warmed()
        self.patch(snapshots, "ANSWER_TIME", 60.0)  # seconds that would be felt
        first = self.fork()
        os.kill(zygote, signal.SIGSTOP)
        await self.until(lambda: STOPPED in Path(f"/proc/{zygote}/stat").read_text().rpartition(") ")[2][:1])
        scratch = self.fork()  # the one that was forked ahead is taken
        self.assertIn("command not found", (await self.exit(scratch)).message)
        again = await self.warm(but=zygote)
        self.assertEqual(self.parent(self.fork()), again)
        await self.ready(first)

    async def test_one_that_calls_a_stranger_its_fork_is_not_believed(self) -> None:
        stranger = subprocess.Popen(["sleep", "600"])
        self.addCleanup(stranger.wait)
        self.addCleanup(stranger.kill)
        placed: list[int] = []
        self.patch(forked, "_put_into", lambda entrances, pid: placed.append(pid))
        for pid in (stranger.pid, os.getpid(), 0, -1, 1, 1 << 40):
            spec = self.forked_spec(snapshot=(sys.executable, "-c", LIAR, str(pid)), deployment=DeploymentId(f"d{pid}"))
            self.backend.warm(spec)
            await self.warm()
            container = self.backend.spawn(spec, self.recorder)
            self.spawned.append(container)
            self.assertNotEqual(container.pid, pid)
            self.assertIn("command not found", (await self.exit(container)).message)
        self.assertEqual((placed, stranger.poll()), ([], None))

    async def test_one_that_says_what_nobody_asked_for_is_ended(self) -> None:
        junk = [
            "junk",
            "7",
            "[1]",
            "[" * 50_000,
            '{"warm": true}',
            '{"exited": 1, "status": 0, "signal": null}',
            '{"pid": 1}',
        ]
        for number, said in enumerate(junk):
            program = (
                "import os, socket, sys\ncontrol = socket.socket(fileno=os.dup(0))\n"
                "control.send(b'{\"warm\": true}')\nwhile True: control.send(sys.argv[1].encode())\n"
            )
            spec = self.forked_spec(
                snapshot=(sys.executable, "-c", program, said), deployment=DeploymentId(f"d{number}")
            )
            self.backend.warm(spec)
            await self.until(lambda: (found := self.backend.snapshot(ECHO)) and found.state == "dead")
            found = self.backend.snapshot(ECHO)
            assert found is not None
            self.assertIn("it said what makes no sense", found.problem, said[:50])

    async def test_one_that_waits_ends_with_the_zygote(self) -> None:
        zygote = await self.warmed()
        (waiting,) = self.children(zygote)
        os.kill(zygote, signal.SIGKILL)
        await self.until(lambda: not alive(waiting))

    def children(self, pid: int) -> list[int]:
        return [int(name) for name in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    async def test_how_it_ended_is_told_by_the_zygote(self) -> None:
        await self.warmed()
        for script, expected in (
            ("import os; os._exit(7)", (7, None)),
            ("import os; os.kill(os.getpid(), 11)", (None, 11)),
        ):
            exit = await self.exit(self.fork(script))
            self.assertEqual((exit.status, exit.signal), expected)

    async def test_a_new_deployment_has_a_zygote_of_its_own_and_old_containers_stay(self) -> None:
        old = await self.warmed()
        container = self.fork()
        await self.ready(container)
        self.backend.warm(self.forked_spec(deployment=DeploymentId("d2")))
        new = await self.warm(but=old)
        await self.until(lambda: not alive(old))
        self.assertTrue(container.pid and alive(container.pid))
        self.assertEqual(self.parent(self.fork(deployment=DeploymentId("d2"))), new)
        late = (
            self.fork()
        )  # one of the earlier deployment that was decided before: from scratch, and the new zygote stays
        self.assertIn("command not found", (await self.exit(late)).message)
        self.assertEqual(await self.warm(), new)

    async def test_a_server_that_is_not_wanted_any_more_has_none(self) -> None:
        pid = await self.warmed()
        self.backend.cool(ECHO)
        await self.until(lambda: not alive(pid))
        self.assertIsNone(self.backend.snapshot(ECHO))

    async def test_its_memory_can_be_asked_for(self) -> None:
        await self.warmed()
        found = self.backend.snapshot(ECHO)
        assert found is not None and found.memory is not None
        self.assertGreater(found.memory, 4 << 20)
        self.assertEqual(found.problem, "")

    async def test_what_cannot_be_forked_says_so_and_starts_from_scratch(self) -> None:
        busy = f"import threading, time\nthreading.Thread(target=time.sleep, args=(600,), name='busy', daemon=True).start()\n{ZYGOTE}"
        spec = self.forked_spec(snapshot=(sys.executable, "-c", busy))
        self.backend.warm(spec)
        await self.until(lambda: (found := self.backend.snapshot(ECHO)) and found.state == "dead")
        found = self.backend.snapshot(ECHO)
        assert found is not None
        self.assertEqual(found.problem, "what ran before the fork has started threads: busy")
        container = self.run_container(*COMMANDS[Program.SERVES], snapshot=spec.snapshot)
        await self.ready(container)
        self.assertEqual(self.parent(container), os.getpid())

    async def test_a_zygote_that_cannot_become_its_program_says_why(self) -> None:
        for snapshot, expected in (
            (("no-such-program-anywhere",), "command not found: no-such-program-anywhere"),
            ((sys.executable, "-c", "raise SystemExit(3)"), "it has ended before it was warm"),
        ):
            self.backend.warm(self.forked_spec(snapshot=snapshot, deployment=DeploymentId(expected)))
            await self.until(lambda expected=expected: self.problem() == expected)  # type: ignore[misc]

    def problem(self) -> str:
        found = self.backend.snapshot(ECHO)
        return "" if found is None else found.problem

    async def test_a_folder_that_is_gone_is_said_as_of_a_launched_one(self) -> None:
        await self.warmed()
        exit = await self.exit(self.fork(directory=self.folder / "nowhere", reports_ready=True))
        self.assertEqual(exit.detail, "failed")
        self.assertIn("cannot use the working directory", exit.message)

    async def test_no_descriptor_is_left_after_fifty(self) -> None:
        await self.warmed()
        await self.exit(self.fork(Program.EXITS, reports_ready=True))
        before = len(os.listdir("/proc/self/fd"))
        containers = [self.fork(Program.EXITS, reports_ready=at % 2 == 0) for at in range(50)]
        for container in containers:
            self.assertEqual((await self.exit(container)).status, 3)
        await self.until(lambda: len(os.listdir("/proc/self/fd")) <= before)  # threads close some after the end is told


class ConfinedTests(IsolationCase, ForkedCase):
    async def test_it_is_in_its_cgroup_and_has_its_limits(self) -> None:
        options: dict[str, object] = {"memory": 64 << 20, "pids": 50, "rlimits": {"nofile": 123}}
        possible(**options)
        await self.warmed(options=options)
        container = self.fork(
            "import os, resource\nprint(resource.getrlimit(resource.RLIMIT_NOFILE), flush=True)\nbytearray(512 << 20)\nos._exit(0)",
            options=options,
        )
        exit = await self.exit(container)
        self.assertEqual(exit.detail, "out_of_memory")
        self.assertEqual((await self.output(container))[0], "(123, 123)")

    async def test_a_zygote_of_another_user_forks_that_user_into_its_cgroup(self) -> None:
        options: dict[str, object] = {"user": "nobody", "pids": 50, "rlimits": {"nofile": 123}}
        possible(**options)
        root = Path(__file__).parents[2]
        if any(folder.stat().st_mode & 0o005 != 0o005 for folder in [root, *root.parents]):
            raise SkipTest("another user cannot read this checkout")
        path = [str(root), str(Path(attr.__file__).parents[1])]
        snapshot = (system_python(), "-c", f"import sys; sys.path[:0] = {path!r}\n{ZYGOTE}")
        self.folder.chmod(0o755)
        pid = await self.warmed(options=options, snapshot=snapshot)
        self.assertNotEqual(os.stat(f"/proc/{pid}").st_uid, 0)
        container = self.fork(
            "import os, time\ninside = 'sticky/' in open('/proc/self/cgroup').read()\n"
            "print(os.getuid(), os.environ['USER'], inside, flush=True)\ntime.sleep(600)",
            options=options,
            snapshot=snapshot,
        )
        self.assertEqual((await self.output(container))[0], f"{os.stat(f'/proc/{pid}').st_uid} nobody True")


class OutliveTests(ForkedCase):
    def make_backend(self, **settings: Any) -> ProcessBackend:
        return super().make_backend(die_with_daemon=False, realm="r" * 16)

    async def test_it_is_taken_over_by_the_next_daemon_and_no_orphan_while_it_is_known(self) -> None:
        zygote = await self.warmed()
        container = self.fork()
        address = await self.ready(container)
        place = dict(container.place)
        await self.backend.stop()
        await self.until(lambda: not alive(zygote))
        self.spawned.remove(container)
        self.backend = self.make_backend()
        taken = self.backend.adopt(container.spec, place, address, self.recorder)
        assert taken is not None
        self.spawned.append(taken)
        self.assertEqual(self.backend.orphans([container.id]), frozenset())
        self.assertTrue(container.pid and alive(container.pid))
        self.recorder.facts.clear()
        taken.kill()
        await self.exit(taken)

    async def test_one_that_nobody_knows_is_found_and_a_zygote_is_not(self) -> None:
        zygote = await self.warmed()
        container = self.fork(Program.SILENT)
        other = type(self.backend)(REACTOR, realm="r" * 16, die_with_daemon=False)
        self.assertEqual(self.backend.orphans([]), frozenset())
        self.assertTrue(alive(zygote))
        await self.until(lambda: container.id in other.orphans([]))  # once it has its marks
        await self.until(lambda: not (container.pid and alive(container.pid)))
        await other.stop()
