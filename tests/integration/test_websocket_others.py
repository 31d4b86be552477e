"""The relay between others' clients and servers: `websockets` and `aiohttp`, each against each, with deflate and over TLS."""

from __future__ import annotations

import asyncio
import ssl as ssl_module
from collections.abc import Callable
from typing import Any

from twisted.trial.unittest import SkipTest

from sticky.core.values import EndReason
from sticky.edge.handshake import RelayRules
from sticky.isticky import TCPAddress
from tests.integration.ws_peers import AsyncioServer, RelayCase, in_thread

try:
    import websockets
    import websockets.asyncio.client
    import websockets.asyncio.server
except ImportError:
    websockets = None  # type: ignore[assignment]
try:
    import aiohttp
    import aiohttp.web
except ImportError:
    aiohttp = None  # type: ignore[assignment]

CHAT: Any = ["chat"]
TEXT = "the same words again and again, and näher " * 200


def websockets_server(seen: list[Any]) -> AsyncioServer:
    """Echo; `seen` gets each connection's close."""

    async def echo(connection: Any) -> None:
        try:
            async for message in connection:
                await connection.send(message)
        except websockets.ConnectionClosedError:
            pass
        seen.append((connection.close_code, connection.close_reason))

    async def serve(listening: Callable[[int], None]) -> None:
        async with websockets.asyncio.server.serve(echo, "127.0.0.1", 0, subprotocols=CHAT, max_size=None) as server:
            listening(next(iter(server.sockets)).getsockname()[1])
            await asyncio.get_running_loop().create_future()

    return AsyncioServer(serve)


def aiohttp_server(seen: list[Any]) -> AsyncioServer:
    """The same with aiohttp."""

    async def echo(request: Any) -> Any:
        socket = aiohttp.web.WebSocketResponse(protocols=["chat"], max_msg_size=0)
        await socket.prepare(request)
        async for message in socket:
            if message.type is aiohttp.WSMsgType.TEXT:
                await socket.send_str(message.data)
            elif message.type is aiohttp.WSMsgType.BINARY:
                await socket.send_bytes(message.data)
        seen.append((socket.close_code, None))
        return socket

    async def serve(listening: Callable[[int], None]) -> None:
        app = aiohttp.web.Application()
        app.router.add_get("/{tail:.*}", echo)
        runner = aiohttp.web.AppRunner(app)
        await runner.setup()
        site = aiohttp.web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        listening(runner.addresses[0][1])
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            await runner.cleanup()

    return AsyncioServer(serve)


def insecure() -> ssl_module.SSLContext:
    """A client's context that trusts our made-up certificate."""
    context = ssl_module.SSLContext(ssl_module.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl_module.CERT_NONE
    return context


async def websockets_client(url: str, hold: bool) -> tuple[Any, ...]:
    """Talk; then close with 3001, or with `hold` wait to be closed. Returns (extensions, subprotocol, code, reason)."""
    context = insecure() if url.startswith("wss") else None
    async with websockets.asyncio.client.connect(url, ssl=context, subprotocols=CHAT, max_size=None) as socket:
        for _ in range(5):
            await socket.send(TEXT)
            assert await socket.recv() == TEXT
        await socket.send(b"x" * (1 << 22))
        assert await socket.recv() == b"x" * (1 << 22)
        await socket.send("")
        assert await socket.recv() == ""
        await socket.send(["frag", "men", "ted"])
        assert await socket.recv() == "fragmented"
        await (await socket.ping())
        extensions = [type(extension).__name__ for extension in socket.protocol.extensions]
        if hold:
            try:
                await socket.recv()
            except websockets.ConnectionClosed:
                pass
        else:
            await socket.close(3001, "bye")
        return extensions, socket.subprotocol, socket.close_code, socket.close_reason


async def aiohttp_client(url: str, hold: bool) -> tuple[Any, ...]:
    """The same with aiohttp, with 15 bits of deflate."""
    context: Any = insecure() if url.startswith("wss") else True
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(url, ssl=context, protocols=["chat"], max_msg_size=0, compress=15) as socket,
    ):
        for _ in range(5):
            await socket.send_str(TEXT)
            assert (await socket.receive()).data == TEXT
        await socket.send_bytes(b"x" * (1 << 22))
        assert (await socket.receive()).data == b"x" * (1 << 22)
        await socket.send_str("")
        assert (await socket.receive()).data == ""
        reason = None
        if hold:
            message = await socket.receive()
            reason = message.extra
        else:
            await socket.close(code=3001, message=b"bye")
        return (["PerMessageDeflate"] if socket.compress else []), socket.protocol, socket.close_code, reason


class OthersTests(RelayCase):
    rules = RelayRules(ping_interval=0.5, ping_timeout=5)

    async def converse(self, make_server: Any, client: Any, *, hold: bool = False) -> tuple[Any, list[Any]]:
        """Returns what the client saw, and what the server saw of the end."""
        seen: list[Any] = []
        server = make_server(seen)
        self.addCleanup(server.stop)
        port = self.relayed(TCPAddress("127.0.0.1", server.port))
        url = f"{'wss' if self.tls else 'ws'}://localhost:{port}/chat"
        running = in_thread(lambda: client(url, hold))
        if hold:
            await self.until(lambda: self.relays.open == 1)
            holder = self.fronts.leases[0].holder
            # Words have passed both ways for long enough that a ping of ours was among them.
            await self.until(lambda: self.relays.marks.count > 1)
            holder.session_ended(EndReason.TERMINATED, None)
        result = await running
        await self.until(lambda: bool(seen))
        return result, seen

    def need(self, *modules: Any) -> None:
        if None in modules:
            raise SkipTest("websockets or aiohttp is not installed")

    async def compare(self, make_server: Any, client: Any) -> None:
        """Through the proxy and straight to the server, client and server see the same."""
        (through, seen) = await self.converse(make_server, client)
        direct_seen: list[Any] = []
        server = make_server(direct_seen)
        self.addCleanup(server.stop)
        direct = await in_thread(lambda: client(f"ws://localhost:{server.port}/chat", False))
        await self.until(lambda: bool(direct_seen))
        self.assertEqual(through, direct)
        self.assertEqual(seen, direct_seen)
        self.assertEqual(through[:2], (["PerMessageDeflate"], "chat"))
        self.assertEqual(seen[0][0], 3001)

    async def test_websockets_to_websockets(self) -> None:
        self.need(websockets)
        await self.compare(websockets_server, websockets_client)

    async def test_aiohttp_to_aiohttp(self) -> None:
        self.need(aiohttp)
        await self.compare(aiohttp_server, aiohttp_client)

    async def test_websockets_to_aiohttp(self) -> None:
        self.need(websockets, aiohttp)
        await self.compare(aiohttp_server, websockets_client)

    async def test_aiohttp_to_websockets(self) -> None:
        self.need(websockets, aiohttp)
        await self.compare(websockets_server, aiohttp_client)

    async def test_our_close_reaches_websockets_on_both_sides(self) -> None:
        self.need(websockets)
        result, seen = await self.converse(websockets_server, websockets_client, hold=True)
        self.assertEqual(result[2:], (4410, "terminated"))
        self.assertEqual(seen, [(4410, "terminated")])

    async def test_our_close_reaches_aiohttp_on_both_sides(self) -> None:
        self.need(aiohttp)
        result, seen = await self.converse(aiohttp_server, aiohttp_client, hold=True)
        self.assertEqual(result[2:], (4410, "terminated"))
        self.assertEqual(seen[0][0], 4410)


class OthersOverTLSTests(OthersTests):
    tls = True
