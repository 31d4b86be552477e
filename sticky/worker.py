"""A worker: the process that moves clients' bytes where a daemon has several of them. Wires the edge; holds no rule.

Started by `workers.pool` with one JSON argument. It ends with its daemon, however that ends, and by nobody else's signals.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.logger import ILogObserver, LogEvent, LogLevel, formatEvent, globalLogBeginner
from zope.interface import implementer

from sticky import parts, sockets
from sticky.core.proxy_tokens import FailureLimit
from sticky.core.tokens import Verifier
from sticky.edge.context import EdgeContext, EdgeFactory
from sticky.edge.dialling import Dialler
from sticky.edge.site import Sites
from sticky.edge.turns import Turn
from sticky.edge.websocket import RelayTimes, WebSocketRelays
from sticky.edge.wire import Names
from sticky.observe.access import AccessLog, Over
from sticky.workers.config import ProxyConfig
from sticky.workers.far import FarDaemon
from sticky.workers.leaving import Leaving
from sticky.workers.parent import die_with
from sticky.workers.told import Told

STOPS_AFTER = 0.2  #: seconds that the last bytes have
STDERR = 2  #: the daemon's, inherited


@implementer(ILogObserver)
class ToDaemon:
    """A log observer that has the daemon write the lines: one log for all processes."""

    def __init__(self, far: FarDaemon) -> None:
        self._far = far

    def __call__(self, event: LogEvent) -> None:
        """See `ILogObserver`."""
        namespace = str(event.get("log_namespace", ""))
        level = event.get("log_level", LogLevel.info)
        if level >= LogLevel.warn or namespace.startswith("sticky"):
            self._far.say(level.name, namespace, formatEvent(event))


class ByServer:
    """Counts requests that are over, to be told and forgotten."""

    observer = None

    def __init__(self) -> None:
        self._counts = Counter[str]()

    def __call__(self, over: Sequence[Over]) -> None:
        """See `observe.access.Watcher`."""
        self._counts.update(record.server for _, record in over)

    def take(self) -> Mapping[str, int]:
        """Those since the last time."""
        counts, self._counts = self._counts, Counter()
        return counts


class WorkerProcess:
    """The edge of one worker. It listens when the daemon has told it what to serve."""

    def __init__(self, reactor: Any, name: str, listeners: Sequence[tuple[str, int]], turn: Turn | None) -> None:
        """`turn`: of the reactor's loop, if it tells its turns."""
        self.far = FarDaemon(
            reactor,
            name,
            welcomed=self._welcomed,
            lost=self._lost,
            close=self._close_websockets,
            stop=self._stop,
            moved=self._moved,
            tally=self._tally,
        )
        self._reactor = reactor
        self._name = name
        self._turn = turn
        self._listeners = listeners
        self._sites = Sites([])
        self._verifier = Verifier({})
        self._told = Told(self._verifier, self._sites, self.far.turns, {})
        self._dialler = Dialler(reactor, self.far.doubt)
        self._relays: WebSocketRelays | None = None
        self._context: EdgeContext | None = None
        self._access: AccessLog | None = None
        self._served = ByServer()
        self._ports: list[Any] = []
        self._leaving: Leaving | None = None
        self._stopping = False

    def _welcomed(self, config: Any) -> None:
        """A daemon says what to serve: the first time, or something has changed."""
        said = self._told.take(config)
        if self._context is None:
            self._serve(said)

    def _serve(self, said: ProxyConfig) -> None:
        self._access = access = parts.access_log_to(said.brand, said.access_log, said.access_log_format, self._reactor)
        access.watchers.append(self._served)
        limits = said.edge.limits
        times = RelayTimes(connect_timeout=limits.connect_timeout)
        self._relays = relays = WebSocketRelays(self._dialler, times, heads=limits.heads)
        self._context = context = EdgeContext(
            said.edge,
            self._sites,
            Names(said.brand),
            self._verifier,
            self.far.routing,
            self.far.control,
            self._dialler,
            wall=time.time,
            websocket_relay=relays.relay,
            access=access,
            failures=FailureLimit(),
            turn=self._turn,
        )
        factory = EdgeFactory(context)
        for endpoint, number in self._listeners:
            with socket.socket(fileno=number) as given:
                self._ports.append(factory.listening(sockets.accept_on(self._reactor, endpoint, given, factory)))

    # --- what the daemon asks

    def _close_websockets(self, code: int, reason: str) -> Deferred[None]:
        return succeed(None) if self._relays is None else self._relays.close_all(code, reason)

    def _moved(self, within: float) -> None:
        """The daemon that started this worker ends; another one has workers of its own, and this one leaves in time."""
        die_with(None)
        for port in self._ports:
            port.stopReading()
        self._ports.clear()
        if self._context is None:
            self._leave(0)
        elif self._leaving is None and self._relays is not None:
            self._leaving = Leaving(self._reactor, self._context, self._relays, within, self._stop)

    def _stop(self) -> None:
        if self._stopping:
            return  # the daemon says so, and in the same moment the last client has gone
        self._stopping = True
        if self._leaving is not None:
            self._leaving.stop()
        if self._context is not None:
            self._context.stop()  # cuts who is left; what is written goes out in the next turns
        self.far.leave()
        self._reactor.callLater(STOPS_AFTER, self._reactor.stop)

    def _lost(self) -> None:
        """No daemon, no leases: nobody may be served by this process."""
        if self.far.ended_for:  # with no link left nobody writes it to the log
            say_last(f"sticky: {self._name} ends: {self.far.ended_for}")
        self._leave(1)

    def _leave(self, status: int) -> None:
        if self._access is not None:
            self._access.close()
        os._exit(status)

    def _tally(self) -> Mapping[str, Any]:
        context, access, relays = self._context, self._access, self._relays
        if context is None or access is None or relays is None:
            return {}
        counts = access.counts
        return {
            "clients": context.doors.inside,
            "websockets": relays.open,
            "answered": counts.requests,
            "bytes_in": counts.bytes_in,
            "bytes_out": counts.bytes_out,
            "requests": self._served.take(),
        }


def say_last(line: str) -> None:
    """A line on standard error. That may be a pipe which nobody reads: what there is no room for is not said."""
    with suppress(OSError):
        if select.select((), (STDERR,), (), 0)[1]:
            os.write(STDERR, line.encode("utf-8", "replace")[: select.PIPE_BUF - 1] + b"\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until the daemon says stop, or is gone."""
    told = json.loads((sys.argv[1:] if arguments is None else arguments)[0])
    # A terminal's Ctrl-C and a service manager's TERM reach the whole group; the daemon says what is to be done about them.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)

    from twisted.internet import reactor as installed

    from sticky.edge.collector import settle
    from sticky.edge.fast_loop import accelerate

    reactor: Any = installed
    reactor.seconds = time.monotonic
    turn = accelerate(reactor)
    worker = WorkerProcess(reactor, told["name"], [(endpoint, fd) for endpoint, fd in told["listeners"]], turn)
    globalLogBeginner.beginLoggingTo([ToDaemon(worker.far)], redirectStandardIO=False, discardBuffer=True)
    reactor.callWhenRunning(settle)
    reactor.callWhenRunning(worker.far.connect, "\0" + told["daemon"])
    reactor.run(installSignalHandlers=False)
