"""Our own streams over real sockets keep what Twisted's transports promise, on the reactor's own loop and on the fast one."""

from __future__ import annotations

import os
import select
import shutil
import socket
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import skipIf

from twisted.internet import reactor as _reactor
from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.error import ConnectionRefusedError as Refused
from twisted.internet.interfaces import IHalfCloseableProtocol
from twisted.internet.protocol import ClientFactory, Factory, Protocol
from twisted.internet.task import Clock, deferLater
from twisted.python.failure import Failure
from twisted.trial.unittest import TestCase
from zope.interface import implementer

from sticky.edge import transport
from sticky.edge.accepting import Acceptor
from sticky.edge.dialling import Attempt, Connecting, Dialler
from sticky.edge.fast_loop import accelerate, can_accelerate
from sticky.edge.transport import HIGH, READ_SIZE, Stream

reactor: Any = _reactor


@implementer(IHalfCloseableProtocol)
class Noting(Protocol):
    """Notes what it is told."""

    transport: Any

    def __init__(self) -> None:
        self.received = b""
        self.ended: list[str] = []

    def dataReceived(self, data: bytes) -> None:
        self.received += data

    def readConnectionLost(self) -> None:
        self.ended.append("read")

    def writeConnectionLost(self) -> None:
        self.ended.append("write")

    def connectionLost(self, reason: Failure = None) -> None:  # type: ignore[assignment]
        self.ended.append(type(reason.value).__name__)


class Producer:
    """Counts how often it is paused and resumed."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def pauseProducing(self) -> None:
        self.calls.append("pause")

    def resumeProducing(self) -> None:
        self.calls.append("resume")

    def stopProducing(self) -> None:
        self.calls.append("stop")


class Ending(Producer):
    """Has nothing more when it is asked the second time, and says so with this."""

    def __init__(self, stream: Stream, end: Callable[[], None]) -> None:
        super().__init__()
        self.stream = stream
        self.end = end

    def resumeProducing(self) -> None:
        super().resumeProducing()
        if len(self.calls) == 2:
            self.stream.unregisterProducer()
            self.end()


class FailingAtOnce(Noting):
    """Fails when it gets its connection."""

    def makeConnection(self, transport: Any) -> None:
        raise ZeroDivisionError


class StreamCase(TestCase):
    """One stream of ours, and a plain socket at its other end."""

    timeout = 30

    def pair(self, protocol: Any = None) -> tuple[Stream, Any, socket.socket]:
        ours, peer = socket.socketpair()
        ours.setblocking(False)
        peer.setblocking(False)
        protocol = protocol or Noting()
        stream = Stream(reactor, ours, protocol)
        stream.startReading()
        protocol.makeConnection(stream)
        self.addCleanup(peer.close)

        def end() -> Any:
            stream.abortConnection()
            return deferLater(reactor, 0.02)

        self.addCleanup(end)
        return stream, protocol, peer

    async def until(self, what: Any, seconds: float = 5.0) -> None:
        deadline = reactor.seconds() + seconds
        while not what():
            if reactor.seconds() > deadline:
                self.fail("it did not come true")
            await deferLater(reactor, 0.002)

    async def take(self, peer: socket.socket, size: int) -> bytes:
        """So many bytes from the stream."""
        data = b""

        def more() -> bool:
            nonlocal data
            try:
                data += peer.recv(1 << 20)
            except BlockingIOError:
                return False
            return len(data) >= size

        await self.until(more)
        return data


class WriteTests(StreamCase):
    async def test_a_small_write_is_in_the_kernel_when_it_returns(self) -> None:
        stream, _, peer = self.pair()
        stream.write(b"hello")
        self.assertEqual((peer.recv(10), stream.buffered), (b"hello", 0))

    async def test_what_does_not_fit_is_queued_and_arrives_in_order(self) -> None:
        stream, _, peer = self.pair()
        data = bytes(range(256)) * 8_000
        stream.write(data)
        stream.writeSequence([b"then", b" this"])
        for number in range(200):
            stream.write(b"%03d" % number)
        self.assertGreater(stream.buffered, 0)
        expected = data + b"then this" + b"".join(b"%03d" % number for number in range(200))
        self.assertEqual(await self.take(peer, len(expected)), expected)
        await self.until(lambda: stream.buffered == 0)

    async def test_a_push_producer_is_paused_above_the_mark_and_resumed_when_all_is_out(self) -> None:
        stream, _, peer = self.pair()
        producer = Producer()
        stream.registerProducer(producer, True)
        size = 0
        while stream.buffered <= HIGH:
            stream.write(b"x" * 50_000)
            size += 50_000
        self.assertEqual(producer.calls, ["pause"])
        await self.take(peer, size)
        await self.until(lambda: producer.calls == ["pause", "resume"])

    async def test_a_pull_producer_is_asked_when_nothing_is_queued(self) -> None:
        stream, _, _ = self.pair()
        producer = Producer()
        stream.registerProducer(producer, False)
        self.assertEqual(producer.calls, ["resume"])
        await self.until(lambda: len(producer.calls) > 1)
        stream.unregisterProducer()

    async def test_two_producers_are_one_too_many(self) -> None:
        stream, _, _ = self.pair()
        stream.registerProducer(Producer(), True)
        with self.assertRaises(RuntimeError):
            stream.registerProducer(Producer(), True)


class ReadTests(StreamCase):
    async def test_a_paused_stream_delivers_nothing_and_a_resumed_one_all(self) -> None:
        stream, protocol, peer = self.pair()
        stream.pauseProducing()
        stream.pauseProducing()
        peer.send(b"x" * 1000)
        await deferLater(reactor, 0.02)
        self.assertEqual(protocol.received, b"")
        stream.resumeProducing()
        await self.until(lambda: len(protocol.received) == 1000)

    async def test_one_read_is_bounded(self) -> None:
        stream, protocol, peer = self.pair()
        stream.pauseProducing()
        peer.setblocking(True)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        peer.send(b"x" * (READ_SIZE + 10))
        stream.doRead()
        self.assertLessEqual(len(protocol.received), READ_SIZE)

    async def test_the_protocol_may_be_exchanged(self) -> None:
        stream, first, peer = self.pair()
        second = Noting()
        stream.protocol = second
        peer.send(b"x")
        await self.until(lambda: second.received == b"x")
        self.assertEqual(first.received, b"")


class EndTests(StreamCase):
    async def test_a_fin_is_half_a_close(self) -> None:
        stream, protocol, peer = self.pair()
        peer.shutdown(socket.SHUT_WR)
        await self.until(lambda: protocol.ended == ["read"])
        stream.write(b"still")
        self.assertEqual(peer.recv(10), b"still")
        stream.loseConnection()
        await self.until(lambda: protocol.ended == ["read", "ConnectionDone"])

    async def test_a_fin_is_the_end_for_a_protocol_that_knows_no_half(self) -> None:
        ended: list[Failure] = []

        class Plain(Protocol):
            def connectionLost(self, reason: Failure = None) -> None:  # type: ignore[assignment]
                ended.append(reason)

        _, _, peer = self.pair(Plain())
        peer.close()
        await self.until(lambda: ended)
        ended[0].trap(ConnectionDone)

    async def test_our_own_fin_follows_what_was_written(self) -> None:
        stream, protocol, peer = self.pair()
        stream.write(b"x" * 2_000_000)
        stream.loseWriteConnection()
        self.assertEqual(len(await self.take(peer, 2_000_000)), 2_000_000)
        await self.until(lambda: protocol.ended == ["write"])
        self.assertEqual(peer.recv(10), b"")
        stream.write(b"nothing goes now")
        peer.send(b"but this comes")
        await self.until(lambda: protocol.received == b"but this comes")

    async def test_a_producer_that_ends_our_half_when_it_is_asked_is_followed_by_our_fin(self) -> None:
        stream, protocol, peer = self.pair()
        stream.write(b"x" * 2_000_000)
        stream.registerProducer(Ending(stream, stream.loseWriteConnection), False)
        await self.take(peer, 2_000_000)
        await self.until(lambda: protocol.ended == ["write"])
        self.assertEqual(peer.recv(10), b"")
        peer.send(b"and its peer may go on")
        await self.until(lambda: protocol.received == b"and its peer may go on")

    async def test_a_producer_that_closes_when_it_is_asked_is_followed_by_the_end(self) -> None:
        stream, protocol, peer = self.pair()
        stream.write(b"x" * 2_000_000)
        stream.registerProducer(Ending(stream, stream.loseConnection), False)
        await self.take(peer, 2_000_000)
        await self.until(lambda: protocol.ended == ["ConnectionDone"])

    async def test_what_a_producer_gives_before_a_close_goes_out(self) -> None:
        stream, protocol, peer = self.pair()
        stream.write(b"x" * 2_000_000)
        stream.registerProducer(Ending(stream, lambda: stream.write(b"the last")), False)
        stream.loseConnection()
        self.assertEqual((await self.take(peer, 2_000_008))[-8:], b"the last")
        await self.until(lambda: protocol.ended == ["ConnectionDone"])

    async def test_a_close_waits_for_what_was_written_and_is_told_in_a_later_turn(self) -> None:
        stream, protocol, peer = self.pair()
        stream.write(b"x" * 2_000_000)
        stream.loseConnection()
        stream.loseConnection()
        self.assertEqual(protocol.ended, [])
        await self.take(peer, 2_000_000)
        await self.until(lambda: protocol.ended == ["ConnectionDone"])
        idle, quick, _ = self.pair()
        idle.loseConnection()
        self.assertEqual(quick.ended, [])
        await self.until(lambda: quick.ended == ["ConnectionDone"])

    async def test_a_paused_producer_is_asked_before_a_close(self) -> None:
        stream, protocol, peer = self.pair()
        producer = Producer()
        stream.registerProducer(producer, True)
        stream.write(b"x" * 2_000_000)
        stream.loseConnection()
        await self.take(peer, 2_000_000)
        await self.until(lambda: producer.calls[:2] == ["pause", "resume"])
        await self.until(lambda: protocol.ended == ["ConnectionDone"])

    async def test_an_abort_drops_what_is_queued_and_resets(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        peer = socket.create_connection(listener.getsockname())
        self.addCleanup(peer.close)
        ours, _ = listener.accept()
        ours.setblocking(False)
        protocol = Noting()
        stream = Stream(reactor, ours, protocol)
        protocol.makeConnection(stream)
        producer = Producer()
        stream.registerProducer(producer, True)
        stream.write(b"x" * 10_000_000)
        stream.abortConnection()
        stream.abortConnection()
        stream.write(b"after")
        self.assertEqual(protocol.ended, [])
        await self.until(lambda: protocol.ended == ["ConnectionAborted"])
        self.assertEqual(producer.calls, ["pause", "stop"])
        with self.assertRaises(ConnectionResetError):
            while peer.recv(1 << 20):
                pass

    async def test_a_write_to_a_peer_that_is_gone_tells_the_protocol_once(self) -> None:
        stream, protocol, peer = self.pair()
        stream.pauseProducing()
        peer.close()
        stream.write(b"x")
        stream.write(b"y")
        await self.until(lambda: protocol.ended)
        await deferLater(reactor, 0.02)
        self.assertEqual(len(protocol.ended), 1)
        self.assertIn(protocol.ended[0], (ConnectionLost.__name__, ConnectionDone.__name__))

    async def test_a_protocol_that_fails_loses_its_connection_and_nobody_elses(self) -> None:
        class Failing(Noting):
            def dataReceived(self, data: bytes) -> None:
                raise ZeroDivisionError

        _, failing, peer = self.pair(Failing())
        _, other, other_peer = self.pair()
        peer.send(b"x")
        await self.until(lambda: failing.ended == ["ZeroDivisionError"])
        other_peer.send(b"y")
        await self.until(lambda: other.received == b"y")
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)


class Blind(Clock):
    """A reactor that calls what is due and never looks at a socket."""

    def addReader(self, reader: object) -> None:
        pass

    removeReader = addWriter = removeWriter = addReader


class DialTests(StreamCase):
    async def test_a_listener_and_a_dial_meet(self) -> None:
        made: list[Noting] = []

        class Making(Factory):
            def buildProtocol(self, address: Any) -> Any:
                made.append(Noting())
                return made[-1]

        port = Acceptor(reactor.listenTCP(0, Making(), interface="127.0.0.1"), lambda text, **fields: None)
        dialled = Noting()
        factory = ClientFactory()
        factory.buildProtocol = lambda address: dialled  # type: ignore[method-assign,assignment]
        attempt = Dialler(reactor).connectTCP("127.0.0.1", port.getHost().port, factory)
        await self.until(lambda: made and made[0].transport and dialled.transport)
        self.assertIs(attempt.state, Attempt.CONNECTED)
        dialled.transport.write(b"x" * 300_000)
        await self.until(lambda: len(made[0].received) == 300_000)
        self.assertEqual(made[0].transport.getPeer(), dialled.transport.getHost())
        self.assertTrue(made[0].transport.getTcpNoDelay() and made[0].transport.getTcpKeepAlive())
        await port.stopListening()
        attempt.disconnect()
        await self.until(lambda: made[0].ended == ["read"] and dialled.ended == ["ConnectionDone"])
        made[0].transport.loseConnection()
        await self.until(lambda: made[0].ended == ["read", "ConnectionDone"])

    async def test_a_container_that_resets_a_connection_at_once_is_a_connection_that_ended(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        dialled = Noting()
        addresses: list[Any] = []

        class Making(ClientFactory):
            def buildProtocol(self, address: Any) -> Any:
                addresses.append(address)
                return dialled

        attempt = Connecting(reactor, socket.AF_INET, listener.getsockname(), Making(), 5)
        self.assertEqual(addresses, [])
        peer, _ = listener.accept()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()
        assert attempt._handle is not None
        attempt._handle.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)  # the reset comes after the look for an error
        self.assertRaises(OSError, attempt._handle.getpeername)
        attempt.doWrite()
        self.assertEqual(addresses, [IPv4Address("TCP", *listener.getsockname())])
        self.assertEqual(dialled.transport.getPeer(), IPv4Address("TCP", "", 0))
        await self.until(lambda: dialled.ended)

    async def test_patience_that_ends_after_a_standstill_is_no_reason_to_give_up_what_stands_or_was_refused(
        self,
    ) -> None:
        """The timer is called before anybody looks at the socket: what counts is how that is."""
        for becomes, expected in (("slow", "TimeoutError"), ("refused", "ConnectionRefusedError"), ("stands", "")):
            listener = socket.socket()
            self.addCleanup(listener.close)
            listener.bind(("127.0.0.1", 0))
            listener.listen(0)
            first = socket.create_connection(listener.getsockname())  # there is no room for another one
            self.addCleanup(first.close)
            dialled = Noting()
            failed: list[str] = []

            class One(ClientFactory):
                def buildProtocol(self, address: Any, dialled: Noting = dialled) -> Any:
                    return dialled

                def clientConnectionFailed(self, connector: Any, reason: Failure, failed: list[str] = failed) -> None:
                    failed.append(type(reason.value).__name__)

            blind = Blind()
            attempt = Connecting(blind, socket.AF_INET, listener.getsockname(), One(), 5)
            handle = attempt._handle
            assert handle is not None
            if becomes == "refused":
                listener.close()
            elif becomes == "stands":
                listener.accept()[0].close()
            if becomes != "slow":
                await self.until(lambda handle=handle: select.select([], [handle], [], 0)[1])
            self.assertIs(attempt.state, Attempt.UNDER_WAY)
            blind.advance(600)
            self.assertEqual((failed, dialled.transport is None), ([expected], True) if expected else ([], False))
            blind.advance(0)
            if dialled.transport is not None:
                dialled.transport.abortConnection()
                blind.advance(0)

    async def test_a_dialled_protocol_that_fails_at_once_loses_its_connection(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        failing = FailingAtOnce()
        factory = ClientFactory()
        factory.buildProtocol = lambda address: failing  # type: ignore[method-assign,assignment]
        Dialler(reactor).connectTCP("127.0.0.1", listener.getsockname()[1], factory)
        await self.until(lambda: failing.ended == ["ConnectionAborted"])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    async def test_a_link_in_the_place_of_a_unix_socket_leads_nowhere(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="sticky-"))
        self.addCleanup(shutil.rmtree, folder)
        door = socket.socket(socket.AF_UNIX)
        self.addCleanup(door.close)
        door.bind(str(folder / "elsewhere"))
        door.listen()
        (folder / "door").symlink_to(folder / "elsewhere")
        failed: list[Failure] = []

        class Trying(ClientFactory):
            def clientConnectionFailed(self, connector: Any, reason: Failure) -> None:
                failed.append(reason)

        Dialler(reactor).connectUNIX(str(folder / "door"), Trying())
        await self.until(lambda: failed)
        self.assertEqual(failed[0].type, Refused)

    async def test_a_factory_that_fails_is_told_so_and_its_connection_closed(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        failed: list[Failure] = []

        class Failing(ClientFactory):
            def buildProtocol(self, address: Any) -> Any:
                raise ZeroDivisionError

            def clientConnectionFailed(self, connector: Any, reason: Failure) -> None:
                failed.append(reason)

        Dialler(reactor).connectTCP("127.0.0.1", listener.getsockname()[1], Failing())
        await self.until(lambda: failed)
        peer, _ = listener.accept()
        self.addCleanup(peer.close)
        peer.setblocking(False)
        await self.until(lambda: peer.recv(1) == b"")
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    async def test_a_client_whose_protocol_or_factory_fails_is_closed_and_others_are_served(self) -> None:
        failing = FailingAtOnce()
        good = Noting()
        to_make: list[Any] = [failing, None, good]

        class Making(Factory):
            def buildProtocol(self, address: Any) -> Any:
                return to_make.pop(0) or 1 // 0

        port = Acceptor(reactor.listenTCP(0, Making(), interface="127.0.0.1"), lambda text, **fields: None)
        clients = []
        for _ in range(3):
            clients.append(socket.create_connection(("127.0.0.1", port.getHost().port)))
            self.addCleanup(clients[-1].close)
        clients[2].send(b"hello")
        await self.until(lambda: good.received == b"hello" and failing.ended == ["ConnectionAborted"])
        for client in clients[:2]:
            client.settimeout(5)
            try:
                self.assertEqual(client.recv(1), b"")
            except ConnectionResetError:
                pass
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 2)
        good.transport.abortConnection()
        await port.stopListening()

    async def test_refused_given_up_and_impossible_dials_fail_once_in_a_later_turn(self) -> None:
        failed: list[str] = []

        class Trying(ClientFactory):
            def clientConnectionFailed(self, connector: Any, reason: Failure) -> None:
                failed.append(type(reason.value).__name__)

        with socket.create_server(("127.0.0.1", 0)) as taken:
            free = taken.getsockname()[1]
        dialler = Dialler(reactor)
        dialler.connectTCP("127.0.0.1", free, Trying())
        self.assertEqual(failed, [])
        await self.until(lambda: failed == ["ConnectionRefusedError"])
        dialler.connectUNIX("/nonexistent/socket", Trying())
        await self.until(lambda: len(failed) == 2)
        attempt = dialler.connectTCP("127.0.0.1", free, Trying())
        attempt.disconnect()
        attempt.disconnect()
        await deferLater(reactor, 0.05)
        self.assertEqual(failed[2:], ["UserError"])


class Taking(Protocol):
    """Keeps what comes."""

    def __init__(self, taken: list[bytes]) -> None:
        self.taken = taken

    def dataReceived(self, data: bytes) -> None:
        self.taken.append(data)


class FastLoopTests(TestCase):
    def test_the_installed_twisted_has_what_the_fast_loop_uses(self) -> None:
        from twisted.internet.epollreactor import EPollReactor

        own = EPollReactor()
        self.addCleanup(own._poller.close)
        self.assertTrue(can_accelerate(own))
        self.assertTrue(accelerate(own))
        self.assertIsNot(own.doIteration, own.doPoll)

    def test_an_end_that_fails_takes_nothing_from_those_that_were_read_with_it(self) -> None:
        from twisted.internet.epollreactor import EPollReactor

        class Failing(Protocol):
            def connectionLost(self, reason: Failure = None) -> None:  # type: ignore[assignment]
                raise ZeroDivisionError

        own = EPollReactor()
        self.addCleanup(own._poller.close)
        accelerate(own)
        taken: list[bytes] = []
        peers = []
        for protocol in (Failing(), Taking(taken), Failing(), Taking(taken)):
            ours, theirs = socket.socketpair()
            self.addCleanup(ours.close)
            self.addCleanup(theirs.close)
            ours.setblocking(False)
            transport.begin(Stream(own, ours, protocol))
            peers.append(theirs)
        for peer in peers[1::2]:
            peer.sendall(b"data")
        for peer in peers[::2]:
            peer.shutdown(socket.SHUT_WR)
        own.doIteration(0)
        self.assertEqual(taken, [b"data", b"data"])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 2)

    def test_other_reactors_are_left_alone(self) -> None:
        from twisted.internet.pollreactor import PollReactor

        own = PollReactor()
        before = own.doIteration
        self.assertFalse(accelerate(own))
        self.assertEqual(own.doIteration, before)


class _Fast(StreamCase):
    """The same on the fast loop."""

    def setUp(self) -> None:
        before = reactor.doIteration
        if accelerate(reactor):
            self.addCleanup(setattr, reactor, "doIteration", before)


class FastWriteTests(_Fast, WriteTests):
    pass


class FastReadTests(_Fast, ReadTests):
    pass


class FastEndTests(_Fast, EndTests):
    pass


class FastDialTests(_Fast, DialTests):
    pass


class _Pure(StreamCase):
    """The same without the compiled reads and writes."""

    def setUp(self) -> None:
        self.patch(transport, "descriptor", None)


class PureWriteTests(_Pure, WriteTests):
    pass


class PureReadTests(_Pure, ReadTests):
    pass


class PureEndTests(_Pure, EndTests):
    pass


@skipIf(transport.descriptor is None, "they are not built")
class DescriptorTests(TestCase):
    """Compiled reads and writes are those of the socket module."""

    def setUp(self) -> None:
        self.one, self.other = socket.socketpair()
        for end in (self.one, self.other):
            end.setblocking(False)
            self.addCleanup(end.close)
        assert transport.descriptor is not None
        self.ours = transport.descriptor(self.one.fileno())

    def test_any_sequence_of_sizes_arrives_whole(self) -> None:
        for size in (1, 10, READ_SIZE - 1, READ_SIZE, READ_SIZE + 1, 3 * READ_SIZE, 5, 2 * READ_SIZE, 1):
            data = os.urandom(size)
            sent = got = b""
            while len(got) < size:
                if len(sent) < size:
                    try:
                        sent += data[len(sent) : len(sent) + self.other.send(data[len(sent) :])]
                    except BlockingIOError:
                        pass
                piece = self.ours.recv(READ_SIZE)
                self.assertLessEqual(len(piece), READ_SIZE)
                got += piece
            self.assertEqual(got, data)
            self.assertRaises(BlockingIOError, self.ours.recv, READ_SIZE)

    def test_it_writes_bytes_and_views(self) -> None:
        for data in (b"bytes", memoryview(b"a view")[2:], bytearray(b"others")):
            self.assertEqual((self.ours.send(data), self.other.recv(100)), (len(data), bytes(data)))
        self.assertRaises(TypeError, self.ours.send, "text")

    def test_errors_are_the_sockets_own(self) -> None:
        with self.assertRaises(BlockingIOError):
            while True:
                self.ours.send(bytes(1 << 20))
        self.other.close()
        self.assertRaises(BrokenPipeError, self.ours.send, b"x")

    def test_the_end_is_an_empty_read(self) -> None:
        self.other.send(b"last")
        self.other.close()
        self.assertEqual([self.ours.recv(READ_SIZE), self.ours.recv(READ_SIZE)], [b"last", b""])

    def test_after_its_end_a_stream_touches_no_descriptor(self) -> None:
        protocol = Noting()
        stream = Stream(reactor, self.one, protocol)
        protocol.makeConnection(stream)
        number = self.one.fileno()
        stream.connectionLost(Failure(ConnectionDone()))
        taken, peer = socket.socketpair()
        self.addCleanup(taken.close)
        self.addCleanup(peer.close)
        self.assertEqual(taken.fileno(), number)  # the next connection has its number
        peer.send(b"not its own")
        stream.write(b"nor this")
        self.assertIsNotNone(stream.doRead())
        self.assertEqual((protocol.received, taken.recv(100)), (b"", b"not its own"))
        peer.setblocking(False)
        self.assertRaises(BlockingIOError, peer.recv, 1)
