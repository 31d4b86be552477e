"""Bodies of any size pass both ways in bounded memory, at once and in order; 1xx, trailers and early answers pass."""

from __future__ import annotations

import os
import resource
import socket
import time
from functools import partial
from typing import Any

from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer

from sticky.edge.frontend import Frontend
from sticky.edge.limits import EdgeLimits
from tests.fakes.containers import RawClient, RecordingContainer, ScriptedContainer, ScriptedProtocol
from tests.integration.edge_case import AUTHORIZED, EdgeCase, get, read_answers

HEAD_END = b"\r\n\r\n"
PIECE = b"x" * 65_536


def rss() -> int:
    """Bytes of this process that are resident."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


@implementer(IPushProducer)
class Flood:
    """Writes to a transport as long as it takes more."""

    def __init__(self, transport: Any) -> None:
        self.transport = transport
        self.sent = 0
        self.paused = False
        self.stopped = False
        transport.registerProducer(self, True)

    def resumeProducing(self) -> None:
        self.paused = False
        self.go_on()

    def go_on(self) -> None:
        while not self.paused and not self.stopped:
            self.sent += len(PIECE)
            self.transport.write(PIECE)

    def pauseProducing(self) -> None:
        self.paused = True

    def stopProducing(self) -> None:
        self.stopped = True


def once(connection: ScriptedProtocol, data: bytes) -> None:
    """Answer the first request with this."""
    if HEAD_END in connection.received and not connection.lost:
        connection.received = b""
        connection.transport.write(data)


class BackPressureTests(EdgeCase):
    async def settle(self, flood: Flood) -> None:
        """Wait until the flood has stood still for a while."""
        last, since = -1, time.monotonic()

        def still() -> bool:
            nonlocal last, since
            if flood.sent != last:
                last, since = flood.sent, time.monotonic()
            return time.monotonic() - since > 0.2

        await self.until(still, seconds=20)

    async def test_a_stopped_reader_of_a_download_stops_the_container_and_costs_little(self) -> None:
        floods: list[Flood] = []

        def answer(connection: ScriptedProtocol) -> None:
            if HEAD_END in connection.received:
                connection.received = b""
                connection.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n")
                floods.append(Flood(connection.transport))
                floods[0].go_on()

        self.start(ScriptedContainer(answer))
        client = await self.connect()
        client.keep = False
        client.transport.write(get())
        await self.until(lambda: client.total > 5_000_000)
        before = rss()
        client.transport.pauseProducing()
        await self.settle(floods[0])
        self.assertTrue(floods[0].paused)
        self.assertLess(rss() - before, 1_000_000)
        stopped_at = client.total
        client.transport.resumeProducing()
        await self.until(lambda: client.total > stopped_at + 5_000_000)
        self.assertEqual(len(self.routing.held), 1)

    async def test_a_container_that_does_not_read_stops_the_upload_and_costs_little(self) -> None:
        container = ScriptedContainer(lambda connection: None)
        self.start(container)
        client = await self.connect()
        client.transport.write(b"POST /x HTTP/1.1\r\n" + AUTHORIZED + b"Content-Length: 1000000000000\r\n\r\n")
        flood = Flood(client.transport)
        flood.go_on()
        await self.until(lambda: container.total > 5_000_000)
        before = rss()
        (connection,) = container.connections
        connection.transport.pauseProducing()
        await self.settle(flood)
        self.assertTrue(flood.paused)
        self.assertLess(rss() - before, 1_000_000)
        stopped_at = container.total
        connection.transport.resumeProducing()
        await self.until(lambda: container.total > stopped_at + 5_000_000)

    async def test_a_client_that_resets_while_its_upload_is_stopped_is_noticed(self) -> None:
        container = ScriptedContainer(lambda connection: connection.transport.pauseProducing())
        self.start(container)
        client = await self.connect()
        client.transport.write(b"POST /x HTTP/1.1\r\n" + AUTHORIZED + b"Content-Length: 1000000000000\r\n\r\n")
        flood = Flood(client.transport)
        flood.go_on()
        await self.settle(flood)
        self.assertEqual(len(self.routing.held), 1)
        client.transport.abortConnection()
        await self.until(lambda: not self.routing.held, seconds=5, why="the lease")
        self.assertEqual([record.status for record in self.records], [499])


class PassingTests(EdgeCase):
    async def ask(self, data: bytes, count: int = 1, methods: list[bytes] | None = None) -> tuple[RawClient, list[Any]]:
        client = await self.connect()
        client.transport.write(data)
        return client, await self.answers(client, count, methods)

    async def test_events_arrive_at_once(self) -> None:
        connections: list[ScriptedProtocol] = []

        def answer(connection: ScriptedProtocol) -> None:
            connections.append(connection)
            once(connection, b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")

        self.start(ScriptedContainer(answer))
        client = await self.connect()
        client.transport.write(get())
        await self.until(lambda: HEAD_END in client.received)
        for number in range(5):
            event = b"data: %d\n\n" % number
            connections[0].transport.write(event)
            await self.until(partial(client.received_has, event), seconds=2)
        self.assertFalse(client.lost)

    async def test_the_container_answers_expect_continue(self) -> None:
        def answer(connection: ScriptedProtocol) -> None:
            if connection.received.endswith(HEAD_END):
                self.assertIn(b"Expect: 100-continue", connection.received)
                connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            elif connection.received.endswith(b"hello"):
                connection.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

        self.start(ScriptedContainer(answer))
        client = await self.connect()
        client.transport.write(
            b"POST /x HTTP/1.1\r\n" + AUTHORIZED + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n"
        )
        await self.until(lambda: client.received == b"HTTP/1.1 100 Continue\r\n\r\n")
        client.transport.write(b"hello")
        (answer_,) = await self.answers(client, 1)
        self.assertEqual((answer_.informational, answer_.message.status), ([100], 200))

    async def test_early_hints_reach_the_client_before_the_answer(self) -> None:
        connections: list[ScriptedProtocol] = []

        def answer(connection: ScriptedProtocol) -> None:
            connections.append(connection)
            once(connection, b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")

        self.start(ScriptedContainer(answer))
        client = await self.connect()
        client.transport.write(get())
        await self.until(lambda: client.received == b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
        connections[0].transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        (answer_,) = await self.answers(client, 1)
        self.assertEqual((answer_.informational, answer_.message.body), ([103], "ok"))

    async def test_trailers_pass_both_ways(self) -> None:
        container = ScriptedContainer(
            lambda connection: (
                once(
                    connection,
                    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\nSet-Cookie: a=1\r\n\r\n",
                )
                if connection.received.endswith(b"0\r\nX-Up: 2\r\n\r\n")
                else None
            )
        )
        self.start(container)
        body = b"2\r\nhi\r\n0\r\nX-Up: 2\r\nModal-Secret: ws-x\r\n\r\n"
        _, (answer_,) = await self.ask(
            b"POST /x HTTP/1.1\r\n" + AUTHORIZED + b"Transfer-Encoding: chunked\r\n\r\n" + body
        )
        self.assertEqual(answer_.message.trailers, [("x-sum", "1")])

    async def test_an_answer_before_the_upload_ends_is_delivered_and_the_connection_closes(self) -> None:
        container = ScriptedContainer(
            lambda connection: once(connection, b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
        )
        self.start(container)
        client = await self.connect()
        client.transport.write(
            b"POST /x HTTP/1.1\r\n" + AUTHORIZED + b"Content-Length: 5000000\r\n\r\n" + b"x" * 1_000_000
        )
        await self.until(lambda: client.lost)
        (answer_,) = read_answers(client.received, True)
        self.assertEqual((answer_.message.status, answer_.message.body, answer_.broken), (413, "no", False))
        self.assertIn(("connection", "close"), answer_.message.headers)
        await self.until(lambda: container.lost == 1)

    async def test_early_answers_that_do_not_go_out_at_once_are_followed_by_our_fin(self) -> None:
        # Most of it is still ours when the exchange ends; what follows is decided when the kernel has taken the last byte.
        self.limits = EdgeLimits(linger_timeout=1000.0)
        head = b"HTTP/1.1 413 Too Large\r\nContent-Length: 60000\r\n\r\n"
        self.start(ScriptedContainer(lambda connection: once(connection, head + b"x" * 60_000)))
        client = await self.connect()
        await self.until(lambda: self.context.sweep.entries())
        (front,) = self.context.sweep.entries()
        assert isinstance(front, Frontend)
        front.transport.getHandle().setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        client.transport.write(b"POST /x HTTP/1.1\r\n" + AUTHORIZED + b"Content-Length: 5000000\r\n\r\nsome of it")
        await self.until(lambda: client.lost, seconds=30)
        (answer_,) = read_answers(client.received, True)
        self.assertEqual((answer_.message.status, answer_.broken), (413, False))

    async def test_pipelined_requests_are_answered_in_order(self) -> None:
        container = RecordingContainer()
        self.start(container)
        requests = b"".join(get(b"/%d" % number) for number in range(50))
        _, found = await self.ask(requests, 50)
        self.assertEqual([answer_.message.status for answer_ in found], [200] * 50)
        self.assertEqual([message.target for message in container.requests], [f"/{number}" for number in range(50)])
        self.assertEqual(self.routing.most, 1)

    async def test_a_flood_of_pipelined_requests_is_held_back(self) -> None:
        self.start(ScriptedContainer(lambda connection: None))  # never answers
        client = await self.connect()
        client.transport.write(get() * 40_000)
        before = rss()
        await self.until(lambda: self.routing.granted == 1)
        self.assertLess(rss() - before, 1_000_000)
        self.assertEqual(self.routing.granted, 1)

    async def test_http_1_0_with_keep_alive_stays_open_and_without_closes(self) -> None:
        self.start(RecordingContainer())
        client, (first,) = await self.ask(get(version=b"1.0", extra=b"Connection: keep-alive\r\n"))
        self.assertIn(("connection", "keep-alive"), first.message.headers)
        client.transport.write(get(version=b"1.0"))
        answers = await self.answers(client, 2)
        await self.until(lambda: client.lost)
        self.assertEqual([answer_.message.body for answer_ in answers], ["ok", "ok"])

    async def test_a_long_body_passes_whole_over_a_unix_socket(self) -> None:
        data = os.urandom(3_000_000)
        path = self.mktemp()
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(data)
        self.start(ScriptedContainer(lambda connection: once(connection, head + data)), unix=path)
        for _ in range(2):
            _, (answer_,) = await self.ask(get())
            self.assertEqual(answer_.message.body.encode("latin-1"), data)
        self.assertEqual(len(self.context.upstreams), 1)

    async def test_what_a_container_ends_by_closing_is_chunked_for_a_1_1_client_who_stays(self) -> None:
        def answer(connection: ScriptedProtocol) -> None:
            if HEAD_END in connection.received:
                connection.transport.write(b"HTTP/1.0 200 OK\r\nX-A: 1\r\n\r\nhello")
                connection.transport.loseConnection()

        self.start(ScriptedContainer(answer))
        client, (first,) = await self.ask(get())
        self.assertEqual((first.message.body, first.broken), ("hello", False))
        self.assertIn(("transfer-encoding", "chunked"), first.message.headers)
        client.transport.write(get())
        self.assertEqual(len(await self.answers(client, 2)), 2)
        self.assertFalse(client.lost)
