"""The admin API over TCP: opens ports, serves whom the door admits, closes. Knows neither calls nor tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.endpoints import serverFromString
from twisted.internet.interfaces import IListeningPort, IProtocolFactory
from twisted.logger import Logger
from twisted.protocols.policies import WrappingFactory
from twisted.python.failure import Failure

from sticky.startup import CANNOT_START, give_up


class AdminPorts(Service):
    """`endpoints`: strings of kinds that open at once (tcp, ssl)."""

    log = Logger()

    def __init__(self, endpoints: Sequence[str], site: IProtocolFactory, reactor: Any) -> None:
        self._endpoints = endpoints
        self._factory = WrappingFactory(site)
        self._factory.noisy = False
        self._reactor = reactor
        self._ports: list[IListeningPort] = []

    def privilegedStartService(self) -> None:
        """Open the ports. One that is taken ends the process, with a line on stderr and exit status 1."""
        super().privilegedStartService()  # type: ignore[no-untyped-call]
        for endpoint in self._endpoints:
            failures: list[Failure] = []
            listening = serverFromString(self._reactor, endpoint).listen(self._factory)
            listening.addCallbacks(self._ports.append, failures.append)
            if failures:  # outside the callback, which would swallow the exit
                reason = failures[0].getErrorMessage()
                give_up(f"cannot open the admin port {endpoint}: {reason} (daemon.admin_listen)", CANNOT_START)

    def startService(self) -> None:
        """Say where."""
        super().startService()  # type: ignore[no-untyped-call]
        for port in self._ports:
            address: Any = port.getHost()
            self.log.info("the admin API listens on {host} port {port}", host=address.host, port=address.port)

    def stopService(self) -> Deferred[Any]:
        """Close the ports and drop who is connected."""
        super().stopService()  # type: ignore[no-untyped-call]
        closing = [port.stopListening() for port in self._ports]
        self._ports.clear()
        for connection in list(self._factory.protocols):
            connection.transport.abortConnection()
        return DeferredList([closed for closed in closing if closed is not None])
