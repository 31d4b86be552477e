"""One container on an Engine: its states, from the creation to the last word. Must not know other containers.

What the Engine says about a container is always asked for (an inspection), never concluded from an event: events only say
that it is time to ask, and may be doubled, late or missing.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from sticky.containers import logs
from sticky.containers.docker import recipe
from sticky.containers.docker.faults import EngineError, EngineRefused, EngineUnreachable
from sticky.containers.docker.launch import LaunchFailed, Unwanted, Yard, launch
from sticky.containers.docker.life import TRANSITIONS, Input, State
from sticky.containers.docker.output import Copying, last_lines
from sticky.containers.docker.recipe import DockerOptions, Network
from sticky.containers.docker.verdicts import End, paused, running, verdict
from sticky.containers.docker.watching import lacks, watch
from sticky.containers.knocking import IProbeReactor, Knocker
from sticky.containers.readiness import Readiness
from sticky.errors import IllegalEvent
from sticky.isticky import Address, ContainerSpec, Exit, IContainer, IContainerListener, TCPAddress

SIGTERM, SIGKILL = 15, 9
_NAMES = {SIGTERM: "SIGTERM", SIGKILL: "SIGKILL"}
LAST_WORDS = 2.0  # seconds that the rest of the output may take
ASK_AGAIN = 1.0  # seconds after an Engine's answer that says nothing
REPEAT_TERM = 0.5  # seconds
#: Seconds after `kill` from which an Engine that does not answer no longer keeps us waiting.
PATIENCE = 10.0


class Quay(Yard, Protocol):
    """What a container asks of the dock where it lies. See `dock.Dock`."""

    @property
    def reactor(self) -> IProbeReactor: ...

    def copying(self, spec: ContainerSpec) -> Copying: ...
    def gone(self, container: DockerContainer) -> None: ...
    def work(self, under_way: Deferred[None], *, patient: bool = False) -> None: ...


@implementer(IContainer)
class DockerContainer:
    """An `IContainer`. Its dock begins it with `begin` or `take_up`, and gives notice of what events say."""

    def __init__(self, spec: ContainerSpec, options: DockerOptions, listener: IContainerListener, quay: Quay) -> None:
        self.id = spec.container
        self.spec = spec
        self.options = options
        self.engine_id: str | None = None
        self.port: int | None = None  #: on 127.0.0.1
        self._listener = listener
        self._quay = quay
        self._reactor = quay.reactor
        self._state = State.CREATING
        self._wanted: int | None = None  # the strongest signal that was asked for
        self._delivered: int | None = None  # the last signal that the Engine took
        self._told_status: int | None = None  # by the event of its death
        self._copying = quay.copying(spec)
        self._knocker = Knocker()
        self._readiness: Readiness | None = None
        self._was_ready = False
        self._paused = False  # when it was last looked at
        self._looking = False
        self._look_again = False
        self._timers: set[IDelayedCall] = set()
        self._impatient = False
        self._left = False  # nobody listens any more
        self._log = Logger(namespace="sticky.containers")

    def __repr__(self) -> str:
        return f"<DockerContainer {self.id} {self.engine_id and self.engine_id[:12]} {self._state.value}>"

    @property
    def place(self) -> Mapping[str, object]:
        """See `IContainer`."""
        # The Engine gives each container process numbers of its own: the kernel kills all of it with its first process.
        return {"socket": self.options.socket, "name": recipe.name(self.id), "descendants": "pid_namespace"}

    def waits_for(self) -> str:
        """See `IContainer`."""
        if self._state is not State.STARTING or self.port is None or self._readiness is None:
            return ""
        return lacks(self.spec, self.options, self.port, self._readiness.refusal)

    def halted(self) -> bool:
        """See `IContainer`. Of `docker pause`: an Engine shows its processes only to who asks for them."""
        return self._paused

    @property
    def state(self) -> State:
        return self._state

    # --- IContainer

    def terminate(self) -> None:
        """See `IContainer`. The Engine signals the container's first process."""
        self._want(SIGTERM)

    def kill(self) -> None:
        """See `IContainer`. Ends everything in the container."""
        self._want(SIGKILL)
        if not self._impatient and self._state in (State.CREATING, State.STARTING, State.READY):
            self._impatient = True
            self._later(PATIENCE, self._give_up)

    # --- from the dock

    def begin(self) -> None:
        """Create and start it."""
        self._run(self._bring_up(), patient=True)

    def take_up(self, address: Address | None, since: float) -> None:
        """An earlier daemon started it, perhaps: go on from there. It was ready on the address, if there is one.

        `since`: Unix time from which on its output is copied. Tells nothing from within.
        """
        self.engine_id = recipe.name(self.id)  # an Engine takes names for ids
        self._step(Input.STARTED)
        if isinstance(address, TCPAddress):
            self._step(Input.ANSWERED)
            self._was_ready, self.port = True, address.port
        self._later(0, lambda: self._run(self._resume(since)))

    def notice(self, status: int | None = None) -> None:
        """Something may have happened to it: look. `status`: of its exit, if the Engine said one."""
        if status is not None:
            self._told_status = status
        if self._state in (State.STARTING, State.READY):
            if self._looking:
                self._look_again = True
            else:
                self._run(self._look())

    def leave(self) -> None:
        """The backend stops: watch it no more. Nothing is told any more."""
        self._left = True
        self._drop_timers()
        self._unwatch()
        self._copying.stop()

    # --- starting

    async def _bring_up(self) -> None:
        try:
            launched = await launch(self.spec, self.options, self._quay, self._still_wanted)
        except LaunchFailed as failed:
            self._end(Exit("failed", None, None, (), str(failed)))
            return
        except Unwanted:
            number = self._wanted or SIGKILL
            self._end(Exit("killed", None, number, (), f"ended by {_NAMES[number]} before it was started"))
            return
        if self._left:
            return  # the next daemon finds it
        if self._state is not State.CREATING:  # we gave up meanwhile
            self._quay.remove(launched.engine_id)
            self._quay.release_port(launched.port)
            return
        self.engine_id, self.port = launched.engine_id, launched.port
        self._step(Input.STARTED)
        if self._wanted is not None:
            self._run(self._send(self._wanted))
        if self._told_status is not None:
            self.notice()  # it died while its start was being answered
        await self._attend(None)

    def _still_wanted(self) -> bool:
        return self._wanted is None and self._state is State.CREATING

    async def _resume(self, since: float) -> None:
        if self._state not in (State.STARTING, State.READY):
            return
        try:
            found = await self._inspection()
        except EngineRefused as error:
            if error.not_found:
                self._finish(None)
                return
            found = {}
        except EngineError:
            found = {}  # it is asked again
        state = found.get("State")
        if state is None:
            self._later(ASK_AGAIN, lambda: self._run(self._resume(since)))
        elif state.get("Status") == "created":
            self._end(Exit("failed", None, None, (), "it was created and never started"))
        elif not running(state):
            self._finish(End.of(state))
        else:
            self._paused = paused(state)
            self.engine_id = str(found.get("Id", self.engine_id))
            if self.port is None:
                self.port = recipe.port_of(found.get("Config", {}).get("Labels"))
            await self._attend(since)

    async def _attend(self, since: float | None) -> None:
        """It runs: copy what it says, and see when it is ready."""
        if self.engine_id is None or self._left or self._state not in (State.STARTING, State.READY):
            return
        try:
            self._copying.start(self.engine_id, since)
        except OSError as error:
            self._log.warn("The log {path} cannot be opened: {reason}", path=self.spec.log, reason=error.strerror)
        pid = await self._first_process() if self.options.network is Network.HOST else None
        if self._state is State.STARTING and self.port is not None:
            self._readiness = watch(
                self._reactor, self.spec, self.options, self.port, pid, self._knocker, self._answered
            )
            self._readiness.start()

    async def _first_process(self) -> int | None:
        try:
            found = await self._inspection()
            pid = found["State"].get("Pid")
        except EngineError:
            return None
        return pid if isinstance(pid, int) and pid > 0 else None

    async def _inspection(self) -> Mapping[str, Any]:
        """Raises `EngineError`. Its `State` is a mapping."""
        found = await self._quay.engine.request("GET", f"/containers/{self.engine_id}/json")
        if not isinstance(found, Mapping) or not isinstance(found.get("State"), Mapping):
            raise EngineError("the container engine tells no state")
        return found

    def _answered(self, address: Address) -> None:
        self._step(Input.ANSWERED)
        self._was_ready = True
        self._knocker.close()
        self._listener.ready(self.id, address)

    def _unwatch(self) -> None:
        if self._readiness is not None:
            self._readiness.stop()
        self._knocker.close()

    # --- signals

    def _want(self, number: int) -> None:
        if self._state in (State.ENDING, State.GONE):
            return
        if self._wanted != SIGKILL:
            self._wanted = number
        if self._state is not State.CREATING:
            self._run(self._send(number))

    async def _send(self, number: int, again: bool = True) -> None:
        params = {"signal": _NAMES[number]}
        try:
            await self._quay.engine.request("POST", f"/containers/{self.engine_id}/kill", params)
        except EngineRefused as error:
            if not error.not_found and error.status != 409:  # gone, or not running
                self._log.warn("Container {container}: {problem}", container=self.id, problem=str(error))
            self.notice()
            return
        except EngineError:
            return  # when it is back, what was wanted is sent
        self._delivered = number
        if number == SIGTERM and again and self._state is State.STARTING:
            # A container's first process loses signals until it has said that it wants them, which for the Engine's
            # init is a millisecond after its start.
            self._later(REPEAT_TERM, self._repeat)

    def insist(self) -> None:
        """The Engine may not have heard of the last signal: send it once more, if so."""
        if self._wanted not in (None, self._delivered) and self._state in (State.STARTING, State.READY):
            self._run(self._send(self._wanted or SIGKILL))

    def _repeat(self) -> None:
        if self._state is State.STARTING and self._wanted == SIGTERM:
            self._run(self._send(SIGTERM, again=False))

    def _give_up(self) -> None:
        """The Engine has not said for PATIENCE seconds what became of a kill."""
        if self._state in (State.CREATING, State.STARTING, State.READY):
            self._log.warn("Container {container} may still run: the engine does not answer", container=self.id)
            message = "the container engine does not answer; it may still run, and is removed when the engine is back"
            self._end(Exit("killed", None, None, (), message))

    # --- ending

    async def _look(self) -> None:
        self._looking = True
        try:
            state = (await self._inspection())["State"]
            self._paused = paused(state)
            if not running(state):
                self._finish(End.of(state))
            elif self._wanted not in (None, self._delivered):
                self._later(ASK_AGAIN, self.insist)
        except EngineRefused as error:
            if error.not_found:
                self._finish(None)
            else:
                self._later(ASK_AGAIN, self.notice)
        except EngineUnreachable:
            pass  # its dock gives notice again when the Engine is back
        except EngineError:
            self._later(ASK_AGAIN, self.notice)
        finally:
            self._looking = False
        if self._look_again:
            self._look_again = False
            self.notice()

    def _finish(self, end: End | None) -> None:
        if not self._left and self._state in (State.STARTING, State.READY):
            self._unwatch()
            self._step(Input.ENDED)
            self._run(self._wind_up(end))

    async def _wind_up(self, end: End | None) -> None:
        lines: tuple[str, ...] = ()
        # Before the last lines are asked for: Podman tells an end before it has noted the last output.
        await self._copying.end(LAST_WORDS)
        if end is not None:
            lines = await self._last_lines()
        elif self._told_status is not None:
            end = End(self._told_status)
        if end is None:
            outcome = Exit("killed", None, None, (), "the container engine does not have it any more")
        else:
            outcome = verdict(self.spec, end, self._was_ready, lines, self.options.memory)
        self._tell(outcome)

    async def _last_lines(self) -> tuple[str, ...]:
        params = {"stdout": "1", "stderr": "1", "tail": str(logs.LINES)}
        try:
            found = last_lines(await self._quay.engine.raw("GET", f"/containers/{self.engine_id}/logs", params, 5.0))
        except EngineError as error:
            self._log.debug("No last lines of container {container}: {problem}", container=self.id, problem=str(error))
            found = ()
        return found or logs.last_lines(self.spec.log)

    def _end(self, outcome: Exit) -> None:
        """It ended without running, or without our knowing how."""
        if not self._left and self._state in (State.CREATING, State.STARTING, State.READY):
            self._unwatch()
            self._step(Input.ENDED)
            self._tell(outcome)

    def _tell(self, outcome: Exit) -> None:
        if self._left:
            return
        self._step(Input.TOLD)
        self._drop_timers()
        self._copying.stop()
        if self.engine_id is not None:
            self._quay.remove(self.engine_id)
        self._quay.gone(self)
        self._listener.exited(self.id, outcome)

    # --- inside

    def _step(self, event: Input) -> None:
        if (self._state, event) not in TRANSITIONS:
            raise IllegalEvent(f"container {self.id} is {self._state.value}, it cannot be {event.value}")
        self._state = TRANSITIONS[self._state, event]

    def _later(self, seconds: float, call: Callable[[], object]) -> None:
        if self._left or self._state is State.GONE:
            return

        def due() -> None:
            self._timers.discard(timer)
            call()

        timer: IDelayedCall = self._reactor.callLater(seconds, due)
        self._timers.add(timer)

    def _drop_timers(self) -> None:
        timers, self._timers = self._timers, set()
        for timer in timers:
            timer.cancel()

    def _run(self, work: Coroutine[Deferred[Any], Any, None], *, patient: bool = False) -> None:
        self._quay.work(Deferred.fromCoroutine(work).addErrback(self._unforeseen), patient=patient)

    def _unforeseen(self, failure: Failure) -> None:
        if self._left and failure.check(CancelledError):
            return  # nobody listens to the engine any more, and the container goes on without us
        self._log.failure("Container {container}", failure, container=self.id)
        self._end(Exit("failed", None, None, (), f"our own mistake: {failure.getErrorMessage()}"))
