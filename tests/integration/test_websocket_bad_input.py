"""Handshakes that are none, and clients that do not wait for the answer, through the whole edge."""

from __future__ import annotations

from typing import Any

from twisted.internet import reactor as _reactor

from sticky.edge import frames
from sticky.edge.handshake import RelayRules
from sticky.edge.websocket import RelayTimes, WebSocketRelays
from tests.fakes.containers import RawClient
from tests.integration.edge_case import AUTHORIZED, EdgeCase
from tests.integration.test_websocket_frontend import upgrade
from tests.integration.ws_peers import KEY, One, RawContainer, accept
from tests.strategies_frames import Frame, encode

reactor: Any = _reactor
GOOD = upgrade()


class Thinking(RawContainer):
    """It never answers."""

    answer = b""


class BadInputTests(EdgeCase):
    def begin(self, container: type[RawContainer] = RawContainer, times: RelayTimes | None = None) -> None:
        self.relays = WebSocketRelays(reactor, times)
        self.containers = One(container)
        self.addCleanup(self.relays.close_all)
        self.start(self.containers, websocket_relay=self.relays.relay)

    async def ask(self, wire: bytes) -> RawClient:
        client = await self.connect()
        client.transport.write(wire)
        await self.until(lambda: b"\r\n\r\n" in client.received or client.lost)
        return client

    async def test_faulty_handshakes_are_refused_and_nothing_reaches_the_container(self) -> None:
        self.begin()
        key, version = b"Sec-WebSocket-Key: " + KEY + b"\r\n", b"Sec-WebSocket-Version: 13\r\n"
        for name, wire, status in (
            ("no key", GOOD.replace(key, b""), 400),
            ("an empty key", GOOD.replace(KEY, b""), 400),
            ("a short key", GOOD.replace(KEY, b"c2hvcnQ="), 400),
            ("a key that is no base64", GOOD.replace(KEY, b"?" * 22 + b"=="), 400),
            ("two keys", GOOD.replace(key, key * 2), 400),
            ("no version", GOOD.replace(version, b""), 426),
            ("version 8", GOOD.replace(version, b"Sec-WebSocket-Version: 8\r\n"), 426),
            ("versions 13, 8", GOOD.replace(version, b"Sec-WebSocket-Version: 13, 8\r\n"), 426),
            ("two versions", GOOD.replace(version, version * 2), 426),
            ("a body", GOOD[:-2] + b"Content-Length: 5\r\n\r\nhello", 400),
            ("a body in chunks", GOOD[:-2] + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
            ("a body of nothing but its length", GOOD[:-2] + b"Content-Length: five\r\n\r\n", 400),
        ):
            client = await self.ask(wire)
            (answer,) = await self.answers(client, 1)
            self.assertEqual(answer.message.status, status, name)
            if status == 426:
                self.assertIn(b"\r\nsec-websocket-version: 13\r\n", client.received.lower(), name)
            await self.until(lambda client=client: bool(client.lost), why=name)  # type: ignore[misc]
        self.assertEqual((self.containers.made, self.relays.dialling, self.routing.granted), ([], 0, 0))

    async def test_upgrades_that_http_does_not_take_for_one_are_ordinary_requests(self) -> None:
        class Plain(RawContainer):
            answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nplain"

        self.begin(Plain)
        for name, wire in (
            ("HTTP/1.0", GOOD.replace(b"HTTP/1.1", b"HTTP/1.0")),
            ("POST", GOOD.replace(b"GET ", b"POST ")),
            ("no Connection: Upgrade", GOOD.replace(b"Connection: Upgrade\r\n", b"")),
            ("another protocol", GOOD.replace(b"Upgrade: websocket", b"Upgrade: h2c")),
        ):
            client = await self.ask(wire)
            self.assertIn(b"plain", client.received, name)
            head = self.containers.made[-1].head.lower()
            self.assertNotIn(b"\r\nupgrade:", head, name)
            client.transport.abortConnection()
            await self.until(lambda: not self.routing.held)

    async def test_data_before_the_answer_is_kept_up_to_a_limit_and_a_flood_ends_the_handshake(self) -> None:
        self.begin(Thinking)
        patient = await self.connect()
        early = encode(Frame(frames.BINARY, bytes(60_000), masked=True))
        patient.transport.write(GOOD + early)
        await self.until(lambda: self.relays.dialling == 1)
        flooding = await self.connect()
        flooding.transport.write(GOOD + bytes(4 << 20))
        await self.until(lambda: flooding.lost)
        await self.until(lambda: self.relays.dialling == 1)
        (container, *_) = self.containers.made
        container.transport.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: " + accept(KEY) + b"\r\n\r\n"
        )
        await self.until(lambda: len(container.got) >= len(early))
        self.assertEqual(container.got, early)
        patient.transport.abortConnection()
        await self.until(lambda: not self.routing.held)

    async def test_a_container_that_never_answers_is_waited_for_until_the_deadline_only(self) -> None:
        self.begin(Thinking, RelayTimes(handshake_timeout=0.5))
        client = await self.ask(GOOD)
        (answer,) = await self.answers(client, 1)
        self.assertEqual(answer.message.status, 504)
        await self.until(lambda: not self.routing.held)
        self.assertEqual(self.relays.dialling, 0)

    async def test_a_handshake_that_is_sent_byte_by_byte_is_understood(self) -> None:
        self.begin()
        client = await self.connect()
        for at in range(len(GOOD)):
            client.transport.write(GOOD[at : at + 1])
            await self.until(lambda: True)
        await self.until(lambda: b"\r\n\r\n" in client.received)
        self.assertTrue(client.received.startswith(b"HTTP/1.1 101 "))
        client.transport.abortConnection()
        await self.until(lambda: not self.routing.held)

    async def test_nothing_that_is_no_frame_harms_anybody_but_the_peer_it_is_sent_to(self) -> None:
        self.site = type(self.site)(name=self.site.name, websocket=RelayRules(mode="messages"))
        self.begin()
        client = await self.ask(GOOD)
        client.transport.write(b"GET / HTTP/1.1\r\n" + AUTHORIZED + b"\r\n")
        await self.until(lambda: client.received.endswith(b"client_protocol_error"))
        client.transport.abortConnection()
        self.containers.made[0].transport.abortConnection()
        await self.until(lambda: not self.routing.held)
