"""The same edge behind TLS: a FIN means gone, leases end when the bytes have left, back-pressure holds; and WebSockets join."""

from __future__ import annotations

import datetime
import ssl
from functools import partial
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from OpenSSL import SSL
from twisted.internet import ssl as tls
from twisted.internet.protocol import ClientCreator, Factory
from twisted.protocols.tls import TLSMemoryBIOFactory

from sticky.edge.websocket import WebSocketRelays
from tests.fakes.containers import RawClient, RecordingContainer, ScriptedContainer, ScriptedProtocol
from tests.fakes.edge import handshake
from tests.integration.edge_case import EdgeCase, get, reactor

HEAD_END = b"\r\n\r\n"


def self_signed() -> bytes:
    """A key and a certificate for localhost, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    tomorrow = now + datetime.timedelta(days=1)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, tomorrow)
    certificate = builder.sign(key, hashes.SHA256())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + certificate.public_bytes(Encoding.PEM)


class TLSTests(EdgeCase):
    def listen(self, factory: Factory) -> Any:
        certificate = tls.PrivateCertificate.loadPEM(self_signed())
        if self.own_transports:  # below TLS, as a daemon listens
            secure = TLSMemoryBIOFactory(certificate.options(), False, factory)
            return reactor.listenTCP(0, secure, interface="127.0.0.1")
        return reactor.listenSSL(0, factory, certificate.options(), interface="127.0.0.1")

    async def connect(self) -> RawClient:
        client: RawClient = await ClientCreator(reactor, RawClient).connectSSL(
            "127.0.0.1", self.port.getHost().port, tls.CertificateOptions(verify=False)
        )
        self.clients.append(client)
        return client

    async def test_requests_are_answered_and_name_their_scheme(self) -> None:
        self.assertTrue(ssl.HAS_TLSv1_3)
        container = RecordingContainer()
        self.start(container)
        client = await self.connect()
        for count in (1, 2, 3):
            client.transport.write(get())
            answers = await self.answers(client, count)
            self.assertEqual(answers[-1].message.body, "ok")
            await self.until(lambda: not self.routing.held)
        self.assertIn(("x-forwarded-proto", "https"), container.requests[0].headers)

    async def test_a_client_that_closes_while_it_waits_is_gone_at_once(self) -> None:
        container = ScriptedContainer(lambda connection: None)
        self.start(container)
        client = await self.connect()
        client.transport.write(get())
        await self.until(lambda: container.connections and container.connections[0].received.endswith(HEAD_END))
        client.transport.loseConnection()
        await self.until(lambda: not self.routing.held and container.lost == 1, seconds=2)

    async def test_an_upload_nobody_reads_is_answered(self) -> None:
        self.start(None)
        client = await self.connect()
        client.transport.write(b"POST / HTTP/1.1\r\nHost: game.example\r\nContent-Length: 10\r\n\r\n12345")
        (answer,) = await self.answers(client, 1)
        self.assertEqual(answer.message.status, 401)
        await self.until(lambda: client.lost)

    async def test_a_long_answer_passes_whole_and_its_lease_ends(self) -> None:
        data = b"0123456789abcdef" * 100_000

        def answer(connection: ScriptedProtocol) -> None:
            if HEAD_END in connection.received:
                connection.received = b""
                connection.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(data) + data)

        self.start(ScriptedContainer(answer))
        client = await self.connect()
        client.transport.write(get())
        await self.until(lambda: client.received.endswith(data))
        await self.until(lambda: not self.routing.held)

    async def test_an_answer_that_is_cut_off_never_ends_with_a_close_notify(self) -> None:
        def answer(connection: ScriptedProtocol) -> None:
            if HEAD_END in connection.received:
                whole = b"GET /whole" in connection.received
                connection.received = b""
                connection.transport.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n")
                if whole:
                    connection.transport.write(b"0\r\n\r\n")
                else:
                    reactor.callLater(0.05, connection.transport.loseConnection)

        self.start(ScriptedContainer(answer))
        for target, clean in ((b"/cut", False), (b"/whole", True)):
            client = await self.connect()
            connection = client.transport.getHandle()
            # Without chunks: the answer ends with the connection.
            client.transport.write(get(target, version=b"1.0"))
            await self.until(partial(getattr, client, "lost"))
            self.assertTrue(client.received.endswith(b"\r\n\r\nok"), client.received)
            self.assertEqual(bool(connection.get_shutdown() & SSL.RECEIVED_SHUTDOWN), clean, target)


class TwistedsTransportsTests(TLSTests):
    own_transports = False


class WebSocketTests(EdgeCase):
    async def test_the_relay_joins_a_client_and_a_container_and_both_ends_are_counted(self) -> None:
        accept = (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
        )

        def answer(connection: ScriptedProtocol) -> None:
            if connection.received.endswith(HEAD_END):
                connection.transport.write(accept + b"\x81\x02hi")

        container = ScriptedContainer(answer)
        relays = WebSocketRelays(reactor)
        self.start(container, websocket_relay=relays.relay)
        client = await self.connect()
        client.transport.write(handshake() + b"\x81\x82\x00\x00\x00\x00yo")
        await self.until(lambda: client.received.endswith(b"\x81\x02hi"))
        self.assertTrue(client.received.startswith(accept))
        await self.until(lambda: container.connections[0].received.endswith(b"\x81\x82\x00\x00\x00\x00yo"))
        self.assertEqual((len(self.routing.held), self.context.doors.inside), (1, 1))
        client.transport.abortConnection()
        await self.until(lambda: not self.routing.held and not self.context.doors.inside)
        await relays.close_all()

    async def test_a_containers_refusal_reaches_the_client_as_it_is(self) -> None:
        def answer(connection: ScriptedProtocol) -> None:
            if connection.received.endswith(HEAD_END):
                connection.transport.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")

        relays = WebSocketRelays(reactor)
        self.start(ScriptedContainer(answer), websocket_relay=relays.relay)
        client = await self.connect()
        client.transport.write(handshake())
        (found,) = await self.answers(client, 1)
        self.assertEqual((found.message.status, found.message.body), (403, "no"))
        await self.until(lambda: not self.routing.held)
        await relays.close_all()
