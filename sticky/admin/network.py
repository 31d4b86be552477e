"""The admin API over TCP: opens ports, serves whom the door admits, closes. Knows neither calls nor tokens."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredList, succeed
from twisted.internet.endpoints import serverFromString
from twisted.internet.interfaces import IDelayedCall, IProtocolFactory
from twisted.logger import Logger
from twisted.protocols.policies import WrappingFactory
from twisted.python.failure import Failure

from sticky.startup import CANNOT_START, give_up

AGAIN_AFTER = 5.0  #: seconds between two attempts to have again what was given up for another daemon


class AdminPorts(Service):
    """`endpoints`: strings of kinds that open at once (tcp, ssl)."""

    log = Logger()

    def __init__(self, endpoints: Sequence[str], site: IProtocolFactory, reactor: Any) -> None:
        self._endpoints = endpoints
        self._factory = WrappingFactory(site)
        self._factory.noisy = False
        self._reactor = reactor
        self._ports: dict[str, Any] = {}  # by endpoint
        self._served: set[str] = set()  # of these, who may talk
        self._again: IDelayedCall | None = None

    def privilegedStartService(self) -> None:
        """Open the ports; who connects waits. One that is taken ends the process, with a line on stderr and exit status 1."""
        super().privilegedStartService()  # type: ignore[no-untyped-call]
        problem = self._open()
        if problem:
            give_up(f"{problem} (daemon.admin_listen)", CANNOT_START)

    def startService(self) -> None:
        """Serve, and say where."""
        super().startService()  # type: ignore[no-untyped-call]
        for endpoint, port in self._ports.items():
            if endpoint not in self._served:
                self._served.add(endpoint)
                port.startReading()
                address = port.getHost()
                self.log.info("the admin API listens on {host} port {port}", host=address.host, port=address.port)

    def wake(self) -> None:
        """Serve again after `stopService`. A port that somebody has taken meanwhile is tried for until it is free."""
        self._again = None
        problem = self._open()
        self.startService()
        if problem:
            self.log.error("{problem}; it is tried again", problem=problem)
            self._again = self._reactor.callLater(AGAIN_AFTER, self.wake)

    def _open(self) -> str:
        """Those that are not open. Returns what is wrong with one that cannot be, if there is any."""
        problem = ""
        for endpoint in self._endpoints:
            if endpoint in self._ports:
                continue
            opened: list[Any] = []
            failures: list[Failure] = []
            # Within a callback: of a certificate that cannot be read the string's parser raises.
            listening = succeed(endpoint).addCallback(partial(serverFromString, self._reactor))
            listening.addCallback(lambda found: found.listen(self._factory))
            listening.addCallbacks(opened.append, failures.append)
            for failure in failures:
                problem = problem or f"cannot open the admin port {endpoint}: {failure.getErrorMessage()}"
            for port in opened:
                port.stopReading()
                self._ports[endpoint] = port
        return problem

    def stopService(self) -> Deferred[Any]:
        """Close the ports and drop who is connected."""
        super().stopService()  # type: ignore[no-untyped-call]
        again, self._again = self._again, None
        if again is not None:
            again.cancel()
        closing = [port.stopListening() for port in self._ports.values()]
        self._ports.clear()
        self._served.clear()
        for connection in list(self._factory.protocols):
            connection.transport.abortConnection()
        return DeferredList([closed for closed in closing if closed is not None])
