"""The relay frame by frame, on real sockets, between hand-made peers and Autobahn's own: over TCP, a Unix socket, and TLS."""

from __future__ import annotations

import gc
from typing import Any

from sticky.core.values import EndReason
from sticky.edge import frames
from sticky.edge.handshake import RelayRules
from tests.integration.ws_matrix import MIB, AutobahnPeers, Pinging, RawMatrix, Supply, close, legs_of, resident
from tests.integration.ws_peers import RelayCase, autobahn_client, autobahn_server, reactor
from tests.strategies_frames import Frame, Reader, encode, parse


class AutobahnPeersTests(AutobahnPeers, RelayCase):
    """Autobahn at both ends."""


class PingingTests(Pinging, RelayCase):
    rules = RelayRules(ping_interval=0.2, ping_timeout=0.4)


class FrameMatrix(RawMatrix):
    """What frames alone can do: they pass while they come."""

    async def test_a_container_that_vanishes_inside_a_frame_cuts_the_client(self: Any) -> None:
        client, container = await self.pair()
        container.transport.write(b"\x82\x7e\x10\x00abc")
        await client.until(lambda: len(client.got) == 7)
        container.transport.abortConnection()
        await client.end()
        self.assertEqual(client.got, b"\x82\x7e\x10\x00abc")

    async def test_our_close_comes_after_the_frame_that_is_being_written(self: Any) -> None:
        client, container = await self.pair()
        frame = encode(Frame(frames.BINARY, bytes(16 * MIB)))
        container.transport.write(frame[: 8 * MIB])
        await client.until(lambda: len(client.got) == 8 * MIB)
        self.fronts.leases[0].holder.session_ended(EndReason.CONTAINER_MAX_AGE, None)
        container.transport.write(frame[8 * MIB :] + encode(Frame(frames.TEXT, b"dropped")))
        said = close(4408, b"container_max_age")
        await client.until(lambda: len(client.got) >= len(frame) + len(said))
        self.assertEqual(client.got[len(frame) :], said)
        client.transport.write(close(4408, masked=True))
        await client.end()
        # Towards the container our frames are masked.
        await container.until(lambda: len(container.got) >= 2 + 4 + 2 + len("container_max_age"))
        (told,) = parse(bytes(container.got))
        self.assertEqual((told.opcode, told.masked, told.payload[2:]), (frames.CLOSE, True, b"container_max_age"))
        container.transport.write(close(4408))
        await container.end()

    async def test_a_stopped_reader_stops_the_other_side_and_the_proxy_holds_little(self: Any) -> None:
        client, container = await self.pair()
        for reader, writer, masked in ((client, container, False), (container, client, True)):
            reader.transport.pauseProducing()
            frame = encode(Frame(frames.BINARY, bytes(32 * MIB), masked=masked))
            supply = Supply(writer.transport, frame)
            await self.until(lambda supply=supply: supply.stalled())
            gc.collect()
            before = resident()
            self.assertLess(supply.sent, 24 * MIB)
            await self.until(lambda supply=supply: supply.stalled())
            self.assertLess(resident() - before, MIB)
            held = sum(
                len(leg.transport._tempDataBuffer) + leg.transport._tempDataLen + len(leg.transport.dataBuffer)
                for leg in legs_of(self)
                if hasattr(leg.transport, "_tempDataBuffer")
            )
            self.assertLess(held, 512 * 1024)
            reader.transport.resumeProducing()
            await reader.until(lambda reader=reader, frame=frame: len(reader.got) >= len(frame))
            self.assertEqual(len(reader.got), len(frame))
            reader.got.clear()
        client.transport.abortConnection()
        await container.end()


class TCPTests(FrameMatrix, RelayCase):
    """Over TCP."""


class TwistedTransportsTests(FrameMatrix, RelayCase):
    """Over TCP with Twisted's transports."""

    own_transports = False


class UNIXTests(FrameMatrix, RelayCase):
    """With a Unix socket to the container."""

    unix = True


class TLSTests(FrameMatrix, RelayCase):
    """With TLS to the client."""

    tls = True


class LoadTests(RelayCase):
    async def test_many_are_closed_at_once(self) -> None:
        server = autobahn_server()
        port = self.relayed(self.listen(server))
        callers = []
        for _ in range(150):
            callers.append(await self.dial(port, autobahn_client()))
        await self.until(lambda: self.relays.open == 150)
        done: list[object] = []
        self.relays.close_all().addCallback(done.append)
        await self.until(lambda: bool(done))
        await self.until(lambda: all(getattr(caller, "ended", None) is not None for caller in callers))
        self.assertEqual({caller.ended for caller in callers}, {(True, 1001, "server_stopped")})

    async def test_a_ping_during_a_large_frame_comes_after_it(self) -> None:
        self.rules = RelayRules(ping_interval=0.3, ping_timeout=20)
        client, container = await self.pair()
        frame = encode(Frame(frames.BINARY, bytes(16 * MIB)))
        container.transport.write(frame[:MIB])
        await client.until(lambda: len(client.got) == MIB)
        moment = reactor.seconds()
        await self.until(lambda: reactor.seconds() - moment > 0.8)
        self.assertEqual(len(client.got), MIB)
        container.transport.write(frame[MIB:])
        await client.until(lambda: len(client.got) >= len(frame) + 10)
        kinds = [one.opcode for one in Reader().feed(bytes(client.got))]
        self.assertEqual(kinds[:2], [frames.BINARY, frames.PING])
        client.transport.abortConnection()
        await container.end()
