"""A reactor's inner loop without the logging context that Twisted pushes around every event: 6 microseconds a request.

Uses private names of `EPollReactor`. They are looked for before anything is touched (and a test holds them to the installed
Twisted): on any other reactor nothing changes but speed.
"""

from __future__ import annotations

import errno
import select
import sys
from typing import Any

from twisted.internet.epollreactor import EPollReactor
from twisted.logger import Logger
from twisted.python import log

from sticky.edge.accepting import Acceptor
from sticky.edge.transport import Stream, TCPStream
from sticky.edge.turns import Turn

_log = Logger(namespace="sticky.edge")

DIRECT = frozenset({Stream, TCPStream, Acceptor})  #: read without ceremony; everything else goes Twisted's own way
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
    readable = select.EPOLLIN
    find = selectables.get

    def iterate(timeout: float | None) -> None:
        if reactor._poller is not poller or reactor._selectables is not selectables:
            stock(timeout)
            return
        try:
            events = poller.poll(-1 if timeout is None else timeout, len(selectables))
        except OSError as error:
            if error.errno == errno.EINTR:
                return
            raise
        turn.begin()
        for fd, event in events:
            selectable = find(fd)
            if selectable is None:  # an earlier event of this turn took it out
                continue
            if event == readable and type(selectable) in DIRECT:
                try:
                    why = selectable.doRead()
                except BaseException:
                    why = sys.exc_info()[1]
                    _log.failure("a connection's protocol failed; the connection is closed")
                if why is not None:
                    disconnect(selectable, why, True)
            elif (
                type(selectable) in DIRECT
            ):  # an error, an end, or room to write: Twisted's own way without its context
                try:
                    read_or_write(selectable, fd, event)
                except Exception:
                    _log.failure("a connection failed while its end was told")
            else:
                log.callWithLogger(selectable, read_or_write, selectable, fd, event)
        turn.end()

    reactor.doIteration = iterate
    return turn
