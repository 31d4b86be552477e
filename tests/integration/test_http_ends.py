"""Clients that leave or half-close, containers that die, stale connections: all told apart, and every lease comes back."""

from __future__ import annotations

import random
import socket
import struct
from functools import partial
from typing import Any

from twisted.internet import defer
from twisted.internet.task import deferLater

from sticky.core.values import EndReason
from sticky.edge.limits import EdgeLimits
from sticky.edge.site import Site
from sticky.isticky import Answer, TCPAddress
from tests.fakes.containers import RawClient, RecordingContainer, ScriptedContainer, ScriptedProtocol
from tests.fakes.routing import SERVER
from tests.integration.edge_case import AUTHORIZED, EdgeCase, get, reactor, read_answers

HEAD_END = b"\r\n\r\n"


def silent(connection: ScriptedProtocol) -> None:
    """A container that never answers."""


def client_has(client: RawClient, end: bytes) -> bool:
    return client.received.endswith(end)


def is_lost(client: RawClient) -> bool:
    return client.lost


def reset(transport: Any) -> None:
    """Close with a RST."""
    transport.getHandle().setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abortConnection()


class ClientEndTests(EdgeCase):
    site = Site(name=SERVER, half_close_timeout=1.5)

    async def test_a_client_that_leaves_aborts_the_containers_work_and_frees_its_lease(self) -> None:
        container = ScriptedContainer(silent)
        self.start(container)
        client = await self.connect()
        client.transport.write(get())
        await self.until(lambda: container.connections and len(self.routing.held) == 1)
        client.transport.abortConnection()
        await self.until(lambda: not self.routing.held)
        await self.until(lambda: container.lost == 1)
        self.assertEqual([record.status for record in self.records], [499])

    async def test_a_fin_inside_a_body_means_gone(self) -> None:
        container = ScriptedContainer(silent)
        self.start(container)
        client = await self.connect()
        client.transport.write(b"POST /x HTTP/1.1\r\n" + AUTHORIZED + b"Content-Length: 10\r\n\r\nhello")
        await self.until(lambda: len(self.routing.held) == 1 and container.connections)
        client.transport.loseWriteConnection()
        await self.until(lambda: not self.routing.held and client.lost and container.lost == 1)
        self.assertEqual(client.received, b"")

    async def test_a_half_closed_client_still_gets_its_answer(self) -> None:
        container = ScriptedContainer(silent)
        self.start(container)
        client = await self.connect()
        client.transport.write(get())
        client.transport.loseWriteConnection()
        await self.until(lambda: container.connections and container.connections[0].received.endswith(HEAD_END))
        container.connections[0].transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await self.until(lambda: client.lost)
        self.assertEqual(read_answers(client.received, True)[0].message.body, "ok")
        await self.until(lambda: not self.routing.held)

    async def test_pipelined_requests_before_a_fin_are_all_answered(self) -> None:
        self.start(RecordingContainer())
        client = await self.connect()
        client.transport.write(get() * 5)
        client.transport.loseWriteConnection()
        await self.until(lambda: client.lost)
        self.assertEqual(len(read_answers(client.received, True)), 5)

    async def test_a_half_closed_client_without_progress_is_gone_after_its_time(self) -> None:
        container = ScriptedContainer(silent)
        self.start(container)
        client = await self.connect()
        client.transport.write(get())
        client.transport.loseWriteConnection()
        await self.until(lambda: len(self.routing.held) == 1)
        await self.until(lambda: not self.routing.held, seconds=6)
        await self.until(lambda: container.lost == 1)
        self.assertEqual([record.status for record in self.records], [499])

    async def test_a_half_closed_client_that_takes_bytes_keeps_its_answer(self) -> None:
        connections: list[ScriptedProtocol] = []

        def answer(connection: ScriptedProtocol) -> None:
            connections.append(connection)
            connection.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")

        self.start(ScriptedContainer(answer))
        client = await self.connect()
        client.transport.write(get())
        client.transport.loseWriteConnection()
        await self.until(lambda: HEAD_END in client.received)
        begun = reactor.seconds()
        sent = 0
        while reactor.seconds() - begun < 3.5:  # more than twice the time without progress that is allowed
            connections[0].transport.write(b"x")
            sent += 1
            await self.until(partial(client_has, client, b"x" * sent))
            await deferLater(reactor, 0.3)
        self.assertEqual(len(self.routing.held), 1)
        connections[0].transport.write(b"x" * (1000 - sent))
        await self.until(lambda: client.lost)
        self.assertFalse(read_answers(client.received, True)[0].broken)

    async def test_a_fin_while_a_control_call_waits_means_gone_at_once(self) -> None:
        self.start(None)
        waiting: defer.Deferred[Answer] = self.control.wait()
        client = await self.connect()
        client.transport.write(b"POST /_modal/sessions/start HTTP/1.1\r\nHost: game.example\r\n\r\n")
        await self.until(lambda: self.control.requests)
        self.assertFalse(waiting.called)
        client.transport.loseWriteConnection()
        await self.until(lambda: self.control.cancelled == 1 and client.lost, seconds=1)

    async def test_two_hundred_random_disconnects_leave_no_lease(self) -> None:
        container = RecordingContainer()
        self.start(container)
        chance = random.Random(7)
        body = b"POST /x HTTP/1.1\r\n" + AUTHORIZED + b"Content-Length: 100000\r\n\r\n" + b"x" * 100_000
        requests = [get(), get() * 3, body, get(method=b"HEAD")]
        for _ in range(200):
            client = await self.connect()
            data = chance.choice(requests)
            client.transport.write(data[: chance.randrange(1, len(data) + 1)])
            await deferLater(reactor, chance.random() * 0.006)
            (reset if chance.random() < 0.5 else type(client.transport).loseConnection)(client.transport)
        await self.until(lambda: not self.context.doors.inside)
        self.assertEqual(self.routing.held, set())
        self.assertGreater(self.routing.granted, 50)


class ContainerEndTests(EdgeCase):
    async def test_a_container_killed_inside_its_answer_is_visibly_broken(self) -> None:
        for head in (
            b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n",
        ):
            for end in ("fin", "reset"):

                def answer(connection: ScriptedProtocol, head: bytes = head, end: str = end) -> None:
                    connection.transport.write(head + b"ok")
                    if end == "fin":
                        connection.transport.loseConnection()
                    else:
                        reactor.callLater(0.05, reset, connection.transport)

                self.setUp()
                self.start(ScriptedContainer(answer))
                client = await self.connect()
                client.transport.write(get())
                await self.until(partial(is_lost, client))
                (found,) = read_answers(client.received, True)
                self.assertEqual((found.message.status, found.broken), (200, True), (head, end))
                self.assertEqual(self.routing.held, set())
                await self.tearDown()
        self.ports = []

    async def test_a_container_killed_inside_an_upload_is_502_and_the_upload_is_not_sent_again(self) -> None:
        def read_some(connection: ScriptedProtocol) -> None:
            if len(connection.received) > 200_000:
                reset(connection.transport)

        container = ScriptedContainer(read_some)
        self.start(container)
        for framing, body in (
            (b"Content-Length: 90000000\r\n", b"x" * 1_000_000),
            (b"Transfer-Encoding: chunked\r\n", b"fffff\r\n" + b"x" * 1_000_000),
        ):
            client = await self.connect()
            client.transport.write(get(method=b"PUT", extra=framing) + body)
            (found,) = await self.answers(client, 1)
            self.assertEqual(found.message.status, 502)
            await self.until(partial(is_lost, client))
            self.assertEqual(self.routing.held, set())
        self.assertEqual(len(container.connections), 2)

    async def test_a_reset_of_an_answer_that_ends_by_closing_is_visibly_broken(self) -> None:
        def answer(connection: ScriptedProtocol) -> None:
            connection.transport.write(b"HTTP/1.1 200 OK\r\n\r\nok")
            reactor.callLater(0.05, reset, connection.transport)

        self.start(ScriptedContainer(answer))
        modern, old = await self.connect(), await self.connect()
        modern.transport.write(get())
        old.transport.write(get(version=b"1.0"))
        await self.until(lambda: modern.lost and old.lost)
        self.assertTrue(read_answers(modern.received, True)[0].broken, modern.received)
        self.assertFalse(old.clean)  # only a reset can tell an HTTP/1.0 client

    async def test_a_container_that_dies_before_its_head_is_502_and_one_that_refuses_503_with_retry_after(self) -> None:
        self.start(ScriptedContainer(lambda connection: reset(connection.transport)))
        client = await self.connect()
        client.transport.write(get())
        (found,) = await self.answers(client, 1)
        self.assertEqual(found.message.status, 502)
        port = reactor.listenTCP(0, ScriptedContainer(silent), interface="127.0.0.1")
        self.routing.address = TCPAddress("127.0.0.1", port.getHost().port)
        await port.stopListening()
        client.transport.write(get())
        found = (await self.answers(client, 2))[1]
        self.assertEqual(found.message.status, 503)
        self.assertEqual(dict(found.message.headers)["retry-after"], "1")

    async def test_a_session_that_ends_before_the_head_is_410_and_after_it_breaks_off(self) -> None:
        container = ScriptedContainer(
            lambda connection: (
                connection.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok")
                if b"/begun" in connection.received
                else None
            )
        )
        self.start(container)
        waiting, begun = await self.connect(), await self.connect()
        waiting.transport.write(get())
        begun.transport.write(get(b"/begun"))
        await self.until(lambda: begun.received.endswith(b"ok") and len(self.routing.held) == 2)
        self.routing.end_all(EndReason.TERMINATED)
        await self.until(lambda: waiting.lost and begun.lost)
        (answer,) = read_answers(waiting.received, True)
        self.assertEqual(answer.message.status, 410)
        self.assertIn("terminated", answer.message.body)
        self.assertTrue(read_answers(begun.received, True)[0].broken)


class StaleConnectionTests(EdgeCase):
    """A container that closes a kept connection at the very moment when the next request goes out on it."""

    limits = EdgeLimits(upstream_idle=4.0, linger_timeout=1.0)

    async def ask_twice(self, second: bytes) -> tuple[list[int], ScriptedContainer]:
        """One GET that leaves a connection in the pool; the container resets it when the second request arrives there."""

        def answer(connection: ScriptedProtocol) -> None:
            if connection is container.connections[0] and connection.received.count(HEAD_END) > 1:
                reset(connection.transport)
            elif HEAD_END in connection.received:
                connection.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

        container = ScriptedContainer(answer)
        self.start(container)
        client = await self.connect()
        client.transport.write(get())
        await self.answers(client, 1)
        client.transport.write(second)
        answers = await self.answers(client, 2)
        return [found.message.status for found in answers], container

    async def test_a_get_is_sent_again_once_on_a_new_connection(self) -> None:
        statuses, container = await self.ask_twice(get())
        self.assertEqual(statuses, [200, 200])
        self.assertEqual(len(container.connections), 2)

    async def test_a_post_that_may_have_been_seen_is_not_sent_again(self) -> None:
        statuses, container = await self.ask_twice(get(method=b"POST", extra=b"Content-Length: 0\r\n"))
        self.assertEqual(statuses, [200, 502])
        self.assertEqual(len(container.connections), 1)

    async def test_a_put_with_a_body_is_not_sent_again(self) -> None:
        statuses, container = await self.ask_twice(get(method=b"PUT", extra=b"Content-Length: 2\r\n") + b"hi")
        self.assertEqual(statuses, [200, 502])
        self.assertEqual(len(container.connections), 1)

    async def test_a_connection_that_closed_while_idle_is_not_used(self) -> None:
        container = RecordingContainer()
        self.start(container)
        client = await self.connect()
        client.transport.write(get())
        await self.answers(client, 1)
        container.connections[0].transport.loseConnection()
        await self.until(lambda: not len(self.context.upstreams))
        client.transport.write(get(method=b"POST", extra=b"Content-Length: 0\r\n"))
        self.assertEqual([found.message.status for found in await self.answers(client, 2)], [200, 200])
