"""Where clients connect: opens the endpoints or takes them over, says where they are. Knows nothing of what is spoken there.

One process accepts there itself; for workers the sockets are only held open, so that a worker's death closes none.
"""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from twisted.application.service import Service
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import CancelledError, Deferred, DeferredList
from twisted.internet.endpoints import serverFromString
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort
from twisted.internet.protocol import Factory
from twisted.logger import Logger
from twisted.python.failure import Failure

from sticky import sockets
from sticky.edge.context import EdgeFactory
from sticky.exhaustion import NO_ROOM
from sticky.startup import CANNOT_START, give_up

IN_USE_FOR = 2.0  #: seconds that an address may be in use by those who are about to end
AGAIN_AFTER = 5.0  #: seconds until addresses are written again that there was no room for
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
        factory: EdgeFactory | None,
        state_dir: Path,
        public_urls: Mapping[str, Callable[[str], str]],
        copies: int = 1,
    ) -> None:
        """`public_urls`: what clients see, by Server, from the address of the first listener.

        Without `factory` nobody is accepted: the sockets, on each TCP port so many `copies`, are for workers.
        """
        self._reactor = reactor
        self._endpoints = endpoints
        self._factory = factory
        self._url_file = state_dir / "url"
        self._public_urls = public_urls
        self._copies = copies
        self._ports: list[IListeningPort] = []  # that clients are accepted from
        self._opened: list[Any] = []  # Twisted's own, which know what to tidy up
        self._coming: list[Deferred[Any]] = []  # of endpoints that take their time
        self.inherited: Mapping[str, Sequence[socket.socket]] = {}  #: by endpoint: to be taken instead of opening any
        self.sockets: dict[str, list[socket.socket]] = {}  #: by endpoint: what can be shared with other processes
        self.urls: list[str] = []
        self._bound: list[tuple[sockets.Place, socket.socket]] = []  # that nobody can connect to before the start
        self._began = False  # it was said where, once
        self._again: Any = None  # when the addresses will be written, while the disk is full

    def privilegedStartService(self) -> None:
        """Bind: before privileges are dropped, and before any container exists.

        A listener that cannot be opened is the operator's to mend: one line on stderr and exit status 1.
        """
        if not self.inherited:
            self._take_away()  # what a daemon that died has left
        for endpoint in self._endpoints:
            given = list(self.inherited.get(endpoint, ()))
            try:
                if given:
                    self._take_over(endpoint, given)
                else:
                    self._open_patiently(endpoint)
            except (OSError, CannotListenError) as error:
                reason = str(error) if isinstance(error, CannotListenError) else f"{error.strerror}."
                give_up(f"cannot listen on {endpoint}: {reason} {_advice(error)}", CANNOT_START)

    def startService(self) -> None:
        """Say where: what came before this has been taken up, and the first request will be served."""
        super().startService()  # type: ignore[no-untyped-call]
        bound, self._bound = self._bound, []
        for place, one in bound:
            sockets.serve(place, one)
        self.resume()
        self._announce(self.urls)
        self._began = True

    def stopService(self) -> Deferred[list[tuple[bool, None]]]:
        """Accept no more connections, drop those there are, and take the address away."""
        super().stopService()  # type: ignore[no-untyped-call]
        self._take_away()
        closing = self._close()
        if self._factory is not None:
            self._factory.context.stop()
        return DeferredList([port for port in closing if port is not None])

    def pause(self) -> None:
        """Let newcomers wait in the backlog, for `resume` or for whoever takes the sockets over."""
        if self._factory is not None:
            self._factory.context.doors.shut()

    def resume(self) -> None:
        """Accept again."""
        if self._factory is not None:
            self._factory.context.doors.open()

    def leave(self) -> None:
        """Another daemon listens on these sockets now: close them here, and take nothing away that is its own."""
        for port in self._opened:
            port.lockFile = None  # of a Unix socket: Twisted would remove the socket along with it
            port._shouldShutdown = False  # that would end the other daemon's listening, too
        self._close()
        if self.running:
            super().stopService()  # type: ignore[no-untyped-call]

    def _close(self) -> list[Any]:
        if self._again is not None:
            self._again.cancel()
            self._again = None
        self.pause()  # whoever leaves from now on makes room for nobody
        for coming in self._coming:
            coming.cancel()
        closing = [port.stopListening() for port in self._ports or self._opened]
        self._ports.clear()
        self._opened.clear()
        if self._factory is None:
            for held in self.sockets.values():
                for one in held:
                    one.close()
        self.sockets.clear()
        return closing

    def publish(self, public_urls: Mapping[str, Callable[[str], str]]) -> None:
        """Other Servers, or other URLs of theirs."""
        self._public_urls = public_urls
        if self.running:
            self._write_urls()

    def _take_away(self) -> None:
        try:
            self._url_file.unlink(missing_ok=True)
        except OSError as error:
            if error.errno not in NO_ROOM and not self._began:
                raise
            self.log.error("cannot remove {file}: {reason}", file=str(self._url_file), reason=error.strerror)

    def _announce(self, urls: Sequence[str]) -> None:
        self._write_urls()
        for url in urls:
            self.log.info("listening on {url}", url=url)

    def _write_urls(self) -> None:
        """Tell programs on this machine: the first line is the daemon's own address, then a line for each Server.

        Where there is no room, or once it has begun, neither Servers are kept from being changed nor sessions of before from being
        served by that: it is tried again. Else raises OSError.
        """
        if self._again is not None:
            self._again.cancel()
            self._again = None
        own = next(iter(self.urls), "")
        lines = [own, *(f"{server} {url(own)}" for server, url in self._public_urls.items())]
        fresh = self._url_file.with_suffix(".new")
        try:
            fresh.write_text("".join(f"{line}\n" for line in lines))
            fresh.replace(self._url_file)
        except OSError as error:
            if error.errno not in NO_ROOM and not self._began and not self.inherited:
                raise  # at a start that is the operator's to mend, and ends nothing that runs
            self.log.error("cannot write {file}: {reason}", file=str(self._url_file), reason=error.strerror)
            self._again = self._reactor.callLater(AGAIN_AFTER, self._written_again)

    def _written_again(self) -> None:
        self._again = None
        self._write_urls()

    # --- opening

    def _open_patiently(self, endpoint: str) -> None:
        """The workers of a daemon that was killed end with it, but not in the same instant. Blocks: nothing else runs yet."""
        deadline = time.monotonic() + IN_USE_FOR
        while True:
            try:
                self._open_new(endpoint)
                return
            except (OSError, CannotListenError) as error:
                number = error.socketError.errno if isinstance(error, CannotListenError) else error.errno
                if number != errno.EADDRINUSE or time.monotonic() >= deadline:
                    raise
            time.sleep(IN_USE_FOR / 20)

    def _open_new(self, endpoint: str) -> None:
        if self._factory is None and sockets.kind_of(endpoint) != "unix":
            self._keep(endpoint, sockets.open_tcp(sockets.place_of(_with_backlog(endpoint)), self._copies))
        else:
            self._open(endpoint)

    def _open(self, endpoint: str) -> None:
        """By Twisted, which knows more kinds than we do. Raises what that raises; one that takes its time may fail later."""
        failures: list[Failure] = []
        opening = True
        factory = Factory() if self._factory is None else self._factory
        listening = serverFromString(self._reactor, _with_backlog(endpoint)).listen(factory)
        listening.addCallback(lambda port: self._listens(endpoint, port))
        listening.addErrback(lambda failure: failures.append(failure) if opening else self._late(endpoint, failure))
        opening = False
        if failures:
            failures[0].raiseException()
        if not listening.called:
            self._coming.append(listening)

    def _late(self, endpoint: str, failure: Failure) -> None:
        if not failure.check(CancelledError):  # others listen by now, and are used: that is no reason to end
            self.log.failure("nobody can connect to {endpoint}", failure, endpoint=endpoint)

    def _take_over(self, endpoint: str, given: list[socket.socket]) -> None:
        place = sockets.place_of(_with_backlog(endpoint))
        if self._factory is not None:
            for one in given:
                self._listens(endpoint, sockets.accept_on(self._reactor, endpoint, one, self._factory))
                one.close()
            return
        if place.family != socket.AF_UNIX and len(given) < self._copies:
            more = sockets.more_tcp(place, given[0], self._copies - len(given))
            self._bound += [(place, one) for one in more]
            given += more
        self._keep(endpoint, given)

    def _listens(self, endpoint: str, port: Any) -> None:
        self._opened.append(port)
        known = len(self.urls)
        opened = getattr(port, "socket", None)
        address = port.getHost()
        if self._factory is None:
            _pause(port)  # for ever: workers accept from its socket
        else:
            if not self.running:
                self.pause()  # until what came before has been taken up
            self._ports.append(self._factory.listening(port))
        if isinstance(opened, socket.socket) and sockets.shareable(endpoint):
            self._keep(endpoint, [opened])
        elif isinstance(address, IPv4Address | IPv6Address):
            self._say(endpoint, address.host, address.port)
        if self.running:
            self._announce(self.urls[known:])

    def _keep(self, endpoint: str, opened: list[socket.socket]) -> None:
        if endpoint not in self.sockets and opened[0].family != socket.AF_UNIX:
            self._say(endpoint, *opened[0].getsockname()[:2])
        self.sockets.setdefault(endpoint, []).extend(opened)

    def _say(self, endpoint: str, host: str, port: int) -> None:
        scheme = "https" if sockets.kind_of(endpoint) == "ssl" else "http"
        self.urls.append(f"{scheme}://{_reachable(host)}:{port}")


def _with_backlog(endpoint: str) -> str:
    """With room for a burst of newcomers, unless the operator says how much: Twisted's 50 make a busy second wait for one more."""
    if sockets.shareable(endpoint) and ":backlog=" not in endpoint:
        return f"{endpoint}:backlog={BACKLOG}"
    return endpoint


def _pause(port: Any) -> None:
    if hasattr(port, "stopReading"):
        port.stopReading()


def _reachable(host: str) -> str:
    """A name for the address that a listener is bound to: the wildcards are reached on the loopback."""
    if host in ("0.0.0.0", "::"):
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host
