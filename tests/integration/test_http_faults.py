"""Containers that speak nonsense, crowds of slow and vanishing clients, PROXY headers, floors and limits, over real sockets."""

from __future__ import annotations

import random
import struct
import time
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import serverFromString
from twisted.internet.protocol import Factory
from twisted.internet.task import deferLater
from twisted.protocols.haproxy._wrapper import HAProxyProtocolWrapper, HAProxyWrappingFactory

from sticky.core.proxy_tokens import FailureLimit
from sticky.edge.client import FLOOR_WINDOW
from sticky.edge.limits import EdgeLimits
from tests.fakes.containers import RawClient, RecordingContainer, ScriptedContainer, ScriptedProtocol
from tests.integration import test_http_ends, test_http_streaming
from tests.integration.edge_case import AUTHORIZED, EdgeCase, get, reactor

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def answering(data: bytes) -> ScriptedContainer:
    """Gives these bytes for each request."""

    def answer(connection: ScriptedProtocol) -> None:
        while b"\r\n\r\n" in connection.received:
            connection.received = connection.received.partition(b"\r\n\r\n")[2]
            connection.transport.write(data)

    return ScriptedContainer(answer)


class NonsenseTests(EdgeCase):
    limits = EdgeLimits(upstream_idle=2.0, linger_timeout=1.0)

    async def test_garbage_is_502_at_once_and_its_connection_is_dropped(self) -> None:
        container = answering(b"")
        self.start(container)
        client = await self.connect()
        for number, garbage in enumerate(
            (b"SSH-2.0-OpenSSH_9\r\n", b"\x16\x03\x01\x02\x00", b"HTTP/2 200\r\n\r\n", b"\r\n\r\n", b"\x00" * 99), 1
        ):
            container.on_data = partial(_say, garbage)
            client.transport.write(get())
            found = await self.answers(client, number)
            self.assertEqual([answer.message.status for answer in found], [502] * number, garbage)
            await self.until(partial(_has_lost, container, number))

    async def test_a_head_without_end_is_502_after_the_limit_and_costs_no_more(self) -> None:
        def flood(connection: ScriptedProtocol) -> None:
            connection.transport.write(b"HTTP/1.1 200 OK\r\n")
            connection.transport.registerProducer(Endless(connection.transport), False)

        container = ScriptedContainer(flood)
        self.start(container)
        client = await self.connect()
        client.transport.write(get())
        (found,) = await self.answers(client, 1)
        self.assertEqual(found.message.status, 502)
        await self.until(lambda: container.lost == 1)

    async def test_a_second_answer_is_nobodys(self) -> None:
        evil = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
        container = answering(OK + evil)
        self.start(container)
        client = await self.connect()
        for number in range(1, 6):
            client.transport.write(get())
            found = await self.answers(client, number)
            self.assertEqual([answer.message.body for answer in found], ["ok"] * number)
        self.assertEqual(len(container.connections), 5)
        # The same a moment later, on a connection that is idle again.
        container.on_data = lambda connection: (
            connection.transport.write(OK),
            reactor.callLater(0.02, connection.transport.write, evil),
        )
        client.transport.write(get())
        await self.answers(client, 6)
        await self.until(lambda: container.lost == 6)
        self.assertNotIn(b"evil", client.received)


def _say(data: bytes, connection: ScriptedProtocol) -> None:
    connection.transport.write(data)


def _has_lost(container: ScriptedContainer, count: int) -> bool:
    return container.lost == count


class Endless:
    """A pull producer of field lines."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def resumeProducing(self) -> None:
        self._transport.write(b"X-Field: " + b"x" * 4000 + b"\r\n")

    def stopProducing(self) -> None:
        pass


class CrowdTests(EdgeCase):
    limits = EdgeLimits(upstream_idle=2.0, linger_timeout=1.0, connections=2_000, connections_per_client=2_000)

    async def test_five_hundred_clients_of_a_byte_at_a_time_delay_nobody(self) -> None:
        self.start(answering(OK))
        crowd = [await self.connect() for _ in range(500)]
        request = get()
        took = []
        client = await self.connect()
        for nth in range(60):
            # Each of them sends a byte in this round, all through it.
            for number, slow in enumerate(crowd):
                slow.transport.write(request[nth : nth + 1])
                if number % 100 == 0:
                    began = time.perf_counter()
                    before = len(client.received)
                    client.transport.write(request)
                    await self.grown(client, before + len(OK))
                    took.append(time.perf_counter() - began)
        took.sort()
        self.assertLess(took[len(took) // 2], 0.05)
        self.assertLess(took[int(len(took) * 0.95)], 0.25)
        self.assertEqual(self.context.doors.inside, 501)

    async def grown(self, client: RawClient, size: int) -> None:
        """Wait until the client has so many bytes, without asking all the time."""
        there: Deferred[None] = Deferred()
        data_received = client.dataReceived

        def received(data: bytes) -> None:
            data_received(data)
            if len(client.received) >= size and not there.called:
                there.callback(None)

        client.dataReceived = received  # type: ignore[method-assign]
        await there
        client.dataReceived = data_received  # type: ignore[method-assign]

    async def test_a_thousand_random_disconnects_leave_nothing_in_flight(self) -> None:
        chance = random.Random(3)

        def answer(connection: ScriptedProtocol) -> None:
            reactor.callLater(chance.random() * 0.01, connection.transport.write, OK)

        self.start(ScriptedContainer(answer))
        requests = [
            get(),
            get(method=b"POST", extra=b"Content-Length: 5\r\n") + b"12345",
            get(method=b"POST", extra=b"Content-Length: 99999\r\n") + b"x" * 500,
            get(method=b"POST", extra=b"Transfer-Encoding: chunked\r\n") + b"5\r\n12345\r\n0\r\n\r\n",
            get() * 5,
        ]
        for _ in range(50):
            clients = [await self.connect() for _ in range(20)]
            for client in clients:
                data = chance.choice(requests)
                client.transport.write(data[: chance.randrange(1, len(data) + 1)])
            await deferLater(reactor, chance.random() * 0.012)
            for client in clients:
                if client.lost:
                    continue
                (test_http_ends.reset if chance.random() < 0.5 else type(client.transport).loseConnection)(
                    client.transport
                )
        await self.until(lambda: not self.context.doors.inside)
        self.assertEqual(self.routing.held, set())
        self.assertGreater(self.routing.granted, 200)


class FloorTests(EdgeCase):
    limits = EdgeLimits(upstream_idle=2.0, linger_timeout=1.0, min_body_rate=10)

    async def test_a_body_below_the_floor_is_408_and_one_above_it_passes(self) -> None:
        container = RecordingContainer()
        self.start(container)
        slow, fast = await self.connect(), await self.connect()
        head = get(method=b"POST", extra=b"Content-Length: 400\r\n")
        slow.transport.write(head)
        fast.transport.write(head)
        began = time.monotonic()
        while not slow.lost and time.monotonic() < began + FLOOR_WINDOW + 8:
            await deferLater(reactor, 0.5)
            slow.transport.write(b"x")
            fast.transport.write(b"x" * 10)
        self.assertGreaterEqual(time.monotonic() - began, FLOOR_WINDOW)
        (found,) = await self.answers(slow, 1)
        self.assertEqual(found.message.status, 408)
        fast.transport.write(b"x" * 400)
        (found,) = await self.answers(fast, 1)
        self.assertEqual(found.message.status, 200)
        self.assertEqual([record.reason for record in self.records][:1], ["slow_body"])


class ProxyHeaderTests(EdgeCase):
    def listen(self, factory: Factory) -> Any:
        return self.successResultOf(serverFromString(reactor, "haproxy:tcp:0:interface=127.0.0.1").listen(factory))

    async def test_the_header_of_either_version_says_whose_a_connection_is(self) -> None:
        container = RecordingContainer()
        self.start(container)
        first = b"PROXY TCP4 198.51.100.7 192.0.2.1 4711 443\r\n"
        address = bytes((203, 0, 113, 9)) + bytes((192, 0, 2, 1)) + struct.pack("!HH", 4711, 443)
        second = b"\r\n\r\n\x00\r\nQUIT\n" + bytes((0x21, 0x11)) + struct.pack("!H", len(address)) + address
        for header, client_address in ((first, "198.51.100.7"), (second, "203.0.113.9")):
            client = await self.connect()
            client.transport.write(header + get())
            (found,) = await self.answers(client, 1)
            self.assertEqual(found.message.status, 200)
            self.assertIn(("x-forwarded-for", client_address), container.requests[-1].headers)
            client.transport.write(get(b"/again"))
            await self.answers(client, 2)
            self.assertIn(("x-forwarded-for", client_address), container.requests[-1].headers)
            self.assertEqual(self.records[-1].client, client_address)

    async def test_the_header_may_come_alone_and_before_the_rest(self) -> None:
        container = RecordingContainer()
        self.start(container)
        client = await self.connect()
        client.transport.write(b"PROXY TCP4 198.51.100.7 192.0.2.1 4711 443\r\n")
        await self.until(lambda: "198.51.100.7" in self.context.doors._by_address)
        client.transport.write(get())
        await self.answers(client, 1)
        self.assertIn(("x-forwarded-for", "198.51.100.7"), container.requests[0].headers)

    async def test_a_connection_without_a_header_is_closed(self) -> None:
        self.start(RecordingContainer())
        client = await self.connect()
        client.transport.write(get())
        await self.until(partial(lambda one: one.lost, client))
        self.assertEqual(client.received, b"")

    async def test_a_half_closed_client_behind_it_gets_its_answer(self) -> None:
        container = ScriptedContainer(lambda connection: reactor.callLater(0.2, connection.transport.write, OK))
        self.start(container)
        client = await self.connect()
        client.transport.write(b"PROXY TCP4 198.51.100.7 192.0.2.1 4711 443\r\n" + get())
        client.transport.loseWriteConnection()
        (found,) = await self.answers(client, 1)
        self.assertEqual((found.message.status, found.message.body), (200, "ok"))

    def test_the_installed_twisted_reads_headers_as_we_expect(self) -> None:
        # Names of a private module: whoever moves them is to see this.
        self.assertTrue(issubclass(HAProxyWrappingFactory.protocol, HAProxyProtocolWrapper))


class ForgeryTests(EdgeCase):
    async def test_who_offers_many_forged_tokens_gets_429_and_those_behind_the_same_address_are_served(self) -> None:
        self.start(answering(OK))
        self.context.failures = FailureLimit(burst=5, interval=60.0)
        client = await self.connect()
        for number in range(8):
            forged = AUTHORIZED.replace(b"Bearer ", b"Bearer forged%d" % number)
            client.transport.write(b"GET / HTTP/1.1\r\n" + forged + b"\r\n")
            await self.answers(client, number + 1)
        statuses = [answer.message.status for answer in await self.answers(client, 8)]
        self.assertEqual(statuses, [401] * 5 + [429] * 3)
        client.transport.write(get())
        (*_, found) = await self.answers(client, 9)
        self.assertEqual(found.message.status, 200)


class TwistedClientEndTests(test_http_ends.ClientEndTests):
    """The same on Twisted's own transports."""

    own_transports = False


class TwistedContainerEndTests(test_http_ends.ContainerEndTests):
    """The same on Twisted's own transports."""

    own_transports = False


class TwistedBackPressureTests(test_http_streaming.BackPressureTests):
    """The same on Twisted's own transports."""

    own_transports = False
