"""Where clients connect: opens the endpoints, says where they are. Knows nothing of what is spoken there."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from twisted.application.service import Service
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.endpoints import serverFromString
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort
from twisted.logger import Logger
from twisted.python.failure import Failure

from sticky.edge.context import EdgeFactory
from sticky.startup import CANNOT_START, give_up

BACKLOG = 1024  #: connections that may wait to be accepted; the kernel's own limit (somaxconn) still holds

_ADVICE = {
    errno.EADDRINUSE: "Is another daemon running? Choose another port with --listen.",
    errno.EADDRNOTAVAIL: "That is no address of this machine: give one of its own, or 0.0.0.0 for all.",
    errno.EACCES: "Ports below 1024 take root or CAP_NET_BIND_SERVICE, a socket's folder must be writable.",
}


def _advice(error: BaseException | None) -> str:
    if isinstance(error, CannotListenError):
        error = error.socketError
    return _ADVICE.get(getattr(error, "errno", None) or 0, "Choose another one with --listen.")


class Listeners(Service):
    """The endpoints of a daemon. `urls` has the address of each as a client on this machine would write it."""

    log = Logger()

    def __init__(
        self,
        reactor: Any,
        endpoints: Sequence[str],
        factory: EdgeFactory,
        state_dir: Path,
        public_urls: Mapping[str, str | None],
    ) -> None:
        """`public_urls`: what clients see, by Server; None: the address of the first listener."""
        self._reactor = reactor
        self._endpoints = endpoints
        self._factory = factory
        self._url_file = state_dir / "url"
        self._public_urls = public_urls
        self._ports: list[IListeningPort] = []
        self.urls: list[str] = []

    def privilegedStartService(self) -> None:
        """Bind: before privileges are dropped, and before any container exists.

        A listener that cannot be opened is the operator's to mend: one line on stderr and exit status 1.
        """
        self._url_file.unlink(missing_ok=True)  # of a daemon that died
        for endpoint in self._endpoints:
            failures: list[Failure] = []
            listening = serverFromString(self._reactor, _with_backlog(endpoint)).listen(self._factory)
            listening.addCallbacks(self._opened, failures.append, callbackArgs=(endpoint,))
            if failures:  # outside the callback, which would swallow the exit
                reason = failures[0].getErrorMessage()
                give_up(f"cannot listen on {endpoint}: {reason} {_advice(failures[0].value)}", CANNOT_START)

    def startService(self) -> None:
        """Say where: what came before this has been taken up, and the first request will be served."""
        super().startService()  # type: ignore[no-untyped-call]
        self._write_urls()
        for url in self.urls:
            self.log.info("listening on {url}", url=url)

    def stopService(self) -> Deferred[list[tuple[bool, None]]]:
        """Accept no more connections, drop those there are, and take the address away."""
        super().stopService()  # type: ignore[no-untyped-call]
        self._url_file.unlink(missing_ok=True)
        closing = [port.stopListening() for port in self._ports]
        self._ports.clear()
        self._factory.context.stop()
        return DeferredList([port for port in closing if port is not None])

    def publish(self, public_urls: Mapping[str, str | None]) -> None:
        """Other Servers, or other URLs of theirs."""
        self._public_urls = public_urls
        if self.running:
            try:
                self._write_urls()
            except OSError as error:  # a full disk must not keep Servers from being changed
                self.log.error("cannot write {file}: {reason}", file=str(self._url_file), reason=error.strerror)

    def _write_urls(self) -> None:
        """Tell programs on this machine: the first line is the daemon's own address, then a line for each Server."""
        own = next(iter(self.urls), "")
        lines = [own, *(f"{server} {url or own}" for server, url in self._public_urls.items())]
        fresh = self._url_file.with_suffix(".new")
        fresh.write_text("".join(f"{line}\n" for line in lines))
        fresh.replace(self._url_file)

    def _opened(self, port: IListeningPort, endpoint: str) -> None:
        self._ports.append(self._factory.listening(port))
        address = port.getHost()
        if isinstance(address, IPv4Address | IPv6Address):
            scheme = "https" if endpoint.removeprefix("haproxy:").startswith("ssl:") else "http"
            self.urls.append(f"{scheme}://{_reachable(address.host)}:{address.port}")


def _with_backlog(endpoint: str) -> str:
    """With room for a burst of newcomers, unless the operator says how much: Twisted's 50 make a busy second wait for one more."""
    kind = endpoint.removeprefix("haproxy:").partition(":")[0]
    if kind in ("tcp", "tcp6", "ssl", "unix") and ":backlog=" not in endpoint:
        return f"{endpoint}:backlog={BACKLOG}"
    return endpoint


def _reachable(host: str) -> str:
    """A name for the address that a listener is bound to: the wildcards are reached on the loopback."""
    if host in ("0.0.0.0", "::"):
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host
