"""WebSockets through the whole edge: the real HTTP frontend hands its handshakes to the relay, and gets refusals back."""

from __future__ import annotations

import struct
from typing import Any

import attrs
from twisted.internet import reactor as _reactor

from sticky.core.values import EndReason
from sticky.edge import frames
from sticky.edge.websocket import WebSocketRelays
from sticky.isticky import TCPAddress
from tests.fakes.containers import RawClient
from tests.fakes.routing import SESSION, TOKEN
from tests.integration.edge_case import AUTHORIZED, EdgeCase
from tests.integration.ws_peers import KEY, One, RawContainer, accept
from tests.strategies_frames import Frame, encode, parse

reactor: Any = _reactor


def upgrade(*lines: bytes, authorized: bool = True) -> bytes:
    """A handshake of the session."""
    return (
        b"GET /chat HTTP/1.1\r\n"
        + (AUTHORIZED if authorized else b"Host: game.example\r\n")
        + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "
        + KEY
        + b"\r\n"
        + b"".join(line + b"\r\n" for line in lines)
        + b"\r\n"
    )


def close(code: int, reason: bytes = b"", *, masked: bool = False) -> bytes:
    """A Close as bytes."""
    return encode(Frame(frames.CLOSE, struct.pack("!H", code) + reason, masked=masked))


class FrontendTests(EdgeCase):
    def begin(self, container: type[RawContainer] = RawContainer, **settings: Any) -> None:
        self.relays = WebSocketRelays(reactor)
        self.containers = One(container)
        self.addCleanup(self.relays.close_all)
        site = attrs.evolve(self.site, **settings)
        self.start(self.containers, site=site, websocket_relay=self.relays.relay)

    async def ask(self, *lines: bytes, authorized: bool = True) -> RawClient:
        client = await self.connect()
        client.transport.write(upgrade(*lines, authorized=authorized))
        await self.until(lambda: b"\r\n\r\n" in client.received or client.lost)
        return client

    async def test_a_handshake_is_relayed_without_its_credential_and_with_the_sessions_id(self) -> None:
        self.begin()
        client = await self.ask(b"X-Odd:  name")
        (container,) = self.containers.made
        self.assertNotIn(TOKEN, container.head)
        self.assertIn(b"x-modal-server-session-id: " + SESSION.encode(), container.head)
        self.assertIn(b"X-Odd:  name\r\n", container.head)
        head, _, rest = client.received.partition(b"\r\n\r\n")
        self.assertTrue(head.startswith(b"HTTP/1.1 101 "))
        self.assertIn(accept(KEY), head)
        self.assertEqual(rest, b"")
        self.assertEqual((len(self.routing.held), self.context.doors.inside), (1, 1))
        hello = encode(Frame(frames.TEXT, b"hello", masked=True))
        client.transport.write(hello)
        await self.until(lambda: container.got == hello)
        client.transport.write(close(1000, masked=True))
        await self.until(lambda: len(container.got) > len(hello))
        container.transport.write(close(1000))
        await self.until(lambda: client.lost)
        self.assertTrue(client.received.endswith(close(1000)))
        await self.until(lambda: not self.routing.held)
        await self.until(lambda: not self.context.doors.inside)

    async def test_the_token_in_a_subprotocol_is_stripped_and_ours_answered(self) -> None:
        self.begin()
        client = await self.ask(
            b"Sec-WebSocket-Protocol: modal-session, modal-session-token." + TOKEN, authorized=False
        )
        (container,) = self.containers.made
        self.assertNotIn(b"modal-session-token", container.head)
        self.assertNotIn(TOKEN, container.head)
        self.assertIn(b"\r\nSec-WebSocket-Protocol: modal-session\r\n", client.received)
        client.transport.abortConnection()
        await self.until(lambda: not self.routing.held)

    async def test_an_ended_session_is_told_to_both_sides(self) -> None:
        self.begin()
        client = await self.ask()
        (container,) = self.containers.made
        self.routing.end_all(EndReason.DEPLOYMENT_ENDED)
        said = close(1012, b"deployment_ended")
        await self.until(lambda: client.received.endswith(said))
        await self.until(lambda: len(container.got) >= len(said) + 4)
        (frame,) = parse(bytes(container.got))
        self.assertEqual(frame.payload, struct.pack("!H", 1012) + b"deployment_ended")
        client.transport.write(close(1012, masked=True))
        container.transport.write(close(1012))
        await self.until(lambda: client.lost)

    async def test_refusals_of_the_container_pass_and_the_connection_serves_the_next_request(self) -> None:
        class Refusing(RawContainer):
            answer = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 4\r\nX-Why: because\r\n\r\nnope"

        self.begin(Refusing)
        client = await self.ask()
        (answer,) = await self.answers(client, 1)
        self.assertEqual((answer.message.status, answer.message.body), (401, "nope"))
        client.transport.write(upgrade())
        answers = await self.answers(client, 2)
        self.assertEqual([answer.message.status for answer in answers], [401, 401])
        await self.until(lambda: not self.routing.held)
        self.assertEqual(self.relays.dialling, 0)

    async def test_a_container_that_is_not_there_is_503_and_one_that_breaks_off_502(self) -> None:
        class Breaking(RawContainer):
            answer = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n"

        self.begin(Breaking)
        client = await self.ask()
        (answer,) = await self.answers(client, 1)
        self.assertEqual(answer.message.status, 502)
        self.routing.address = TCPAddress("127.0.0.1", 1)
        client = await self.ask()
        (answer,) = await self.answers(client, 1)
        self.assertEqual(answer.message.status, 503)
        await self.until(lambda: not self.routing.held)

    async def test_frames_that_come_with_the_handshake_are_kept(self) -> None:
        self.begin()
        client = await self.connect()
        early = encode(Frame(frames.BINARY, bytes(30_000), masked=True))
        client.transport.write(upgrade() + early)
        await self.until(lambda: self.containers.made and len(self.containers.made[0].got) >= len(early))
        self.assertEqual(self.containers.made[0].got, early)
        client.transport.abortConnection()
        await self.until(lambda: not self.routing.held)

    async def test_a_client_that_leaves_while_the_container_thinks_is_forgotten(self) -> None:
        class Thinking(RawContainer):
            answer = b""

        self.begin(Thinking)
        client = await self.connect()
        client.transport.write(upgrade())
        await self.until(lambda: self.containers.made and self.containers.made[0].head)
        self.assertEqual(self.relays.dialling, 1)
        client.transport.abortConnection()
        await self.until(lambda: not self.routing.held)
        await self.until(lambda: self.containers.made[0].gone or self.containers.made[0].fin)
        self.assertEqual(self.relays.dialling, 0)

    async def test_half_open_handshakes_do_not_keep_others_from_being_served(self) -> None:
        class Thinking(RawContainer):
            answer = b""

        self.begin(Thinking)
        for _ in range(100):
            client = await self.connect()
            client.transport.write(upgrade())
        await self.until(lambda: self.relays.dialling == 100)
        Thinking.answer = None  # type: ignore[assignment]
        served = await self.ask()
        self.assertTrue(served.received.startswith(b"HTTP/1.1 101 "))
        for client in self.clients:
            client.transport.abortConnection()
        await self.until(lambda: not self.routing.held)
