"""One request on asyncio's streams, h11 reading and writing HTTP. Owns sockets and time-outs; must not know what a call means.

The same rules as the blocking form's: no redirect, no proxy of the environment. Loaded at the first `.aio`.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from urllib.parse import urlsplit

import h11

from sticky.sdk.steps import BROKEN_OFF, LONGEST_ANSWER, Ask, Failure, Reply, dialled, failed, silent


async def perform(ask: Ask) -> Reply | Failure:
    """Send it, on a connection of its own. Never raises for what the network or the peer does; a cancel closes the connection."""
    try:
        async with asyncio.timeout(ask.timeout):
            reader, writer = await _connect(ask)
            try:
                return await _exchange(ask, reader, writer)
            finally:
                writer.close()
                with suppress(OSError):
                    await writer.wait_closed()
    except TimeoutError:
        return silent(ask)
    except OSError as error:
        return failed(error)
    except h11.ProtocolError as error:
        return Failure(f"the answer is not HTTP or broke off ({type(error).__name__})")


async def _connect(ask: Ask) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if ask.socket is not None:
        return await asyncio.open_unix_connection(str(ask.socket))
    parts = urlsplit(ask.url)
    host = parts.hostname or ""
    if parts.scheme != "https":
        return await asyncio.open_connection(dialled(host), parts.port or 80)
    tls = ssl.create_default_context()
    return await asyncio.open_connection(dialled(host), parts.port or 443, ssl=tls, server_hostname=host)


async def _exchange(ask: Ask, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Reply | Failure:
    parts = urlsplit(ask.url)
    http = h11.Connection(h11.CLIENT)
    headers = {"Host": parts.netloc, "Content-Length": str(len(ask.body)), "Connection": "close", **ask.headers}
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    head = h11.Request(
        method=ask.method,
        target=target,
        headers=[(name.encode("ascii"), value.encode("latin-1")) for name, value in headers.items()],
    )
    for part in (head, h11.Data(ask.body), h11.EndOfMessage()):
        writer.write(http.send(part) or b"")
    await writer.drain()
    status, body = 0, b""
    while True:
        event = http.next_event()
        match event:
            case h11.NEED_DATA:
                http.receive_data(await reader.read(65536))
            case h11.Response():
                status = event.status_code
            case h11.Data():
                body += event.data
                if len(body) > LONGEST_ANSWER:
                    return BROKEN_OFF
            case h11.EndOfMessage():
                return Reply(status, body)
            case h11.ConnectionClosed() | h11.PAUSED:
                return BROKEN_OFF
