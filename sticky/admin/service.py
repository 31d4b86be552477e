"""The admin API's life: opens its socket, serves, and takes it away last. Knows neither calls nor state."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredList, succeed
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IDelayedCall, IListeningPort
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger, LogPublisher, globalLogPublisher
from twisted.web.server import Site

from sticky.admin import sockets
from sticky.admin.calls import AdminCalls, Check
from sticky.admin.door import TokenDoor
from sticky.admin.network import AdminPorts
from sticky.admin.peers import Guard
from sticky.admin.recent import Recent
from sticky.admin.web import AdminRequest, AdminResource
from sticky.exhaustion import NO_ROOM
from sticky.iinspection import IDeploying, IInspection
from sticky.ioperating import IOperating
from sticky.irestarting import IRestarting
from sticky.startup import CANNOT_START, give_up

AGAIN_AFTER = 5.0  #: seconds between two attempts to make the socket, while its file system is full or can only be read
LAST_WORDS = 1.0  #: seconds between the end of this API and that of its connections


class _Site(Site):
    """Without an access log of its own: `web` logs what changes something."""

    noisy = False
    displayTracebacks = False
    requestFactory = AdminRequest

    def log(self, request: object) -> None:
        """Nothing: whoever watches asks every second, and Twisted's lines take their times from the reactor's clock."""


class AdminService(Service):
    """See the module. `endpoint`: a `unix:` endpoint string; None: the daemon has no admin API."""

    log = Logger()

    def __init__(
        self,
        endpoint: str | None,
        inspection: IInspection,
        reactor: Any,
        check: Check,
        publisher: LogPublisher = globalLogPublisher,
        deploying: IDeploying | None = None,
        operating: IOperating | None = None,
        network: Sequence[str] = (),
        door: TokenDoor | None = None,
        restarting: IRestarting | None = None,
    ) -> None:
        """`network`: endpoint strings where it listens besides, for those whom the `door` admits."""
        self._path = None if endpoint is None else sockets.socket_path(endpoint)
        self._inspection = inspection
        self._reactor = reactor
        self._publisher = publisher
        self._recent = Recent()
        calls = AdminCalls(inspection, self._recent, check, self._in_thread, reactor, deploying, operating, restarting)
        site = _Site(AdminResource(calls))  # type: ignore[no-untyped-call]
        self._guard = Guard(site)
        self._ports = AdminPorts(network, _Site(AdminResource(calls, door)), reactor)  # type: ignore[no-untyped-call]
        self._port: IListeningPort | None = None
        self._again: IDelayedCall | None = None
        self.succeeds = False  #: an earlier daemon has the addresses until this one takes over

    def privilegedStartService(self) -> None:
        """See that the address can be used, before anything is at stake: if not, one line on stderr and exit status 1."""
        super().privilegedStartService()  # type: ignore[no-untyped-call]
        if not self.succeeds:
            self._make_way()

    def take_over(self) -> None:
        """As `privilegedStartService`, once an earlier daemon has given the addresses up: it may still go on, if we cannot."""
        self._make_way()

    def _make_way(self) -> None:
        self._ports.privilegedStartService()
        if self._path is None:
            return
        try:
            sockets.make_way(self._path)
        except (sockets.Taken, OSError) as error:
            if not _may_pass(error):
                _refuse(self._path, error)

    def startService(self) -> None:
        """Listen: as the user that the daemon runs as from now on, whose socket it is to be.

        Fails as above; not after an earlier daemon, which has gone by now: that is no reason to end its sessions, too.
        """
        super().startService()  # type: ignore[no-untyped-call]
        self._publisher.addObserver(self._recent)
        self._ports.startService()
        if self._path is None:
            self.log.warn("there is no admin socket: its path would be too long (daemon.admin)")
            return
        if self.succeeds:
            self._try(self._path)
            return
        try:
            self._open(self._path)
        except (sockets.Taken, OSError, CannotListenError) as error:
            _refuse(self._path, error)

    def _open(self, path: Path) -> None:
        """Listen there; where the file system lets nothing be written later: sessions of before are to be served meanwhile."""
        self._again = None
        try:
            sockets.make_way(path)
            with sockets.private():
                self._port = self._reactor.listenUNIX(str(path), self._guard, mode=0o600)
        except (OSError, CannotListenError) as error:
            if not _may_pass(error):
                raise
            self.log.error(
                "there is no admin socket as long as {path} cannot be made: {reason}", path=str(path), reason=str(error)
            )
            self._again = self._reactor.callLater(AGAIN_AFTER, self._try_again, path)
            return
        try:
            self._point(path)
        except OSError as error:
            if not _may_pass(error):
                raise
            self.log.error(
                "nobody is told that the admin socket is {path}: {reason}", path=str(path), reason=str(error)
            )

    def _try(self, path: Path) -> None:
        try:
            self._open(path)
        except (sockets.Taken, OSError, CannotListenError) as error:
            self.log.error("there is no admin socket: {reason}; it is tried again", reason=str(error))
            self._again = self._reactor.callLater(AGAIN_AFTER, self._try_again, path)

    def _try_again(self, path: Path) -> None:
        self._try(path)
        if self._port is not None:
            self.log.info("the admin socket {path} is there", path=str(path))

    def _try_no_more(self) -> None:
        again, self._again = self._again, None
        if again is not None:
            again.cancel()

    def stopService(self) -> Deferred[Any]:
        """Take the socket away and drop who is connected."""
        super().stopService()  # type: ignore[no-untyped-call]
        self._publisher.removeObserver(self._recent)
        self._try_no_more()
        ports = self._ports.stopService()
        if self._port is None or self._path is None:
            return ports
        port, self._port = self._port, None
        self._path.touch()  # Twisted removes it, and would not close a port whose file somebody else has removed
        with suppress(OSError):
            self._pointer.unlink(missing_ok=True)
        closed = port.stopListening()
        self._guard.abort()
        return DeferredList([ports, *([] if closed is None else [closed])])

    # --- when another daemon takes over

    async def rest(self) -> None:
        """Give the addresses up. Who is connected to the socket stays, and is answered."""
        await self._ports.stopService()
        self._try_no_more()
        port, self._port = self._port, None
        if port is not None and self._path is not None:
            self._path.touch()
            await (port.stopListening() or succeed(None))

    def wake(self) -> None:
        """Nobody has taken over: listen again."""
        if self._path is not None:
            self._try(self._path)
        self._ports.wake()

    def leave(self) -> Deferred[None]:
        """The other daemon answers. Who is connected has a moment to read the last answer; fires when it is over."""
        self._publisher.removeObserver(self._recent)
        return deferLater(self._reactor, LAST_WORDS, self._guard.abort)

    def _point(self, path: Path) -> None:
        """Tell the command where the socket is, if it is not where it would look."""
        if path == self._inspection.daemon().state_dir / sockets.DEFAULT_NAME:
            self._pointer.unlink(missing_ok=True)
        else:
            fresh = self._pointer.with_suffix(".new")
            fresh.write_text(f"{path}\n", "utf-8")
            os.replace(fresh, self._pointer)

    @property
    def _pointer(self) -> Path:
        return self._inspection.daemon().state_dir / sockets.POINTER_NAME

    def _in_thread(self, function: Any, *arguments: Any) -> Deferred[Any]:
        return deferToThreadPool(self._reactor, self._reactor.getThreadPool(), function, *arguments)


def _may_pass(error: Exception) -> bool:
    """Whether it is the file system, full or only to be read, which is nobody's configuration."""
    found = error.socketError if isinstance(error, CannotListenError) else error
    return isinstance(found, OSError) and found.errno in NO_ROOM


def _refuse(path: Path, error: Exception) -> NoReturn:
    reason = f"{path}: {error.strerror}" if isinstance(error, OSError) else str(error)
    give_up(f"cannot open the admin socket: {reason}", CANNOT_START)
