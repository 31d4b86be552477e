"""A container that an earlier daemon started: is it still the same process, and when does it end. Must not decide what follows.

The main process is not our child, so that no SIGCHLD comes and nobody tells us its status: a pidfd becomes readable when it
exits (pidfd_open(2), Linux 5.3), within the millisecond. Where there is none we look every POLL seconds.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorFDSet, IReactorTime, IReadDescriptor
from twisted.python.failure import Failure
from zope.interface import implementer

from sticky.containers.census import boot_id, environ, look
from sticky.containers.ownership import CONTAINER_MARK, marks
from sticky.containers.place import Place
from sticky.core.values import ContainerId
from sticky.exhaustion import is_ours

POLL = 0.05  #: seconds


class IWatchingReactor(IReactorTime, IReactorFDSet):
    """What watching a process needs from a reactor."""


@implementer(IReadDescriptor)
class Stranger:
    """How a container holds a main process that somebody else started. `ended` is called once, when it exits."""

    def __init__(self, reactor: IWatchingReactor, place: Place, descriptor: int | None) -> None:
        self.place = place
        self._reactor = reactor
        self._descriptor = descriptor  # the pidfd, while we watch
        self._ended: Callable[[], None] | None = None
        self._timer: IDelayedCall | None = None

    def watch(self, ended: Callable[[], None]) -> None:
        """From now on. Never calls from within."""
        self._ended = ended
        if self._descriptor is None:
            self._timer = self._reactor.callLater(POLL, self._poll)
        else:
            self._reactor.addReader(self)

    def running(self) -> bool:
        """Whether the process has not exited yet, so that its number is still its own."""
        if self._descriptor is not None:
            return not _readable(self._descriptor)
        return _runs(self.place)

    def send(self, number: signal.Signals) -> None:
        """A signal to the main process alone."""
        try:
            if self._descriptor is not None:
                signal.pidfd_send_signal(self._descriptor, number)
            elif _runs(self.place):
                os.kill(self.place.pid, number)
        except (ProcessLookupError, PermissionError):
            pass

    def release(self) -> None:
        """It is not watched any more. Again: nothing happens."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            if self._ended is not None:
                self._reactor.removeReader(self)
            os.close(descriptor)
        self._ended = None

    def close_report(self) -> None:
        """The report pipe went with the earlier daemon."""

    # --- from the reactor

    def fileno(self) -> int:
        return -1 if self._descriptor is None else self._descriptor

    def doRead(self) -> None:
        """It exited."""
        self._exited()

    def connectionLost(self, reason: Failure) -> None:
        """The reactor stops."""
        self.release()

    def logPrefix(self) -> str:
        return f"adopted process {self.place.pid}"

    def _poll(self) -> None:
        self._timer = None
        if _runs(self.place):
            self._timer = self._reactor.callLater(POLL, self._poll)
        else:
            self._exited()

    def _exited(self) -> None:
        ended = self._ended
        self.release()
        if ended is not None:
            ended()


def find(
    reactor: IWatchingReactor,
    container: ContainerId,
    place: Place,
    realm: str,
    open_pidfd: Callable[[int], int] = os.pidfd_open,
) -> Stranger | None:
    """The main process of the place, if it still runs and is the very same: by boot, pid, start time and marks.

    Raises OSError where no descriptor is left to find out: what cannot be looked at must not be taken for lost, and be killed.
    """
    if place.boot != boot_id() or not place.boot:
        return None
    descriptor: int | None = None
    try:
        descriptor = open_pidfd(
            place.pid
        )  # before the looks: from here on the number cannot be given to somebody else unseen
    except ProcessLookupError:
        return None
    except OSError as error:
        if is_ours(error):
            raise
        # An old kernel, or one that forbids it: by looking.
    hold = None
    try:
        if _same(place) and _bears(container, place, realm) and not (descriptor is not None and _readable(descriptor)):
            hold = Stranger(reactor, place, descriptor)
    finally:
        if hold is None and descriptor is not None:
            os.close(descriptor)
    return hold


def remains(place: Place) -> bool:
    """Whether the main process has exited and still has its number, as a zombie: its session's members are then its own."""
    process = look(place.pid)
    return place.boot == boot_id() and process is not None and process.started == place.started and process.state == "Z"


def _same(place: Place) -> bool:
    process = look(place.pid)
    return process is not None and process.started == place.started and process.state != "X"


def _runs(place: Place) -> bool:
    # A leader that is a zombie may have threads that run on; only a pidfd can tell. Such programs are rare.
    try:
        process = look(place.pid)
    except OSError:
        return True  # it cannot be seen just now: the next look will tell
    return process is not None and process.started == place.started and process.state not in ("Z", "X")


def _bears(container: ContainerId, place: Place, realm: str) -> bool:
    """Its environment says whose it is; where it says nothing, it is at least the leader of the session we made.

    Programs write over that memory to change their title, and after a change of user it is not ours to read.
    """
    lines = environ(place.pid)
    if any(line.startswith(f"{CONTAINER_MARK}=".encode()) for line in lines):
        return marks(container, realm) <= lines
    process = look(place.pid)
    return process is not None and process.session == place.pid


def _readable(descriptor: int) -> bool:
    poll = select.poll()  # not select(): it fails for descriptors above 1023
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
