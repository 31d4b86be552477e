"""The worker processes: started, watched, replaced when they end. Knows nothing of what they do; they come in by `proxies`."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.error import ProcessExitedAlready
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import ProcessProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure

from sticky.workers import messages
from sticky.workers.proxies import Member, Proxies

FIRST_FD = 3  #: of the listening sockets in a worker
#: Seconds from its start to its hello; twice as many each time that they were too few, up to the next.
HELLO_WITHIN = 30.0
HELLO_WITHIN_AT_MOST = 480.0  #: on a machine that slow, to begin again is what keeps it from ever coming up
HEALTHY_AFTER = 10.0  #: seconds of life after which an end is no sign of a fault that comes again
SOONEST, LATEST = 0.05, 10.0  #: seconds between an end and the next start
STOPS_WITHIN = 2.0  #: seconds from being asked to end to being killed

#: What a worker runs, in this order: before its imports are through its daemon may be gone.
BOOT = "from sticky.workers.parent import die_with; die_with({parent}); from sticky.worker import main; main()"


class Seat(Enum):
    """What there is of one worker."""

    EMPTY = "empty"  # none; the next one is started in a moment
    STARTING = "starting"  # its process runs and has not said hello
    SERVING = "serving"
    STOPPING = "stopping"  # it was asked to end, and no other takes its place
    GONE = "gone"  # the daemon ends


SEATS: dict[tuple[Seat, str], Seat] = {
    (Seat.EMPTY, "start"): Seat.STARTING,
    (Seat.EMPTY, "stop"): Seat.GONE,
    (Seat.STARTING, "hello"): Seat.SERVING,
    (Seat.STARTING, "exit"): Seat.EMPTY,
    (Seat.STARTING, "stop"): Seat.STOPPING,
    (Seat.SERVING, "exit"): Seat.EMPTY,
    (Seat.SERVING, "stop"): Seat.STOPPING,
    (Seat.STOPPING, "hello"): Seat.STOPPING,  # it came while it was told to go
    (Seat.STOPPING, "exit"): Seat.GONE,
    (Seat.STOPPING, "stop"): Seat.STOPPING,
    (Seat.GONE, "stop"): Seat.GONE,
    (Seat.EMPTY, "release"): Seat.GONE,
    (Seat.STARTING, "release"): Seat.GONE,
    (Seat.SERVING, "release"): Seat.GONE,
    (Seat.GONE, "exit"): Seat.GONE,  # of one that was released
}


class Worker(ProcessProtocol):
    """One place for a worker process: whoever has it now, and the sockets that go with it."""

    log = Logger()

    def __init__(
        self, name: str, listeners: Sequence[tuple[str, socket.socket]], proxies: Proxies, reactor: Any
    ) -> None:
        self.name = name
        self.state = Seat.EMPTY
        self.pid: int | None = None
        self.gone: Deferred[None] = Deferred()
        self.member: Member | None = None
        self.born = 0.0  #: when the process that is here was started
        self.starts = 0
        self._listeners = listeners
        self._proxies = proxies
        self._reactor = reactor
        self._process: Any = None
        self._failures = 0
        self._patience = HELLO_WITHIN
        self._call: IDelayedCall | None = None

    def _become(self, what: str) -> None:
        self.state = SEATS[self.state, what]

    def start(self) -> None:
        """Run one."""
        self._become("start")
        self.born = self._reactor.seconds()
        self.starts += 1
        descriptors = {1: 1, 2: 2}
        for number, (_, one) in enumerate(self._listeners, FIRST_FD):
            descriptors[number] = one.fileno()
        told = {
            "name": self.name,
            "daemon": self._proxies.socket[1:],
            "listeners": [[endpoint, number] for number, (endpoint, _) in enumerate(self._listeners, FIRST_FD)],
        }
        # The same modules as ours, and none of whatever folder the daemon was started in (-P).
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
        arguments = [sys.executable, "-P", "-c", BOOT.format(parent=os.getpid()), json.dumps(told)]
        try:
            with open(os.devnull, "rb") as nothing:
                descriptors[0] = nothing.fileno()
                self._process = self._reactor.spawnProcess(self, sys.executable, arguments, env, childFDs=descriptors)
        except OSError as error:  # no descriptors or no memory left: as if it had ended at once
            self._ended(error.strerror or str(error))
            return
        self.pid = self._process.pid
        self._call = self._reactor.callLater(self._patience, self._late)

    def came_up(self) -> None:
        """Its imports are through: so long they take."""
        needed = self._reactor.seconds() - self.born
        self._patience = min(max(HELLO_WITHIN, 2 * needed), HELLO_WITHIN_AT_MOST)
        self._quiet()

    def arrived(self, member: Member) -> None:
        """It has said hello."""
        self._become("hello")
        self.member = member
        if self._call is not None:
            self.came_up()
        self.log.info("{worker} serves, pid {pid}", worker=self.name, pid=self.pid)

    def cut_off(self) -> None:
        """It is silent or has left: whatever it still does is over now."""
        self.member = None
        self._signal()

    def release(self) -> None:
        """Whoever is here belongs to another daemon now."""
        self._quiet()
        if self.state is Seat.STARTING:
            self._signal()  # it does not know of the other one
        self._become("release")

    def stop(self) -> Deferred[None]:
        """Ask it to end; fires when it has, by itself or by SIGKILL."""
        self._quiet()
        self._become("stop")
        if self.state is Seat.GONE:
            if not self.gone.called:
                self.gone.callback(None)
        elif self.member is not None:
            self.member.link.tell(messages.STOP)
            self._call = self._reactor.callLater(STOPS_WITHIN, self._signal)
        else:
            self._signal()
        return self.gone

    def processExited(self, reason: Failure) -> None:
        """See `ProcessProtocol`."""
        self._ended(reason.getErrorMessage())

    def _ended(self, reason: str) -> None:
        self._quiet()
        self._process = self.pid = self.member = None
        self._become("exit")
        if self.state is Seat.GONE:
            if not self.gone.called:
                self.gone.callback(None)
            return
        lived = self._reactor.seconds() - self.born
        self._failures = 0 if lived >= HEALTHY_AFTER else self._failures + 1
        delay = min(LATEST, SOONEST * 2 ** (self._failures - 1)) if self._failures else 0.0
        self.log.error(
            "{worker} ended ({reason}); another one starts in {delay} s",
            worker=self.name,
            reason=reason,
            delay=delay,
        )
        self._call = self._reactor.callLater(delay, self.start)

    def _late(self) -> None:
        self._call = None
        self.log.error(
            "{worker} has not come up within {seconds:.0f} s and is killed", worker=self.name, seconds=self._patience
        )
        self._patience = min(self._patience * 2, HELLO_WITHIN_AT_MOST)
        self._signal()

    def _signal(self) -> None:
        if self._process is not None:
            try:
                self._process.signalProcess("KILL")
            except ProcessExitedAlready:
                pass

    def _quiet(self) -> None:
        if self._call is not None and self._call.active():
            self._call.cancel()
        self._call = None


class Workers(Service):
    """All worker processes of a daemon. `listening` gives the open sockets by endpoint string."""

    def __init__(
        self,
        reactor: Any,
        count: int,
        proxies: Proxies,
        listening: Callable[[], Mapping[str, Sequence[socket.socket]]],
    ) -> None:
        self.workers: list[Worker] = []
        self._reactor = reactor
        self._count = count
        self._proxies = proxies
        self._listening = listening

    def startService(self) -> None:
        """Run them, unless they run already."""
        super().startService()  # type: ignore[no-untyped-call]
        if not self.workers:
            self.begin()

    def begin(self) -> None:
        """Run them: before the start, where they are to have imported what they need when they are let in."""
        shares = share_out(self._listening(), self._count)
        self.workers = [
            Worker(f"worker-{number}", share, self._proxies, self._reactor) for number, share in enumerate(shares, 1)
        ]
        self._proxies.arrived = self._arrived
        self._proxies.left = self._left
        for worker in self.workers:
            worker.start()

    def came_up(self, pid: int) -> bool:
        """A process has connected that is not heard yet. Whether it is one of them: its time to come up is over then."""
        ours = [worker for worker in self.workers if worker.pid == pid]
        for worker in ours:
            worker.came_up()
        return bool(ours)

    def stopService(self) -> Deferred[Any]:
        """Have them end; fires when none is left."""
        super().stopService()  # type: ignore[no-untyped-call]
        return DeferredList([worker.stop() for worker in self.workers])

    def kill(self) -> None:
        """End all of them now."""
        for worker in self.workers:
            worker.cut_off()

    def release(self) -> None:
        """They are another daemon's now: watch none of them, and start no other."""
        for worker in self.workers:
            worker.release()

    def _arrived(self, member: Member) -> None:
        for worker in self.workers:
            if worker.pid == member.pid and worker.member is None:
                worker.arrived(member)

    def _left(self, member: Member) -> None:
        for worker in self.workers:
            if worker.member is member:
                worker.cut_off()


def share_out(listening: Mapping[str, Sequence[socket.socket]], count: int) -> list[list[tuple[str, socket.socket]]]:
    """Each worker's sockets: one of its own where there are enough, several where there are more, a shared one where not."""
    shares: list[list[tuple[str, socket.socket]]] = [[] for _ in range(count)]
    for endpoint, opened in listening.items():
        for number in range(max(count, len(opened))):
            shares[number % count].append((endpoint, opened[number % len(opened)]))
    return shares
