"""One process as a container: its states, from the first report to the last stray. Must not know how it is launched or found."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence

import attrs
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from zope.interface import implementer

from sticky import networks
from sticky.containers import endings, killing, logs
from sticky.containers.census import STOPPED, Process, boot_id, look
from sticky.containers.cgroups import Group
from sticky.containers.isolation import Descendants
from sticky.containers.knocking import IProbeReactor, Knocker, http_status
from sticky.containers.lacking import NOT_REPORTED, lacking
from sticky.containers.ownership import group_members, listens_on, members, owns_listener, started_by
from sticky.containers.place import Place
from sticky.containers.process_states import TRANSITIONS, Hold, Household, Input, State
from sticky.containers.readiness import Readiness
from sticky.errors import IllegalEvent
from sticky.isticky import Address, ContainerSpec, Exit, IContainer, IContainerListener, TCPAddress

READY_REPORT = b"ready"  #: the line that a program with `reports_ready` writes
READY_FILE = "ready"  #: what such a program leaves in its scratch folder besides, for a daemon that comes later
_SWEEP_EVERY = 0.002  # seconds; doubles up to the next
_SWEEP_AT_MOST_EVERY = 0.1
_GRACE = 1.0  # seconds that what the main process left has between SIGTERM and SIGKILL
_NETWORK_AGAIN = 0.02  # seconds until one that was adopted is looked at again, whose network is not there yet
_SIGNALLED = 128  # what shells, and bubblewrap, add to the number of the signal that ended their child
_SWEEP_FOR = 3.0  # seconds after which an exit is reported although something is left (a process stuck in the kernel)


@implementer(IContainer)
class Child:
    """An `IContainer`. The backend launches it after `expect`, or takes it over with `adopt`, or ends it with `refuse`."""

    def __init__(
        self,
        spec: ContainerSpec,
        listener: IContainerListener,
        reactor: IProbeReactor,
        household: Household,
        realm: str = "",
    ) -> None:
        self.id = spec.container
        self.spec = spec
        self.realm = realm
        self.candidates: tuple[Address, ...] = ()  #: where it may listen, the preferred one first
        self.port: int | None = None  #: the one we gave it
        self.scratch_is_ours = False  #: we made the folder, so we remove it
        self.group: Group | None = None  #: what it is in, with all that it starts
        self.own_network = False  #: a network namespace of its own
        self.wrapped = False  #: the main process is bubblewrap, which tells signals as shells do
        self.descendants = Descendants.BEST_EFFORT  #: how it is made sure that nothing of it stays
        self.pid: int | None = None  #: also its session and process group; kept after its exit, to find what it left
        self._started: int | None = None  # clock ticks after boot
        self._hold: Hold | None = None
        self._listener = listener
        self._reactor = reactor
        self._household = household
        self._state = State.STARTING
        self._knocker = Knocker()
        self._knock: Callable[[Address], bool] = self._knocker.knock
        self._readiness: Readiness | None = None
        self._was_ready = False
        self._adopted = False
        self._asked = False  # by SIGTERM
        self._killed = False  # by us, so that nothing of it is given time
        self._seen: set[Process] = set()  # in it while the main process lived, whom afterwards nothing else may lead to
        self._ran_out = False  # the kernel killed something of it for want of memory, and we the rest
        self._failure: str | None = None  # why it is not to be; takes the place of how it ended
        self._status: int | None = None
        self._signal: int | None = None
        self._report_open = False
        self._timer: IDelayedCall | None = None
        self._log = Logger(namespace="sticky.containers")

    def __repr__(self) -> str:
        return f"<Child {self.id} pid={self.pid} {self._state.value}>"

    @property
    def state(self) -> State:
        return self._state

    @property
    def place(self) -> Mapping[str, object]:
        """See `IContainer`."""
        if self.pid is not None and self._started is None:
            self._see_start(self.pid)
        if self.pid is None or self._started is None or self.port is None:
            return {}
        return Place(
            boot_id(),
            self.pid,
            self._started,
            self.port,
            self.candidates,
            self.scratch_is_ours,
            self.own_network,
            self.wrapped,
            self.descendants.value,
        ).document()

    def waits_for(self) -> str:
        """See `IContainer`."""
        if self._state is not State.STARTING or self._failure is not None or self.pid is None or self.port is None:
            return ""
        if self.spec.reports_ready and not self._has_reported():
            return NOT_REPORTED
        if self._readiness is None:
            return ""  # the launcher is at work
        try:
            network = next((one.network for one in self._reachable() if isinstance(one, TCPAddress)), "")
        except OSError:
            return ""  # we are about to hear of its exit
        found = listens_on(self.pid, network)
        return lacking(self.spec, self.spec.host, self.port, self._readiness.refusal, found)

    def halted(self) -> bool:
        """See `IContainer`."""
        try:
            process = None if self.pid is None else look(self.pid)
        except OSError:
            return False  # no descriptors left to look with
        return process is not None and process.state == STOPPED

    def same_program(self, spec: ContainerSpec) -> bool:
        """Whether this is another copy of what the spec runs."""
        return (self.spec.server, self.spec.deployment) == (spec.server, spec.deployment)

    # --- IContainer

    def terminate(self) -> None:
        """See `IContainer`. What listens all the same before it has ended is not ready any more: it is about to go."""
        self._asked = True
        self.unwatch()
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """See `IContainer`. Reaches also what left the process group, as far as it can be found."""
        if self._state is State.GONE or self.pid is None:
            return
        self._killed = True
        self._send(signal.SIGKILL)
        try:
            self._kill_left(self._left())
        except OSError:
            pass  # no descriptors left to look for them: they are found when the main process has exited

    # --- from the backend

    def expect(self, candidates: Sequence[Address], hold: Hold) -> None:
        """It is being launched, to be held by this, and may listen on one of these, the preferred one first."""
        self._report_open = True
        self._hold = hold
        self.candidates = tuple(candidates)

    def adopt(self, hold: Hold, place: Place, address: Address | None) -> None:
        """An earlier daemon launched it. It was ready on the address, or is not known to be. Tells nothing from within."""
        self._hold, self._adopted = hold, True
        self.pid, self._started = place.pid, place.started
        self.port, self.scratch_is_ours, self.candidates = place.port, place.scratch_is_ours, place.candidates
        self.own_network, self.wrapped = place.own_network, place.wrapped
        self.descendants = Descendants(place.descendants)
        if address is not None:
            self._step(Input.ANSWERED)
            self._was_ready = True
            return
        if self.spec.reports_ready:
            self._knock = lambda address: self._has_reported() and self._knocker.knock(address)
        self._timer = self._reactor.callLater(0, self._watch)

    def refuse(self, problem: str) -> None:
        """It was not launched. The listener hears of it later, never from within."""
        self._failure = problem
        self._report_open = False
        self._timer = self._reactor.callLater(0, self._end, Input.REFUSED)

    def give_up(self, problem: str) -> None:
        """It can never be ready: end it, unless it is ready against all odds, or ended."""
        if self._state is State.STARTING and self._failure is None:
            self._failure = problem
            self.unwatch()
            self.kill()

    def ran_out(self) -> None:
        """The kernel killed something of it for want of memory: what is left is no container any more."""
        if self._state in (State.STARTING, State.READY):
            self._ran_out = True
            self.unwatch()
            self.kill()

    def unwatch(self) -> None:
        """Stop looking whether it is ready."""
        if self._readiness is not None:
            self._readiness.stop()
        self._knocker.close()

    def look_around(self) -> None:
        """Note whom the main process has started: once it has ended by itself, it leads to nobody any more."""
        if self._state in (State.STARTING, State.READY) and self.pid is not None:
            self._seen = set(started_by(self.pid)) or self._seen  # nobody: perhaps it has just ended

    def leave(self) -> None:
        """The daemon goes and the container may stay: look at nothing any more. Our own children are still reaped."""
        self.unwatch()
        if self._adopted and self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._hold is not None:
            self._hold.release()

    # --- from the reports

    def launched(self, pid: int | None) -> None:
        """The launcher runs."""
        self.pid = pid
        if pid is not None:
            self._see_start(pid)

    def reported(self, line: bytes) -> None:
        """A line on the report pipe: the launcher's, or the program's own."""
        word, *rest = line.split()[:3] or [b""]
        if self._readiness is not None or self._was_ready:
            return  # it has reported already: the program says so again, or a strange thing
        if word == b"failed" and len(rest) == 2 and rest[1].isdigit():
            self._failure = endings.cannot_start(
                rest[0].decode("ascii", "replace"), int(rest[1]), self.spec.command[0], self.spec.directory
            )
        elif word == READY_REPORT and self.spec.reports_ready:
            self._close_report()
            self._watch()

    def report_closed(self) -> None:
        """Nobody holds the report pipe any more: the program runs (exec closed it), has reported, or all is over."""
        self._report_open = False
        if not self.spec.reports_ready:
            self._watch()

    def opened(self, address: Address) -> None:
        """It was started with a listening socket of ours, so it takes connections already."""
        self._report_open = False
        if self._may_be_ready():
            self._answered(address)

    def exited(self, status: int | None, number: int | None) -> None:
        """The main process exited; if it was our child, it is reaped. Both None: nobody could tell us how."""
        if self.wrapped and status is not None and status - _SIGNALLED in signal.valid_signals():
            self._status, self._signal = None, status - _SIGNALLED
        else:
            self._status, self._signal = status, number
        self._stop_timer()
        self.unwatch()
        self._step(Input.EXITED)
        # Not from within: this may still be `spawn`, and the last words may still be in the pipe.
        self._timer = self._reactor.callLater(0, self._sweep, self._reactor.seconds(), _SWEEP_EVERY, self._told())

    # --- inside

    def _see_start(self, pid: int) -> None:
        try:
            process = look(pid)
        except OSError:
            return  # no descriptors left: it is looked at again when its place is asked for
        self._started = None if process is None else process.started

    def _step(self, event: Input) -> None:
        if (self._state, event) not in TRANSITIONS:
            raise IllegalEvent(f"container {self.id} is {self._state.value}, it cannot be {event.value}")
        self._state = TRANSITIONS[self._state, event]

    def _stop_timer(self) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None

    def _reachable(self) -> tuple[Address, ...]:
        """The candidates where they are. Raises OSError where the process has gone and its network with it."""
        if not self.own_network or self.pid is None:
            return self.candidates
        network = networks.of(self.pid)
        if networks.ours(network):
            raise OSError("it has no network of its own")
        return tuple(
            attrs.evolve(address, network=network) if isinstance(address, TCPAddress) else address
            for address in self.candidates
        )

    def _has_reported(self) -> bool:
        """Of one with `reports_ready`. Of an adopted one the file says it: the pipe went with the earlier daemon."""
        return (self.spec.scratch / READY_FILE).exists() if self._adopted else self._readiness is not None

    def _may_be_ready(self) -> bool:
        return self._state is State.STARTING and self._failure is None and not self._asked

    def _watch(self) -> None:
        self._timer = None
        if not self._may_be_ready():
            return
        try:
            candidates = self._reachable()
        except OSError:
            # We are about to hear of its exit. Or its daemon died before the launcher had made the network.
            if self._adopted:
                self._timer = self._reactor.callLater(_NETWORK_AGAIN, self._watch)
            return
        path = self.spec.ready_path
        # A program that says when it is ready is nearly always right: then nobody has to knock, which is work for it.
        said = self.spec.reports_ready and path is None and not self._adopted
        listening = self._listening(candidates) if said else None
        if listening is not None:
            self._answered(listening)
            return
        self._readiness = Readiness(
            self._reactor,
            candidates,
            self._knock,
            self._owns,
            None if path is None else lambda address: http_status(self._reactor, address, path),
            self._answered,
        )
        self._readiness.start()

    def _listening(self, candidates: Sequence[Address]) -> Address | None:
        """Where it listens, as the kernel has it."""
        try:
            return next((address for address in candidates if self._owns(address)), None)
        except OSError:
            return None  # no descriptors left to look with: it is looked at again

    def _owns(self, address: Address) -> bool:
        return self.pid is not None and owns_listener(self.id, self.pid, address, self.realm)

    def _answered(self, address: Address) -> None:
        self._step(Input.ANSWERED)
        self._was_ready = True
        self._knocker.close()
        self._household.answered(self, address)
        self._listener.ready(self.id, address)

    def _told(self) -> set[int]:
        """Those of the group that our SIGTERM has reached before the main process exited."""
        if not self._asked or self.pid is None:
            return set()
        try:
            return group_members(self.pid, None if self.group is None else self.group.members())
        except OSError:
            return set()  # no descriptors left to look with

    def _sweep(self, since: float, wait: float, told: set[int]) -> None:
        """What the main process left is asked to end, then killed; at once if it was we who killed the container."""
        waited = self._reactor.seconds() - since
        again = min(wait * 2, _SWEEP_AT_MOST_EVERY)
        try:
            left = self._left()
            if self._killed or waited >= _GRACE:
                self._kill_left(left)
            else:
                killing.kill(set(left) - told, signal.SIGTERM)
                told |= set(left)
        except OSError as error:
            # No descriptors left to look with: nobody knows whether anything is left until there are.
            if wait == _SWEEP_EVERY:
                self._log.warn("Cannot look for what {container} left: {reason}", container=self.id, reason=str(error))
            self._timer = self._reactor.callLater(again, self._sweep, since, again, told)
            return
        if (left or self._report_open) and waited < _SWEEP_FOR:
            self._timer = self._reactor.callLater(wait, self._sweep, since, again, told)
            return
        if left:
            self._log.warn("Container {container} left processes behind: {pids}", container=self.id, pids=left)
        self._close_report()
        self._end(Input.SWEPT)

    def _end(self, event: Input) -> None:
        self._timer = None
        outcome = self._outcome(ran=event is Input.SWEPT)
        self._step(event)
        self._household.gone(self)
        self._listener.exited(self.id, outcome)

    def _outcome(self, ran: bool) -> Exit:
        lines = logs.last_lines(self.spec.log) if ran else ()
        if self._failure is not None:
            return Exit("failed", None, None, lines, self._failure)
        # In a group of its own whatever was killed was its: a shell ends with a status of its own when its child is.
        alone = self.group is not None and self.group.memory_counter is not None
        unexplained = alone or self._signal == signal.SIGKILL or (self._adopted and self._signal is None)
        if self._ran_out or (unexplained and not self._killed and self._household.out_of_memory(self)):
            return Exit("out_of_memory", self._status, self._signal, lines, endings.out_of_memory(self._was_ready))
        code = self._status if self._signal is None else -self._signal
        detail = "exited" if self._signal is None else "killed"
        if code is not None and not self._killed:
            detail = self.spec.endings.get(code, detail)
        message = endings.ended(self._status, self._signal, self._was_ready)
        problem = None if self._was_ready else self._household.port_problem(self)
        if problem is not None:
            message = f"{message}; {problem}"
        return Exit(detail, self._status, self._signal, lines, message)

    def _close_report(self) -> None:
        if self._hold is not None:
            self._hold.close_report()

    def _send(self, number: signal.Signals) -> None:
        """To the process group; before the launcher has made it one, to the process. A gone container is a no-op."""
        if self._state not in (State.STARTING, State.READY) or self.pid is None or self._hold is None:
            return
        if not self._hold.running():
            return  # we are about to hear of its exit, and its number may be a stranger's
        if self.descendants is Descendants.BEST_EFFORT:
            self._seen |= started_by(self.pid)  # once it has exited it leads to nobody any more
        try:
            os.killpg(self.pid, number)
            if number == signal.SIGTERM:
                os.killpg(self.pid, signal.SIGCONT)  # one that is stopped hears of it then
        except ProcessLookupError:
            self._hold.send(number)
        except PermissionError:
            self._log.warn("May not signal container {container}", container=self.id)

    def _kill_left(self, left: Sequence[int]) -> None:
        if self.group is not None and left:
            self.group.kill()
        killing.kill(left)

    def _left(self) -> list[int]:
        """Whatever of the container lives."""
        if self.pid is None:
            return []
        exited = self._state is State.SWEEPING or self._hold is None or not self._hold.running()
        if self.group is not None:
            return sorted(self.group.members() - (set() if not exited else {self.pid}))
        return members(self.id, self.pid, self.realm, leader_exited=exited, known=self._seen)
