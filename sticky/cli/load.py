"""The clients of a load test, on Twisted and Autobahn: sessions over HTTP, a WebSocket to each. Knows no terminal but a bar."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import attrs
from autobahn.twisted.websocket import WebSocketClientFactory, WebSocketClientProtocol
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.endpoints import HostnameEndpoint, wrapClientTLS
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.ssl import optionsForClientTLS
from twisted.internet.task import LoopingCall, deferLater
from twisted.web.client import URI, Agent, HTTPConnectionPool, readBody
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgentEndpointFactory
from zope.interface import implementer

from sticky.edge.wire import Names
from sticky.sdk.steps import dialled

LONGEST_START = 330.0  #: seconds; a start may wait in the queue for 300
LONGEST_OPENING = 30.0  #: seconds for a WebSocket handshake
LONGEST_CLOSING = 5.0  #: seconds for a closing handshake


@attrs.frozen(kw_only=True)
class Plan:
    """What to do. Times are seconds."""

    url: str
    brand: str
    bearer: str | None = attrs.field(repr=False)
    sessions: int
    rate: float  #: starts a second
    hold: float
    reconnects: int
    path: str
    ping: float


class Figures:
    """Times by name, failures by text, and how many connections there are."""

    def __init__(self) -> None:
        self.times: dict[str, list[float]] = {"start": [], "connect": [], "reconnect": [], "ping": [], "terminate": []}
        self.failures = Counter[str]()
        self.done = 0
        self.open = 0
        self.most = 0

    def opened(self) -> None:
        """One more connection."""
        self.open += 1
        self.most = max(self.most, self.open)

    def report(self, seconds: float) -> dict[str, Any]:
        """Everything, as JSON values."""
        return {
            "seconds": round(seconds, 3),
            "sessions": self.done,
            "most_at_once": self.most,
            "times": {name: summary(times) for name, times in self.times.items()},
            "failures": dict(self.failures.most_common()),
        }


def summary(times: list[float]) -> dict[str, float | int | None]:
    """Count, percentiles (the nearest that was seen) and maximum."""
    ordered = sorted(times)

    def at(share: float) -> float | None:
        return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 6) if ordered else None

    return {"count": len(ordered), "p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "max": at(1.0)}


class Failed(Exception):
    """One step of one client failed; the text has no token and names what a person can count."""


class _Socket(WebSocketClientProtocol):  # type: ignore[misc]
    """One WebSocket: tells when it is open, measures pings, tells when it is closed."""

    def onOpen(self) -> None:
        self.factory.opened.callback(self)

    def onPong(self, payload: bytes) -> None:
        self.factory.pong(payload)

    def onClose(self, clean: bool, code: int | None, reason: str | None) -> None:
        text = f"closed with {code}" + (f" ({reason})" if reason and code != 1006 else "")
        if not self.factory.opened.called:
            # Autobahn wraps what happened into a sentence about how the connection ended.
            inner = re.search(r'"(.+)"', reason or "")
            self.factory.opened.errback(Failed(f"no WebSocket: {inner[1] if inner else reason or code}"))
        self.factory.closed.callback(text)


class _Factory(WebSocketClientFactory):  # type: ignore[misc]
    protocol = _Socket

    def __init__(self, url: str, headers: dict[str, str], pong: Callable[[bytes], None], reactor: Any) -> None:
        super().__init__(url, headers=headers, reactor=reactor)
        self.setProtocolOptions(openHandshakeTimeout=LONGEST_OPENING, closeHandshakeTimeout=LONGEST_CLOSING)
        self.opened: Deferred[_Socket] = Deferred()
        self.closed: Deferred[str] = Deferred()
        self.pong = pong


def _why(error: Exception) -> str:
    """In words where Twisted has some, which its exceptions' first lines are."""
    text = (str(error) or type(error).__doc__ or "").strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


@implementer(IAgentEndpointFactory)
@attrs.frozen
class _Endpoints:
    """Where connections go."""

    reactor: Any

    def endpointForURI(self, uri: URI) -> IStreamClientEndpoint:
        """See `IAgentEndpointFactory`."""
        return self.endpoint(uri.host.decode("ascii"), uri.port, uri.scheme == b"https")

    def endpoint(self, host: str, port: int, secure: bool) -> IStreamClientEndpoint:
        """To a Server's host. Names below localhost are this machine's, as for browsers and curl."""
        endpoint: IStreamClientEndpoint = HostnameEndpoint(self.reactor, dialled(host), port)
        return wrapClientTLS(optionsForClientTLS(host), endpoint) if secure else endpoint


class Load:
    """All clients of one test. `leave` ends it early; what was measured counts."""

    def __init__(self, plan: Plan, reactor: Any) -> None:
        self.plan = plan
        self.figures = Figures()
        self._reactor = reactor
        self._names = Names(plan.brand)
        self._pool = HTTPConnectionPool(reactor)
        self._pool.maxPersistentPerHost = 100
        self._endpoints = _Endpoints(reactor)
        self._agent = Agent.usingEndpointFactory(reactor, self._endpoints, self._pool)
        self._leaving = False
        self._sleeping: set[Deferred[None]] = set()

    async def run(self) -> None:
        """Play every client to its end."""
        clients = [Deferred.fromCoroutine(self._client(number)) for number in range(self.plan.sessions)]
        await DeferredList(clients)
        await self._pool.closeCachedConnections()

    def leave(self) -> None:
        """Nothing new; connections are closed and sessions ended now."""
        self._leaving = True
        for sleeping in list(self._sleeping):
            sleeping.cancel()

    # --- one client

    async def _client(self, number: int) -> None:
        await self._sleep(number / self.plan.rate)
        if self._leaving:
            return
        token = None
        try:
            token = await self._start()
            for visit in range(self.plan.reconnects + 1):
                if not self._leaving:
                    await self._visit(token, "reconnect" if visit else "connect")
        except Failed as failed:
            self.figures.failures[str(failed)] += 1
        finally:
            self.figures.done += 1
            if token is not None:
                await self._terminate(token)

    async def _start(self) -> str:
        fields = await self._call("start", {}, LONGEST_START)
        token = fields.get("token")
        if not isinstance(token, str):
            raise Failed("start: the answer has no token")
        return token

    async def _terminate(self, token: str) -> None:
        try:
            await self._call("terminate", {self._names.session_token: token.encode()}, LONGEST_OPENING)
        except Failed as failed:
            self.figures.failures[str(failed)] += 1

    async def _call(self, name: str, fields: dict[bytes, bytes], limit: float) -> dict[str, Any]:
        headers = Headers({field: [value] for field, value in fields.items()})
        if self.plan.bearer is not None:
            headers.addRawHeader(b"authorization", f"Bearer {self.plan.bearer}".encode())
        url = self.plan.url.encode() + self._names.control + b"sessions/" + name.encode()
        began = self._reactor.seconds()
        try:
            asked = self._agent.request(b"POST", url, headers).addTimeout(limit, self._reactor)
            response = await asked
            body = await readBody(response).addTimeout(limit, self._reactor)
        except Exception as error:
            raise Failed(f"{name}: {_why(error)}") from None
        try:
            answer = json.loads(body)
        except ValueError:
            answer = {}
        if response.code != 200:
            raise Failed(
                f"{name}: {response.code} {answer.get('error', '') if isinstance(answer, dict) else ''}".strip()
            )
        self.figures.times[name].append(self._reactor.seconds() - began)
        return answer if isinstance(answer, dict) else {}

    async def _visit(self, token: str, name: str) -> None:
        parts = urlsplit(self.plan.url)
        secure = parts.scheme == "https"
        address = f"{'wss' if secure else 'ws'}://{parts.netloc}{self.plan.path}"
        headers = {self._names.authorization.decode("ascii"): f"Bearer {token}"}
        sent: dict[bytes, float] = {}

        def pong(payload: bytes) -> None:
            at = sent.pop(payload, None)
            if at is not None:
                self.figures.times["ping"].append(self._reactor.seconds() - at)

        factory = _Factory(address, headers, pong, self._reactor)
        endpoint = self._endpoints.endpoint(parts.hostname or "", parts.port or (443 if secure else 80), secure)
        began = self._reactor.seconds()
        try:
            await endpoint.connect(factory)
        except Exception as error:
            raise Failed(f"{name}: {_why(error)}") from None
        socket = await factory.opened
        self.figures.times[name].append(self._reactor.seconds() - began)
        self.figures.opened()
        closed: list[str] = []
        factory.closed.addCallback(closed.append)
        try:
            await self._hold(socket, sent, closed)
        finally:
            self.figures.open -= 1
        if closed:
            raise Failed(f"WebSocket {closed[0]} while it was held")
        socket.sendClose(1000)
        await factory.closed

    async def _hold(self, socket: Any, sent: dict[bytes, float], closed: list[str]) -> None:
        until = self._reactor.seconds() + self.plan.hold
        number = 0
        while not closed and not self._leaving and (left := until - self._reactor.seconds()) > 0:
            number += 1
            payload = b"%d" % number
            sent[payload] = self._reactor.seconds()
            socket.sendPing(payload)
            await self._sleep(min(left, self.plan.ping))

    async def _sleep(self, seconds: float) -> None:
        if self._leaving or seconds <= 0:
            return
        sleeping: Deferred[None] = deferLater(self._reactor, seconds)
        self._sleeping.add(sleeping)
        try:
            await sleeping
        except Exception:
            if not self._leaving:
                raise
        finally:
            self._sleeping.discard(sleeping)


def play(plan: Plan, terminal: Console | None) -> tuple[dict[str, Any], bool]:
    """Run the reactor for the length of a test. The report, and whether Ctrl-C ended it. Once in a process's life."""
    from twisted.internet import reactor as installed

    reactor: Any = installed
    reactor.seconds = time.monotonic
    load = Load(plan, reactor)
    interrupted: list[bool] = []

    def interrupt(*_: object) -> None:
        interrupted.append(True)
        reactor.callFromThread(load.leave if len(interrupted) == 1 else reactor.stop)

    def begin() -> None:
        running = Deferred.fromCoroutine(load.run())
        running.addErrback(lambda failure: load.figures.failures.update([f"load test: {failure.getErrorMessage()}"]))
        running.addBoth(lambda _: reactor.stop())

    began = time.monotonic()
    reactor.callWhenRunning(begin)
    with _bar(load, reactor, terminal), _on_interrupt(interrupt):
        reactor.run(installSignalHandlers=False)
    return load.figures.report(time.monotonic() - began), bool(interrupted)


def _on_interrupt(handler: Callable[..., None]) -> Any:
    import signal
    from contextlib import contextmanager

    @contextmanager
    def handling() -> Any:
        before = signal.signal(signal.SIGINT, handler)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    return handling()


def _bar(load: Load, reactor: Any, terminal: Console | None) -> Progress:
    """On a terminal, how far it is."""
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[open]} open, {task.fields[failed]} failures"),
        TimeElapsedColumn(),
        console=terminal or Console(quiet=True),
        auto_refresh=False,
        transient=True,
        disable=terminal is None,
    )
    task = progress.add_task("sessions", total=load.plan.sessions, open=0, failed=0)

    def update() -> None:
        figures = load.figures
        progress.update(task, completed=figures.done, open=figures.open, failed=figures.failures.total())
        progress.refresh()

    if terminal is not None:
        loop = LoopingCall(update)
        loop.clock = reactor
        reactor.callWhenRunning(lambda: loop.start(0.2))
        reactor.addSystemEventTrigger("before", "shutdown", loop.stop)
    return progress
