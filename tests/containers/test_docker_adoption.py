"""What the docker backend does with containers of an earlier daemon, over a fake Engine."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred

from sticky.containers.docker import container as container_module
from sticky.containers.docker import dock as dock_module
from sticky.containers.docker.faults import EngineUnreachable
from sticky.containers.docker.life import State
from sticky.core.values import ContainerId
from sticky.isticky import IContainer, TCPAddress
from tests.containers.conformance import AdoptionConformance, LeftBehind, Program, Recorder
from tests.containers.docker_case import REACTOR, DockerCase
from tests.fakes.engine import Reply, error


class LeftoverTests(DockerCase):
    async def left(self, realm: str) -> ContainerId:
        self.realm = realm
        backend = self.make_backend()
        spec = self.make_spec("serves")
        await self.ready(backend.spawn(spec, self.recorder))
        await backend.stop()
        return spec.container

    async def test_only_what_nobody_knows_of_this_state_directory_is_removed(self) -> None:
        strangers = await self.left("b")
        mine, adopted = await self.left("a"), await self.left("a")
        backend = self.make_backend()
        self.assertEqual({found.container for found in await backend.inventory()}, {mine, adopted})
        self.assertEqual(set(backend.orphans([adopted])), {mine})
        await self.until(lambda: len(self.engine.containers) == 2)
        self.assertEqual(
            {fake.labels["sticky.container"] for fake in self.engine.containers.values()}, {strangers, adopted}
        )
        await backend.stop()

    async def test_without_an_engine_they_wait_for_it(self) -> None:
        await self.left("a")
        backend = self.make_backend()
        await self.engine.stop()
        self.assertEqual(set(backend.orphans(())), set())
        await self.assertFailure(Deferred.fromCoroutine(backend.inventory()), EngineUnreachable)
        self.engine.start()
        await self.until(lambda: not self.engine.containers)
        await backend.stop()

    async def test_a_list_that_cannot_be_had_is_asked_for_again(self) -> None:
        await self.left("a")
        await self.engine.stop()
        backend = self.make_backend()
        backend.orphans(())
        self.patch(dock_module, "LOOK_AGAIN", 0.01)
        self.engine.script.append(("GET /containers/json", error(500, "busy")))
        self.engine.start()
        await self.until(lambda: not self.engine.containers)
        await backend.stop()

    async def test_inventory_tells_state_and_address(self) -> None:
        container = await self.left("a")
        backend = self.make_backend()
        (found,) = await backend.inventory()
        self.assertEqual((found.container, found.state, found.server), (container, "running", "echo"))
        self.assertEqual(found.address, TCPAddress("127.0.0.1", self.engine.of(container).host_port))
        backend.orphans(())
        await self.until(lambda: not self.engine.containers)
        await backend.stop()

    async def test_an_ephemeral_daemon_takes_its_containers_along(self) -> None:
        backend = self.make_backend(die_with_daemon=True)
        await self.ready(backend.spawn(self.make_spec("serves"), self.recorder))
        await backend.stop()
        self.assertEqual(self.engine.containers, {})


class AdoptionTests(DockerCase, AdoptionConformance):
    backend: Any

    def spec(self, program: Program) -> Any:
        return self.make_spec(program.value)

    async def turn(self) -> None:
        done: Deferred[None] = Deferred()
        REACTOR.callLater(0.002, done.callback, None)
        await done

    async def left_behind(self, program: Program, *, ready: bool) -> LeftBehind:
        earlier, spec, recorder = self.make_backend(), self.spec(program), Recorder()
        container = earlier.spawn(spec, recorder)
        await self.until(lambda: recorder.address(container) if ready else self.running(spec))
        await earlier.stop()
        return LeftBehind(spec, container.place, recorder.address(container))

    async def end_unseen(self, left: LeftBehind) -> None:
        self.engine.end(self.engine.of(left.spec.container), 0)

    async def runs(self, left: LeftBehind) -> bool:
        return self.running(left.spec)

    async def test_without_an_engine_it_is_taken_for_alive_until_that_tells(self) -> None:
        self.patch(container_module, "ASK_AGAIN", 0.01)
        left = await self.left_behind(Program.SERVES, ready=True)
        await self.engine.stop()
        recorder = Recorder()
        container = self.taken(left, recorder)
        self.engine.end(self.engine.of(left.spec.container), 3, event=False)
        self.engine.start()
        self.assertEqual((await self.ending(container, recorder)).status, 3)

    async def test_a_backend_that_stops_while_the_engine_is_asked_about_it_has_made_no_mistake(self) -> None:
        left = await self.left_behind(Program.SERVES, ready=True)
        half = Reply(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", silent=True)
        self.engine.script.append((f"GET /containers/{self.engine.of(left.spec.container).id}/json", half))
        asked = self.engine.count("GET /containers/.+/json")
        recorder = Recorder()
        container = self.backend.adopt(left.spec, left.place, None, recorder)
        await self.until(lambda: self.engine.count("GET /containers/.+/json") == asked + 2)  # at once, and for good
        for _ in range(10):
            await self.turn()  # half of the answer comes
        await self.backend.stop()
        self.assertEqual([], self.flushLoggedErrors())
        self.assertEqual([], recorder.heard(container))
        self.assertTrue(self.running(left.spec))

    async def test_one_that_was_created_and_never_started_is_none(self) -> None:
        left = await self.left_behind(Program.SERVES, ready=True)
        fake = self.engine.of(left.spec.container)
        await self.engine.silence(fake)
        fake.status = "created"
        self.assertIsNone(self.backend.adopt(left.spec, left.place, None, Recorder()))
        await self.until(lambda: not self.engine.containers)

    async def test_its_output_is_copied_from_then_on(self) -> None:
        left = await self.left_behind(Program.SERVES, ready=True)
        recorder = Recorder()
        fake = self.engine.of(left.spec.container)
        await self.until(lambda: not fake.followers)
        container: IContainer = self.taken(left, recorder)
        await self.until(lambda: fake.followers)
        self.engine.say(fake, b"again\n")
        await self.until(lambda: left.spec.log.read_text() == "again\n")
        self.assertEqual(getattr(container, "state", None), State.READY)
        container.kill()
        await self.ending(container, recorder)
