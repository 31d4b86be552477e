"""Stream sockets of our own: what is written goes to the kernel at once, and only what it does not take is queued.

Twisted's transports queue first, which costs two epoll_ctl and a turn of the reactor for each write: 12 microseconds a request.
These use nothing of a reactor but `addReader`, `addWriter` and `callLater`, and keep to what Twisted's promise a protocol:
producers, half-close, ends that are told in a later turn. Must not know HTTP.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from itertools import islice
from typing import Any

from twisted.internet.address import UNIXAddress
from twisted.internet.error import ConnectionAborted
from twisted.internet.interfaces import (
    IConsumer,
    IHalfCloseableDescriptor,
    IHalfCloseableProtocol,
    ILoggingContext,
    IPushProducer,
    IReadWriteDescriptor,
    ISystemHandle,
    ITransport,
)
from twisted.internet.main import CONNECTION_DONE, CONNECTION_LOST
from twisted.internet.protocol import connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

READ_SIZE = 81_920  #: bytes of one read: a WebSocket message of 64 KiB and its header are one, and one write
HELD = 65_536  #: bytes that a loop may read before it hands them on: more would push each other out of the caches
HIGH = 65_536  #: bytes queued above which a push producer is paused; it goes on when all of them are out
PIECES = 64  #: written with one system call
_RESET = struct.pack("ii", 1, 0)  # socket(7), SO_LINGER: close with a reset

_NOTHING: deque[bytes | memoryview] = deque()  # of most streams, most of the time: an empty deque is 760 bytes

PURE = "STICKY_PURE"  #: an environment variable that, set to 1, leaves compiled code out

descriptor: Callable[[int], Any] | None
try:
    from sticky.edge._sockets import Descriptor as descriptor
except ImportError:  # no compiler where Sticky was installed
    descriptor = None
if os.environ.get(PURE) == "1":
    descriptor = None

_log = Logger(namespace="sticky.edge")


class StreamState(Enum):
    """What becomes of a connection."""

    OPEN = "open"
    CLOSING = "closing"  # asked to close: what is queued goes out first, nothing is read
    DOOMED = "doomed"  # its end is decided and will be told in the next turn
    GONE = "gone"  # the protocol has been told

    __hash__ = object.__hash__  # Enum's own is Python code


class Sending(Enum):
    """Our half of a connection."""

    OPEN = "open"
    ENDING = "ending"  # a FIN follows what is queued
    ENDED = "ended"  # it is out

    __hash__ = object.__hash__


_OPEN, _CLOSING, _DOOMED, _GONE = StreamState
_SENT = Sending.ENDED

STEPS: dict[StreamState, tuple[StreamState, ...]] = {
    _OPEN: (_CLOSING, _DOOMED, _GONE),
    _CLOSING: (_DOOMED, _GONE),
    _DOOMED: (_GONE,),
    _GONE: (),
}


@implementer(
    ITransport, IConsumer, IPushProducer, IReadWriteDescriptor, IHalfCloseableDescriptor, ILoggingContext, ISystemHandle
)
class Stream:
    """One connected socket. `protocol` may be exchanged at any time."""

    __slots__ = ("__weakref__", "_handle", "_producer", "_producer_paused", "_push", "_queue", "_reactor", "_reading", "_send",
                 "_sending", "_writing", "buffered", "connector", "fileno", "protocol", "recv", "state", "tuned")  # fmt: skip

    def __init__(self, reactor: Any, handle: socket.socket, protocol: Any) -> None:
        """`handle` is connected and does not block. Nothing is read before `startReading`."""
        self.protocol = protocol
        self.buffered = 0  #: bytes that the kernel has not taken yet; after the end those that never went out
        self.connector: object = None  #: as Twisted's clients have it; nothing reads it here
        self.tuned = False  #: the listener gave it its options (`kernel.tune_listener`)
        self.fileno = handle.fileno
        self._reactor = reactor
        self._handle = handle
        raw = handle if descriptor is None else descriptor(handle.fileno())
        self.recv: Callable[[int], bytes] = raw.recv  #: of the socket: raises what that raises
        self._send: Callable[[bytes | memoryview], int] = raw.send
        self.state = _OPEN  #: changed here only
        self._sending = Sending.OPEN
        self._queue = _NOTHING
        self._producer: Any = None
        self._push = False
        self._producer_paused = False
        self._reading = False
        self._writing = False

    # --- what protocols call

    def write(self, data: bytes) -> None:
        """Send. What the kernel does not take now is queued, in order; a connection that has ended takes and drops it."""
        if self.buffered:
            if not data or self.state is _DOOMED or self.state is _GONE:
                return
            self._queue.append(data)
            self.buffered += len(data)
        elif data:
            try:
                sent = self._send(data)
            except OSError:  # full, or broken: then the reactor meets the same error and tells the protocol in its turn
                if self._send is _closed:
                    return
                sent = 0
            left = len(data) - sent
            if not left:
                return
            self._queue = deque((memoryview(data)[sent:] if sent else data,))
            self.buffered = left
            self.startWriting()
        if self.buffered > HIGH and self._push and self._producer is not None:
            self._producer_paused = True
            self._producer.pauseProducing()

    @property
    def all_out(self) -> bool:
        """Whether the kernel has taken everything that was written: from then on the peer may have seen it."""
        return not self.buffered and self.state is _OPEN and self._sending is not _SENT

    def writeSequence(self, data: Iterable[bytes]) -> None:
        """Send all of these."""
        self.write(b"".join(data))

    def loseConnection(self) -> None:
        """Close when all that was written is out."""
        if self.state is not _OPEN:
            return
        self._become(_CLOSING)
        self.stopReading()
        if self._sending is _SENT or not (self.buffered or self._has_more()):
            self._doom(connectionDone)
        else:
            self.startWriting()

    def abortConnection(self) -> None:
        """Reset the connection; what is queued is lost."""
        if self.state is _OPEN or self.state is _CLOSING:
            try:
                self._handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            except OSError:  # the peer was faster
                pass
            self._doom(Failure(ConnectionAborted()))

    def loseWriteConnection(self) -> None:
        """Send a FIN after what was written. The peer may go on sending."""
        if self._sending is Sending.OPEN:
            self._sending = Sending.ENDING
            self.startWriting()

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """As `twisted.internet.interfaces.IConsumer` says. A pull producer is asked whenever nothing is queued."""
        if self._producer is not None:
            raise RuntimeError(f"{producer!r} cannot be registered: {self._producer!r} is")
        if self.state is _GONE:
            producer.stopProducing()
            return
        self._producer = producer
        self._push = streaming
        self._producer_paused = False
        if not streaming:
            producer.resumeProducing()
            if self._producer is producer:
                self.startWriting()

    def unregisterProducer(self) -> None:
        """The producer has no more. It is not resumed."""
        self._producer = None
        self._producer_paused = False
        if self.state is _CLOSING:
            self.startWriting()

    def pauseProducing(self) -> None:
        """Read no more; then neither data nor the peer's end is seen."""
        self.stopReading()

    def resumeProducing(self) -> None:
        """Read again."""
        if self.state is _OPEN:
            self.startReading()

    def stopProducing(self) -> None:
        """As a producer: close."""
        self.loseConnection()

    @property
    def disconnecting(self) -> bool:
        """Whether the end has been asked for."""
        return self.state is not _OPEN

    def getHandle(self) -> socket.socket:
        """The socket."""
        return self._handle

    def getPeer(self) -> Any:
        """The other end."""
        return UNIXAddress(None)

    def getHost(self) -> Any:
        """This end."""
        return UNIXAddress(None)

    def logPrefix(self) -> str:
        """In front of what is logged while the reactor calls."""
        return "edge"

    # --- the reactor's side

    def startReading(self) -> None:
        """Be told of bytes. Doubled: a no-op."""
        if not self._reading and self.state is not _DOOMED and self.state is not _GONE:
            self._reading = True
            self._reactor.addReader(self)

    def stopReading(self) -> None:
        """Doubled: a no-op."""
        if self._reading:
            self._reading = False
            self._reactor.removeReader(self)

    def startWriting(self) -> None:
        """Be told of room, even if nothing is queued. Doubled: a no-op."""
        if not self._writing and self.state is not _DOOMED and self.state is not _GONE:
            self._writing = True
            self._reactor.addWriter(self)

    def _stop_writing(self) -> None:
        if self._writing:
            self._writing = False
            self._reactor.removeWriter(self)

    def doRead(self) -> Any:
        """Bytes, or the peer's end, are there. From a loop that is not `fast_loop`, and beside other events."""
        try:
            data = self.recv(READ_SIZE)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            return CONNECTION_LOST
        if not data:
            return CONNECTION_DONE
        self.protocol.dataReceived(data)
        return None

    def doWrite(self) -> Any:
        """There is room."""
        if self.state is _DOOMED or self.state is _GONE:
            return None
        queue = self._queue
        if queue:
            try:
                sent = self._send(queue[0]) if len(queue) == 1 else self._handle.sendmsg(islice(queue, PIECES))
            except (BlockingIOError, InterruptedError):
                return None
            except OSError:
                return CONNECTION_LOST
            self.buffered -= sent
            while sent:
                first = queue.popleft()
                if sent < len(first):
                    queue.appendleft(memoryview(first)[sent:])
                    break
                sent -= len(first)
            if queue:
                return None
            self._queue = _NOTHING
        if self._has_more():
            self._producer_paused = False
            self._producer.resumeProducing()
            if self.buffered or self._has_more():
                return None
        elif self.state is _CLOSING:
            return CONNECTION_DONE
        elif self._sending is Sending.ENDING:
            self._end_sending()
        if not self.buffered and self.state is not _CLOSING and self._sending is not Sending.ENDING:
            self._stop_writing()  # else what the producer has just asked for, an end, comes in the next turn
        return None

    def _has_more(self) -> bool:
        """Whether the producer has to be asked now that nothing is queued."""
        return self._producer is not None and (self._producer_paused or not self._push)

    def _end_sending(self) -> None:
        self._sending = Sending.ENDED
        self._send = _closed
        try:
            self._handle.shutdown(socket.SHUT_WR)
        except OSError:  # the connection is gone already, which is told by itself
            return
        half = IHalfCloseableProtocol(self.protocol, None)
        if half is not None:
            half.writeConnectionLost()

    def readConnectionLost(self, reason: Failure) -> None:
        """The peer's FIN. Whoever knows no half-close is told that all is over."""
        self.stopReading()
        half = IHalfCloseableProtocol(self.protocol, None)
        if half is None:
            self.connectionLost(reason)
            return
        try:
            half.readConnectionLost()
        except Exception:
            failure = Failure()
            _log.failure("a protocol failed at the end of its peer's data", failure)
            self.connectionLost(failure)

    def writeConnectionLost(self, reason: Failure) -> None:
        """Part of IHalfCloseableDescriptor; no reactor calls it."""
        self.connectionLost(reason)

    def connectionLost(self, reason: Failure) -> None:
        """The end, from the reactor or from `_doom`."""
        if self.state is _GONE:
            return
        self.stopReading()
        self._stop_writing()
        self._become(_GONE)
        self.recv = self._send = _closed  # the descriptor's number may be another connection's in a moment
        self._queue = _NOTHING
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.stopProducing()
        self._handle.close()
        protocol, self.protocol = self.protocol, None
        protocol.connectionLost(reason)

    def _doom(self, reason: Failure) -> None:
        # The descriptor stays open until then: a new connection with its number would be taken for this one by events that
        # the reactor holds already.
        self.stopReading()
        self._stop_writing()
        self._become(_DOOMED)
        self._send = _closed
        self._reactor.callLater(0, self.connectionLost, reason)

    def _become(self, state: StreamState) -> None:
        assert state in STEPS[self.state], (self.state, state)
        self.state = state


def _closed(data: object) -> Any:
    raise OSError(errno.EBADF, os.strerror(errno.EBADF))


def begin(stream: Stream) -> None:
    """Let its protocol have the stream, and read. A protocol that raises loses it, and is told so in a later turn."""
    stream.startReading()
    try:
        stream.protocol.makeConnection(stream)
    except Exception:
        _log.failure("a protocol failed at the beginning of its connection, which is closed")
        stream.abortConnection()
