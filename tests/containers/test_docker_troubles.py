"""The docker backend on bad days: refusals, torn streams, an Engine that goes and comes back."""

from __future__ import annotations

import socket
from typing import Any

import attrs

from sticky.containers.docker import container as container_module
from sticky.containers.ports import Ports
from sticky.errors import IllegalEvent
from sticky.isticky import TCPAddress
from tests.containers.docker_case import DockerCase
from tests.fakes.engine import Reply, error


class StartTests(DockerCase):
    async def failed(self, *command: str, **changes: Any) -> str:
        exit = await self.exit(self.run_container(*command or ("serves",), **changes))
        self.assertEqual((exit.detail, exit.status, exit.signal), ("failed", None, None))
        return exit.message

    async def test_wrong_options_are_told_and_nothing_is_asked(self) -> None:
        self.assertIn("no image", await self.failed(options={}))
        self.assertEqual(self.engine.count("POST .*"), 0)

    async def test_an_unknown_image_is_never_pulled_unasked(self) -> None:
        message = await self.failed(options=self.options(image="game"))
        self.assertIn("has no image game: bring it there with docker pull", message)
        self.assertEqual(self.engine.count("POST /images/create"), 0)

    async def test_with_pull_an_image_is_brought_once_for_all_that_wait(self) -> None:
        containers = [self.run_container("serves", options=self.options(image="game", pull=True)) for _ in range(3)]
        self.engine.images.discard("game")
        for container in containers:
            await self.ready(container)
        self.assertEqual(self.engine.count("POST /images/create"), 1)
        for container in containers:
            container.kill()
            await self.exit(container)

    async def test_a_pull_that_fails_is_told_to_all_that_wait(self) -> None:
        self.engine.script.append(("POST /images/create", Reply(200, b'{"status":"x"}\n{"error":"denied"}\n')))
        containers = [self.run_container("serves", options=self.options(image="game", pull=True)) for _ in range(2)]
        for container in containers:
            self.assertIn("cannot pull game: denied", (await self.exit(container)).message)

    async def test_refused_creations_and_starts_are_told_and_leave_nothing(self) -> None:
        for pattern in ("POST /containers/create", "POST /containers/.*/start"):
            self.engine.script.append((pattern, error(500, "no space left on device")))
            self.assertIn("no space left on device", await self.failed())
            self.assertEqual(self.engine.containers, {})

    async def test_a_conflict_of_names_is_told(self) -> None:
        self.engine.script.append(("POST /containers/create", error(409, "Conflict. The name is in use")))
        self.assertIn("The name is in use (409)", await self.failed())

    async def test_a_taken_port_is_tried_elsewhere_and_then_given_up(self) -> None:
        taken = error(500, "Bind for 127.0.0.1:20000 failed: port is already allocated")
        self.engine.script += [("POST /containers/.*/start", taken)] * 2
        container = self.run_container("serves")
        await self.ready(container)
        self.assertEqual(self.engine.count("POST /containers/create"), 3)
        self.assertEqual(len(self.engine.containers), 1)
        self.engine.script += [("POST /containers/.*/start", taken)] * 5
        self.assertIn("port is already allocated", await self.failed())
        container.kill()
        await self.exit(container)

    async def test_no_free_port_is_told(self) -> None:
        self.backend = self.make_backend(ports=Ports(20_000, 20_000, ephemeral=range(0), bindable=lambda _: False))
        self.assertIn("no free port", await self.failed())

    async def test_on_the_machines_network_a_fixed_port_has_one_copy(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        options = self.options(network="host")
        first = self.run_container("serves", port=port, options=options)
        self.assertEqual(await self.ready(first), TCPAddress("127.0.0.1", port))
        self.assertIn(f"fixed port {port}", await self.failed("serves", port=port, options=options))
        first.kill()
        await self.exit(first)
        second = self.run_container("serves", port=port, options=options)
        await self.ready(second)
        second.kill()
        await self.exit(second)

    async def test_an_answer_that_breaks_off_is_a_failure_and_what_came_of_it_is_removed(self) -> None:
        self.backend.orphans(())
        await self.until(lambda: self.engine.event_streams)
        self.engine.script.append(("POST /containers/.*/start", Reply(raw=b"")))
        self.assertIn("gave no answer", await self.failed())
        await self.until(lambda: not self.engine.containers)

    async def test_a_creation_without_an_id_is_told(self) -> None:
        self.engine.script.append(("POST /containers/create", Reply(201, b"{}")))
        self.assertIn("without an id", await self.failed())

    async def test_no_engine_at_all(self) -> None:
        await self.engine.stop()
        self.assertIn("there is no such socket", await self.failed())

    async def test_an_id_that_runs_already_is_our_own_mistake(self) -> None:
        spec = self.make_spec("serves")
        container = self.backend.spawn(spec, self.recorder)
        self.assertRaises(IllegalEvent, self.backend.spawn, spec, self.recorder)
        container.kill()
        await self.exit(container)


class ReadyTests(DockerCase):
    async def test_a_port_that_hangs_up_is_not_ready(self) -> None:
        self.engine.proxy_only = True
        container = self.run_container("serves")
        fake = await self.created(container)
        await self.until(lambda: fake.listener is not None and len(fake.listener.factory.connections) >= 3)
        self.assertEqual(self.recorder.heard(container), [])
        self.engine.proxy_only = False
        await self.ready(container)
        container.kill()
        await self.exit(container)


class OutputTests(DockerCase):
    async def test_output_is_copied_as_it_comes(self) -> None:
        spec = self.make_spec("serves")
        container = self.backend.spawn(spec, self.recorder)
        fake = await self.created(container)
        await self.until(lambda: fake.followers)
        self.engine.say(fake, b"one\n")
        self.engine.say(fake, b"two\n", stream=2)
        await self.until(lambda: spec.log.exists() and spec.log.read_text() == "one\ntwo\n")
        container.kill()
        self.assertEqual((await self.exit(container)).last_lines, ("one", "two"))

    async def test_a_torn_or_foreign_stream_is_taken_up_again(self) -> None:
        spec = self.make_spec("serves")
        self.engine.script.append((".*logs", Reply(raw=b"HTTP/1.1 200 OK\r\n\r\nthese are no frames")))
        container = self.backend.spawn(spec, self.recorder)
        fake = await self.created(container)
        await self.until(lambda: fake.followers)
        self.engine.say(fake, b"kept\n")
        await self.until(lambda: spec.log.read_text() == "kept\n")
        fake.followers[0].abort()
        await self.until(lambda: self.engine.count(".*logs") == 3 and fake.followers)
        self.engine.say(fake, b"more\n")
        await self.until(lambda: spec.log.read_text() == "kept\nmore\n")
        container.kill()
        await self.exit(container)

    async def test_output_that_cannot_be_had_costs_nothing_else(self) -> None:
        self.engine.script += [(".*logs", error(501, "the log driver does not support reading"))] * 2
        container = self.run_container("serves")
        await self.ready(container)
        container.terminate()
        exit = await self.exit(container)
        self.assertEqual((exit.signal, exit.last_lines), (15, ()))


class EngineGoneTests(DockerCase):
    async def test_an_end_without_an_event_is_seen_when_the_stream_is_back(self) -> None:
        container = self.run_container("serves")
        await self.ready(container)
        fake = self.engine.of(container.id)
        await self.engine.stop()
        self.engine.end(fake, 9, event=False)
        self.engine.start()
        self.assertEqual((await self.exit(container)).status, 9)

    async def events_asked_for(self, times: int) -> None:
        await self.until(lambda: self.engine.count("GET /events") >= times and self.engine.event_streams)

    async def test_a_garbage_event_tears_the_stream_and_another_is_opened(self) -> None:
        container = self.run_container("serves")
        await self.ready(container)
        fake = self.engine.of(container.id)
        for garbage in (b"[]\n", b"{\n"):
            opened = self.engine.count("GET /events")
            await self.until(lambda: self.engine.event_streams)
            self.engine.end(fake, 4, event=False)
            fake.status = "running"
            self.engine.event_streams[0].chunk(garbage)
            await self.events_asked_for(opened + 1)
        self.engine.event_streams[0].chunk(b'{"Action": 5, "Actor": {}}\n{"Action": "die", "Actor": []}\n{}\n')
        self.engine.end(fake, 4)
        self.assertEqual((await self.exit(container)).status, 4)

    async def test_events_that_say_nothing_new_change_nothing(self) -> None:
        container = self.run_container("serves")
        await self.ready(container)
        fake = self.engine.of(container.id)
        for action in ("oom", "stop", "die", "exec_die", "health_status"):
            self.engine.emit(action, fake)
        asked = self.engine.count("GET /containers/.*/json")
        await self.until(lambda: self.engine.count("GET /containers/.*/json") > asked)
        self.assertEqual(self.recorder.heard(container), ["ready"])
        container.kill()
        await self.exit(container)
        self.assertEqual(self.recorder.heard(container), ["ready", "exited"])

    async def test_one_that_is_paused_is_halted_until_it_goes_on(self) -> None:
        container = self.run_container("serves")
        await self.ready(container)
        fake = self.engine.of(container.id)
        fake.status = "paused"
        self.engine.emit("pause", fake)
        await self.until(container.halted)
        fake.status = "running"
        self.engine.emit("unpause", fake)
        await self.until(lambda: not container.halted())
        self.assertEqual(self.recorder.heard(container), ["ready"])

    async def test_a_signal_that_nobody_took_is_sent_when_the_engine_is_back(self) -> None:
        container = self.run_container("serves")
        await self.ready(container)
        await self.engine.stop()
        container.terminate()
        self.engine.start()
        self.assertEqual((await self.exit(container)).signal, 15)

    async def test_a_signal_that_was_refused_is_sent_again_after_a_while(self) -> None:
        self.patch(container_module, "ASK_AGAIN", 0.01)
        container = self.run_container("serves")
        await self.ready(container)
        self.engine.script += [("POST .*kill", error(500, "cannot kill")), ("POST .*kill", error(409, "not running"))]
        container.terminate()
        self.assertEqual((await self.exit(container)).signal, 15)
        self.assertEqual(self.engine.count("POST .*kill"), 3)

    async def test_a_kill_that_nobody_took_is_sent_again(self) -> None:
        container = self.run_container("serves")
        await self.ready(container)
        await self.engine.stop()
        container.kill()
        self.engine.start()
        exit = await self.exit(container)
        self.assertEqual((exit.detail, exit.signal), ("killed", 9))

    async def test_an_engine_that_stays_away_does_not_keep_a_killed_container(self) -> None:
        self.patch(container_module, "PATIENCE", 0.05)
        container = self.run_container("serves")
        await self.ready(container)
        await self.engine.stop()
        container.kill()
        exit = await self.exit(container)
        self.assertEqual((exit.detail, exit.signal), ("killed", None))
        self.assertIn("may still run", exit.message)
        self.backend.orphans(())
        self.engine.start()
        await self.until(lambda: not self.engine.containers)

    async def test_an_inspection_that_fails_is_asked_again(self) -> None:
        self.patch(container_module, "ASK_AGAIN", 0.01)
        container = self.run_container("serves")
        await self.ready(container)
        fake = self.engine.of(container.id)
        for reply in (error(500, "locked"), Reply(200, b"[]"), Reply(200, b'{"State": 5}'), Reply(200, b"nonsense")):
            self.engine.script.append(("GET /containers/.*/json", reply))
        self.engine.end(fake, 7)
        self.assertEqual((await self.exit(container)).status, 7)

    async def test_a_container_that_somebody_removed_has_the_status_of_its_event(self) -> None:
        one, other = self.run_container("serves"), self.run_container("serves")
        for container, event, status in ((one, True, 5), (other, False, None)):
            await self.ready(container)
            fake = self.engine.of(container.id)
            del self.engine.containers[fake.id]
            self.engine.end(fake, 5, event=event)
            if not event:
                self.engine.emit("destroy", fake)
            self.assertEqual((await self.exit(container)).status, status)

    async def test_a_removal_that_fails_is_only_logged(self) -> None:
        self.engine.script.append(("DELETE .*", error(500, "device is busy")))
        container = self.run_container("exits")
        await self.exit(container)
        await self.until(lambda: self.engine.count("DELETE .*"))
        await self.backend.stop()

    async def test_a_signal_to_a_container_that_ended_unseen_is_its_end(self) -> None:
        container = self.run_container("serves")
        await self.ready(container)
        self.engine.end(self.engine.of(container.id), 6, event=False)
        container.terminate()
        self.assertEqual((await self.exit(container)).status, 6)


class SpecTests(DockerCase):
    def test_options_of_a_spec_are_not_shown(self) -> None:
        spec = attrs.evolve(self.make_spec("serves"), options={"image": "secret-name"})
        self.assertNotIn("secret-name", repr(spec))
