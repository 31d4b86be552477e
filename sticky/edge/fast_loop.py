"""A reactor's inner loop in phases: all that is ready is read, what came is handed on kind by kind, what waited is written.

And without the logging context that Twisted pushes around every event: 6 microseconds a request. Why phases: see `turns`.
Uses private names of `EPollReactor`. They are looked for before anything is touched (and a test holds them to the installed
Twisted): on any other reactor nothing changes but speed.
"""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Callable, Collection
from typing import Any

from twisted.internet.epollreactor import EPollReactor
from twisted.internet.main import CONNECTION_DONE, CONNECTION_LOST
from twisted.logger import Logger
from twisted.python import log
from twisted.python.failure import Failure

from sticky.edge.accepting import Acceptor
from sticky.edge.tcp import TCPStream
from sticky.edge.transport import HELD, PURE, READ_SIZE, Stream, StreamState
from sticky.edge.turns import Turn
from sticky.edge.upstream import Dialled, Upstream

compiled: Callable[..., list[tuple[int, int]] | None] | None
try:
    from sticky.edge._events import read_ready as compiled
except ImportError:  # no compiler where Sticky was installed
    compiled = None

_FAILED_AT_ITS_END = "a connection failed while its end was told"
_log = Logger(namespace="sticky.edge")

STREAMS = frozenset({Stream, TCPStream})  #: read in phases
DIRECT = STREAMS | {Acceptor}  #: without ceremony; everything else goes Twisted's own way
ANSWERING = (
    Upstream,
    Dialled,
)  #: first: bytes that nobody asked for must not meet a request that another one's bytes bring
MOST = 256  #: events of one turn: what they bring is written together
_PARTS = {
    "_poller": select.epoll,
    "_selectables": dict,
}
_METHODS = ("_doReadOrWrite", "_disconnectSelectable", "doPoll", "doIteration")


def can_accelerate(reactor: Any) -> bool:
    """Whether this is the reactor that this file knows."""
    return (
        type(reactor) is EPollReactor
        and all(isinstance(getattr(reactor, name, None), kind) for name, kind in _PARTS.items())
        and all(callable(getattr(reactor, name, None)) for name in _METHODS)
    )


def read_ready(
    events: list[tuple[int, int]],
    selectables: dict[int, Any],
    kinds: Collection[type],
    first: Collection[type],
    ended: Callable[[Any, Any, bool], object],
) -> list[tuple[int, int]] | None:
    """Let each of these kinds of streams read that has nothing but something to read.

    Returns the other events, in order; None: there are none. First all are read, as far as that is little, then what came is
    handed to one kind of protocol after the other, so that each kind's code is fetched into the caches once (`turns`). What
    has been read is handed on even if somebody has asked for a pause since.

    `first`: kinds of protocols whose turn is before all others'. `ended` is told of each stream that has come to its end: why,
    and whether its protocol failed. It must not raise: what came for the others would be lost.
    """
    others = None
    came: dict[type, list[tuple[Any, bytes]]] = {kind: [] for kind in first}
    size = 0
    readable = select.EPOLLIN
    find = selectables.get
    for fd, event in events:
        if event == readable:
            stream = find(fd)
            if stream is None:  # an earlier event of this turn took it out
                continue
            if type(stream) in kinds:
                try:
                    data = stream.recv(READ_SIZE)
                except (BlockingIOError, InterruptedError):
                    continue
                except OSError:
                    ended(stream, CONNECTION_LOST, False)
                    continue
                if not data:
                    ended(stream, CONNECTION_DONE, False)
                    continue
                kind = type(stream.protocol)
                if kind in came:
                    came[kind].append((stream, data))
                else:
                    came[kind] = [(stream, data)]
                size += len(data)
                if size >= HELD:
                    hand_on(came, ended)
                    size = 0
                continue
        if others is None:
            others = []
        others.append((fd, event))
    hand_on(came, ended)
    return others


def hand_on(came: dict[type, list[tuple[Any, bytes]]], ended: Callable[[Any, Any, bool], object]) -> None:
    """Give the protocols what was read, kind by kind. Nothing is left in the lists."""
    for group in came.values():
        for stream, data in group:
            if stream.state is not StreamState.OPEN:  # closed since, by what came to another one
                continue
            try:
                stream.protocol.dataReceived(data)
            except BaseException as error:
                ended(stream, error, True)
        group.clear()


def accelerate(reactor: Any) -> Turn | None:
    """Replace the reactor's loop, if it is one that we know. Returns what tells its turns apart, or None."""
    if not can_accelerate(reactor):
        return None
    turn = Turn()
    poller = reactor._poller
    selectables: dict[int, Any] = reactor._selectables
    disconnect = reactor._disconnectSelectable
    read_or_write = reactor._doReadOrWrite
    stock = reactor.doPoll
    read = read_ready if compiled is None or os.environ.get(PURE) == "1" else compiled

    def ended(stream: Any, why: Any, failed: bool) -> None:
        if failed:
            _log.failure("a connection's protocol failed; the connection is closed", Failure(why))
        try:
            disconnect(stream, why, True)
        except Exception:
            _log.failure(_FAILED_AT_ITS_END)

    def iterate(timeout: float | None) -> None:
        if reactor._poller is not poller or reactor._selectables is not selectables:
            stock(timeout)
            return
        try:
            events = poller.poll(-1 if timeout is None else timeout, min(len(selectables), MOST))
        except OSError as error:
            if error.errno == errno.EINTR:
                return
            raise
        turn.begin()
        try:
            others = read(events, selectables, STREAMS, ANSWERING, ended)
        finally:
            turn.end()
        if others is None:
            return
        for fd, event in others:
            selectable = selectables.get(fd)
            if selectable is None:  # an earlier event of this turn took it out
                continue
            if type(selectable) in DIRECT:
                # A newcomer, an error, an end, or room to write: Twisted's own way, without its context.
                try:
                    read_or_write(selectable, fd, event)
                except Exception:
                    _log.failure(_FAILED_AT_ITS_END)
            else:
                log.callWithLogger(selectable, read_or_write, selectable, fd, event)

    reactor.doIteration = iterate
    return turn
