"""The Hypothesis machine of a fleet: random clients, containers and clocks against the ten invariants of semantics.md.

The model below keeps its own books from events and effects alone. It reads the fleet only to compare, never to compute
what it expects, but for the rank of a start that a letter speaks of.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

import attrs
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from sticky import errors
from sticky.core.container import KILL_AFTER, ContainerState
from sticky.core.effects import (
    Admit,
    Close,
    EndSession,
    GrantStart,
    KillContainer,
    RefuseStart,
    SpawnContainer,
    TerminateContainer,
)
from sticky.core.events import (
    ContainerExited,
    ContainerReady,
    Deployed,
    StartAbandoned,
    StartRequested,
    StopRequested,
    TimePassed,
)
from sticky.core.fleet import TOKEN_LEEWAY, Fleet, Ids
from sticky.core.memory import Memory
from sticky.core.recall import memory_of, recall
from sticky.core.records import ContainerCreated, ContainerMoved, SessionCreated
from sticky.core.session import Session
from sticky.core.starts import HELD_FOR
from sticky.core.values import (
    Caller,
    ContainerId,
    DeploymentId,
    EndReason,
    Placement,
    Policy,
    SessionId,
    WaiterId,
)

FOREVER = float("inf")


@attrs.define
class Stay:
    """What the model knows of a session."""

    container: ContainerId
    idle_timeout: float
    last: float
    open: list[Session] = attrs.field(factory=list)
    drains: EndReason | None = None
    cut_at: float = FOREVER


@attrs.define
class Box:
    """What the model knows of a container."""

    deployment: DeploymentId
    born: float
    policy: Policy
    state: ContainerState = ContainerState.STARTING
    since: float = 0.0  #: when it entered its state
    asked_to_stop: bool = False  #: for a reason that may hit one with sessions
    killed: bool = False


@attrs.define
class Waiting:
    """What the model knows of a client that waits."""

    arrived: int
    idle_timeout: float
    key: str | None
    deadline: float
    refused_at: float | None = None


policies = st.builds(
    Policy,
    max_concurrency=st.integers(1, 3),
    target_concurrency=st.just(1) | st.none(),
    min_containers=st.integers(0, 1),
    max_containers=st.integers(1, 3),
    buffer_containers=st.integers(0, 1),
    max_total_containers=st.none() | st.integers(3, 5),
    scaleup_window=st.sampled_from([0.0, 2.0]),
    scaledown_window=st.sampled_from([2.0, 60.0]),
    startup_timeout=st.just(30.0),
    exit_grace_period=st.sampled_from([0.0, 10.0, 10.0]),
    container_max_age=st.sampled_from([120.0, 1000.0]),
    idle_timeout=st.just(20.0),
    max_idle_timeout=st.just(100.0),
    queue_timeout=st.sampled_from([5.0, 60.0]),
    max_queue=st.sampled_from([3, 1000]),
    max_queue_per_caller=st.sampled_from([2, 100]),
    max_sessions_per_caller=st.sampled_from([2, 1000]),
    placement=st.sampled_from(Placement),
)


class FleetMachine(RuleBasedStateMachine):
    """See the module. `prompt=False` in the subclass delays and reorders the mail between admission and ledgers."""

    prompt: ClassVar[bool] = True
    seen_effects: ClassVar[Counter[str]] = Counter()

    @initialize(
        policy=policies,
        jitter=st.floats(0, 0.99),
        mayhem=st.sampled_from(["calm", "calm", "deploys", "stops", "both"]),
    )
    def begin_world(self, policy: Policy, jitter: float, mayhem: str) -> None:
        self.mayhem = mayhem
        self.now = 100.0
        self.policy = policy
        self.jitter = jitter
        self.numbers = 0
        self.deployments = 1
        self.newest = DeploymentId("d1")
        self.records: list[Any] = []
        self.stays: dict[SessionId, Stay] = {}
        self.ended: dict[SessionId, EndReason] = {}
        self.homes: dict[SessionId, ContainerId] = {}
        self.boxes: dict[ContainerId, Box] = {}
        self.gone: set[ContainerId] = set()
        self.waiting: dict[WaiterId, Waiting] = {}
        self.answered: set[WaiterId] = set()
        self.left: set[WaiterId] = set()
        self.letters: set[SessionId] = set()
        self.tokens_end: dict[ContainerId, float] = {}
        self.stopping = False
        self.fleet = self._new_fleet()
        self._take(self.fleet.step(self.now, TimePassed()))

    # --- clients

    @rule(
        caller=st.sampled_from(["ann", "bob"]),
        idle_timeout=st.sampled_from([None, 1.0, 20.0, 90.0, 100.0]),
        key=st.none() | st.sampled_from(["k" * 16, "l" * 16]),
        owned=st.booleans(),
    )
    def start(self, caller: str, idle_timeout: float | None, key: str | None, owned: bool) -> None:
        waiter = WaiterId(self._number())
        expected = self.policy.idle_timeout if idle_timeout is None else idle_timeout
        self.waiting[waiter] = Waiting(int(waiter), expected, key, self.now + self.policy.queue_timeout)
        event = StartRequested(waiter, Caller(caller), caller if owned else "", idle_timeout, key)
        self._take(self.fleet.step(self.now, event))

    @rule(idle_timeout=st.sampled_from([0.0, -1.0, 0.5, 101.0, 1e9]))
    def start_with_a_bad_timeout(self, idle_timeout: float) -> None:
        waiter = WaiterId(self._number())
        effects = self.fleet.step(self.now, StartRequested(waiter, Caller("ann"), "ann", idle_timeout))
        refusal = next(effect for effect in effects if isinstance(effect, RefuseStart) and effect.waiters == (waiter,))
        assert isinstance(refusal.error, errors.BadIdleTimeout)
        self.waiting[waiter] = Waiting(int(waiter), idle_timeout, None, FOREVER)
        self._take(effects)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def client_leaves(self, data: st.DataObject) -> None:
        waiter = data.draw(st.sampled_from(sorted(self.waiting)))
        # It may be answered by a deadline of this very step: then it has left all the same.
        self.left.add(waiter)
        self._take(self.fleet.step(self.now, StartAbandoned(waiter)))
        self.waiting.pop(waiter, None)

    @precondition(lambda self: self.homes)
    @rule(data=st.data())
    def request_begins(self, data: st.DataObject) -> None:
        session = data.draw(st.sampled_from(sorted(self.homes)))
        stay = self.stays.get(session)
        try:
            core = self.fleet.begin(self.now, self.homes[session], session)
        except errors.SessionEnded as refusal:
            self._take(self.fleet.take())
            stay = self.stays.get(session)
            # Invariant 5: refused means that it drains or is over, with that reason.
            if stay is not None:
                assert stay.drains is not None and refusal.code == stay.drains.value
            else:
                forgotten = self.tokens_end[self.homes[session]] <= self.now
                assert refusal.code == self.ended[session].value or forgotten
        else:
            assert stay is not None and stay.drains is None, "a session that ended or drains admitted a request"
            stay.open.append(core)
            self._take(self.fleet.take())

    @precondition(lambda self: any(stay.open for stay in self.stays.values()))
    @rule(data=st.data())
    def request_finishes(self, data: st.DataObject) -> None:
        session = data.draw(st.sampled_from(sorted(s for s, stay in self.stays.items() if stay.open)))
        stay = self.stays[session]
        core = stay.open.pop()
        if not stay.open:
            stay.last = self.now
        self.fleet.finish(self.now, stay.container, core)
        self._take(self.fleet.take())
        if stay.drains is not None and not stay.open:
            assert session not in self.stays, "a draining session outlived its last request"

    @precondition(lambda self: self.homes)
    @rule(data=st.data(), grace=st.sampled_from([None, 0.0, 3.0, 30.0]))
    def terminate(self, data: st.DataObject, grace: float | None) -> None:
        session = data.draw(st.sampled_from(sorted(self.homes)))
        stay = self.stays.get(session)
        try:
            self.fleet.terminate(self.now, self.homes[session], session, grace)
        except errors.UnknownSession:
            self._take(self.fleet.take())
            assert session not in self.stays
            return
        assert stay is not None
        if stay.drains is None:
            stay.drains = EndReason.TERMINATED
        if grace is not None:
            stay.cut_at = min(stay.cut_at, self.now + grace)
        self._take(self.fleet.take())
        assert stay.open or session not in self.stays, "an idle session outlived its terminate"

    @precondition(lambda self: self.homes)
    @rule(data=st.data())
    def extend(self, data: st.DataObject) -> None:
        session = data.draw(st.sampled_from(sorted(self.homes)))
        try:
            self.fleet.extend(self.now, self.homes[session], session)
        except errors.SessionEnded:
            self._take(self.fleet.take())
            assert session not in self.stays or self.stays[session].drains is not None
        else:
            stay = self.stays[session]
            assert stay.drains is None
            stay.last = self.now if not stay.open else stay.last
            self._take(self.fleet.take())

    # --- containers

    @precondition(lambda self: self._in(ContainerState.STARTING, ContainerState.STOPPING))
    @rule(data=st.data())
    def container_ready(self, data: st.DataObject) -> None:
        states = (ContainerState.STARTING, ContainerState.STOPPING)
        container = data.draw(st.sampled_from(self._in(*states)))
        self._take(self.fleet.step(self.now, ContainerReady(container)))

    @precondition(lambda self: self.boxes)
    @rule(data=st.data(), detail=st.sampled_from(["exited", "killed"]), dying=st.booleans())
    def container_exits(self, data: st.DataObject, detail: str, dying: bool) -> None:
        on_its_way = self._in(ContainerState.STOPPING, ContainerState.DRAINING)
        container = data.draw(st.sampled_from(on_its_way if dying and on_its_way else sorted(self.boxes)))
        self.boxes[container].asked_to_stop = True
        self._take(self.fleet.step(self.now, ContainerExited(container, detail)))
        assert container not in self.boxes
        assert all(stay.container != container for stay in self.stays.values()), "a session outlived its container"

    @precondition(lambda self: self._in(ContainerState.STARTING))
    @rule()
    def all_become_ready(self) -> None:
        for container in self._in(ContainerState.STARTING):
            self._take(self.fleet.step(self.now, ContainerReady(container)))

    @precondition(lambda self: self.mayhem in ("deploys", "both"))
    @rule(policy=policies, recreate=st.booleans())
    def deploy(self, policy: Policy, recreate: bool) -> None:
        self.deployments += 1
        self.newest = DeploymentId(f"d{self.deployments}")
        self.policy = policy
        for box in self.boxes.values():
            box.asked_to_stop = box.asked_to_stop or recreate or box.state is ContainerState.STARTING
        self._take(self.fleet.step(self.now, Deployed(self.newest, policy, recreate)))

    @precondition(lambda self: self.mayhem in ("stops", "both") and not self.stopping)
    @rule()
    def stop(self) -> None:
        self.stopping = True
        for box in self.boxes.values():
            box.asked_to_stop = True
        self._take(self.fleet.step(self.now, StopRequested()))
        self._take(self.fleet.step(self.now, StopRequested()))  # doubled: a no-op

    # --- time

    @rule(seconds=st.sampled_from([0.0, 0.25, 1.0, 5.0, 30.0, 200.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self._take(self.fleet.step(self.now, TimePassed()))

    @precondition(lambda self: self._in(ContainerState.READY))
    @rule()
    def grow_old_with_everything_busy(self) -> None:
        """Every session gets a request, then the oldest container reaches its age limit."""
        for session, stay in list(self.stays.items()):
            if session in self.stays and stay.drains is None:
                stay.open.append(self.fleet.begin(self.now, stay.container, session))
        boxes = [self.boxes[container] for container in self._in(ContainerState.READY)]
        self.now = max(self.now, min(box.born + box.policy.container_max_age for box in boxes))
        self._take(self.fleet.step(self.now, TimePassed()))

    @precondition(lambda self: self.fleet.next_deadline(self.now) is not None)
    @rule(late=st.sampled_from([0.0, 0.0, 0.5]))
    def wait_for_the_next_deadline(self, late: float) -> None:
        deadline = self.fleet.next_deadline(self.now)
        assert deadline is not None
        before = deadline - (deadline - self.now) / 2
        self._take(self.fleet.step(before, TimePassed()))
        self.now = max(deadline, before) + late
        self._take(self.fleet.step(self.now, TimePassed()))

    # --- what cannot happen, and what must survive

    @rule(which=st.sampled_from(["ready", "exit", "waiter", "finish", "ready twice"]))
    def illegal(self, which: str) -> None:
        """Invariant 9."""
        self._take(self.fleet.step(self.now, TimePassed()))
        before = (memory_of(self.fleet), self.fleet.next_deadline(self.now), len(self.fleet.mail), self._clocks())
        nobody = ContainerId("ct-nobody")
        ready = self._in(ContainerState.READY)
        try:
            match which:
                case "ready":
                    self.fleet.step(self.now, ContainerReady(nobody))
                case "exit":
                    self.fleet.step(self.now, ContainerExited(nobody))
                case "ready twice" if ready:
                    self.fleet.step(self.now, ContainerReady(ready[0]))
                case "waiter" if self.waiting:
                    again = StartRequested(min(self.waiting), Caller("ann"), "ann")
                    self.fleet.step(self.now, again)
                case "finish" if idle := [s for s, stay in self.stays.items() if not stay.open]:
                    stay = self.stays[idle[0]]
                    self.fleet.finish(self.now, stay.container, self.fleet.ledgers[stay.container].sessions[idle[0]])
                case _:
                    return
        except errors.IllegalEvent:
            pass
        else:
            raise AssertionError(f"{which} was taken")
        after = (memory_of(self.fleet), self.fleet.next_deadline(self.now), len(self.fleet.mail), self._clocks())
        assert not self.fleet.take()
        assert before == after

    @precondition(lambda self: not self.fleet.mail)
    @rule()
    def restart(self) -> None:
        """Invariant 10: what was remembered is found again, with nothing in flight and idle clocks restarted."""
        remembered = Memory.of(self.records)
        assert self._lasting(remembered) == self._lasting(memory_of(self.fleet))
        fleet = self._new_fleet()
        fleet.take()
        for waiter in self.waiting:
            self.left.add(waiter)
        self.waiting.clear()
        for stay in self.stays.values():
            stay.open.clear()
            stay.last = self.now
            stay.cut_at = FOREVER
        for box in self.boxes.values():
            box.since = self.now
            box.killed = False
            box.asked_to_stop = box.asked_to_stop or box.state is not ContainerState.READY
        self.stopping = False
        self.fleet = fleet
        survivors = {session for session, stay in self.stays.items() if stay.drains is None}
        self._take(recall(fleet, self.now, remembered))
        kept = {session for ledger in fleet.ledgers for session in ledger.sessions}
        assert kept == {s for s in survivors if self.boxes[self.homes[s]].state is ContainerState.READY}

    # --- the invariants that hold after every step

    @invariant()
    def no_container_has_too_many_sessions(self) -> None:
        """Invariant 1."""
        load = Counter(stay.container for stay in self.stays.values())
        for container, sessions in load.items():
            assert sessions <= self.boxes[container].policy.max_concurrency
        for ledger in self.fleet.ledgers:
            assert set(ledger.sessions) == {s for s, stay in self.stays.items() if stay.container == ledger.container}

    @invariant()
    def starts_are_answered_in_time(self) -> None:
        """Invariant 3, the second half; the first is in `_take`."""
        asked = self._asked_waiters()
        for waiter, waiting in self.waiting.items():
            assert waiting.deadline > self.now or waiter in asked, "a start outlived its deadline"

    @invariant()
    def sessions_expire_when_they_should(self) -> None:
        """Invariants 4 and 5: nobody outlives the idle clock; `_end` shows that nobody dies early."""
        for stay in self.stays.values():
            if stay.drains is not None:
                assert stay.open and stay.cut_at > self.now
            elif not stay.open:
                assert stay.last + stay.idle_timeout > self.now, "a session outlived its idle clock"

    @invariant()
    def the_number_of_containers_is_right(self) -> None:
        """Invariant 7."""
        if self.stopping:
            return
        boxes = [box for box in self.boxes.values() if box.deployment == self.newest]
        need = max((w.idle_timeout for w in self._grantable().values()), default=self.policy.idle_timeout)
        open_now = [
            box
            for box in boxes
            if box.state in (ContainerState.STARTING, ContainerState.READY)
            and box.born + box.policy.container_max_age - need > self.now
        ]
        stopping = sum(box.state is ContainerState.STOPPING for box in boxes)
        # One that became too old or was rescued by a shorter queue does not undo what was started meanwhile.
        if not any(box.born + box.policy.container_max_age - 100 <= self.now for box in boxes):
            assert len(open_now) + stopping <= self.policy.max_containers
        assert len(self.boxes) <= max(self.policy.total, self._most_before_deploy())
        starting = any(box.state is ContainerState.STARTING for box in boxes)
        if len(open_now) < self.policy.min_containers and not starting:
            backing_off = self.fleet.backoff.failures > 0 and self.fleet.backoff.next_attempt > self.now
            no_room = len(open_now) + stopping >= self.policy.max_containers or len(self.boxes) >= self.policy.total
            assert backing_off or no_room or self.fleet.mail, "fewer open containers than the minimum"

    @invariant()
    def the_next_deadline_is_right(self) -> None:
        """Invariant 8."""
        deadline = self.fleet.next_deadline(self.now)
        true = [stay.last + stay.idle_timeout for stay in self.stays.values() if not stay.open]
        true += [stay.cut_at for stay in self.stays.values() if stay.drains is not None]
        asked = self._asked_waiters()
        true += [waiting.deadline for waiter, waiting in self.waiting.items() if waiter not in asked]
        for box in self.boxes.values():
            match box.state:
                case ContainerState.STARTING:
                    true.append(box.since + box.policy.startup_timeout)
                case ContainerState.READY:
                    true.append(box.born + box.policy.container_max_age)
                case ContainerState.STOPPING if not box.killed:
                    true.append(box.since + KILL_AFTER)
        earliest = min(true, default=FOREVER)
        if deadline is None:
            assert earliest == FOREVER, "a deadline that nobody waits for"
        else:
            assert self.now < deadline <= earliest
            assert self.boxes or self.waiting or self._held() or self.fleet.backoff.failures
        assert self.fleet.wake_at <= (FOREVER if deadline is None else deadline)

    # --- the books

    def _new_fleet(self) -> Fleet:
        ids = Ids(
            lambda: SessionId(f"sd-{self._number():06}"),
            lambda: ContainerId(f"ct-{self._number():06}"),
            lambda: self.jitter,
        )
        return Fleet(self.policy, self.newest, ids, prompt=self.prompt)

    def _number(self) -> int:
        self.numbers += 1
        return self.numbers

    def _in(self, *states: ContainerState) -> list[ContainerId]:
        return sorted(container for container, box in self.boxes.items() if box.state in states)

    def _clocks(self) -> list[Any]:
        return [
            (session.id, session.in_flight, session.last_active) for ledger in self.fleet.ledgers for session in ledger
        ]

    def _asked_waiters(self) -> set[WaiterId]:
        """Clients whose start a ledger is being asked for: the queue clock stands still."""
        letters = {letter.session for letter in self.fleet.mail if not isinstance(letter, Close)}
        placed = self.fleet.starts.placed
        return {waiter for session in letters if session in placed for waiter in placed[session].waiters}

    def _held(self) -> bool:
        return self.fleet.starts.next_deadline() <= self.now + HELD_FOR

    def _grantable(self) -> dict[WaiterId, Waiting]:
        asked = self._asked_waiters()
        return {waiter: waiting for waiter, waiting in self.waiting.items() if waiter not in asked}

    def _most_before_deploy(self) -> int:
        return max((box.policy.total for box in self.boxes.values()), default=0) + self.policy.max_containers

    def _take(self, effects: list[Any]) -> None:
        self.grants: list[tuple[Waiting, ContainerId]] = []
        for effect in effects:
            type(self).seen_effects[type(effect).__name__] += 1
            match effect:
                case SpawnContainer() | TerminateContainer() | KillContainer():
                    self._order(effect)
                case GrantStart():
                    self._granted(effect)
                case RefuseStart():
                    self._refused(effect)
                case EndSession():
                    self.records.append(effect)
                    self._end(effect)
                case SessionCreated():
                    self.records.append(effect)
                    assert effect.session not in self.homes, "a session was created twice"  # invariant 2
                    self.homes[effect.session] = effect.container
                    self.stays[effect.session] = Stay(effect.container, effect.idle_timeout, effect.created_at)
                case ContainerMoved() | ContainerCreated():
                    self.records.append(effect)
                    self._moved(effect)
                case _:
                    self.records.append(effect)
        for chosen, container in self.grants:
            if container in self.boxes:
                assert not self._overtaken(chosen, container), "a start overtook an earlier one"
        self._check_letters()

    def _order(self, effect: SpawnContainer | TerminateContainer | KillContainer) -> None:
        match effect:
            case SpawnContainer():
                assert self.boxes[effect.container].state is ContainerState.STARTING
                assert not self.stopping
            case TerminateContainer():
                box = self.boxes[effect.container]
                assert box.state is ContainerState.STOPPING
                # Whatever it was stopped for, its sessions are ended in the same step; see the end of `_moved`.
            case KillContainer():
                box = self.boxes[effect.container]
                assert box.state is ContainerState.STOPPING and not box.killed
                box.killed = True

    def _moved(self, effect: ContainerMoved | ContainerCreated) -> None:
        if isinstance(effect, ContainerCreated):
            self.boxes[effect.container] = Box(
                effect.deployment, effect.born, self.policy, ContainerState.STARTING, effect.born
            )
            self.tokens_end[effect.container] = effect.born + effect.max_age + TOKEN_LEEWAY
            return
        box = self.boxes[effect.container]
        if effect.state is ContainerState.GONE:
            del self.boxes[effect.container]
            self.gone.add(effect.container)
            return
        live = [stay for stay in self.stays.values() if stay.container == effect.container]
        if effect.state is ContainerState.STOPPING and box.state is ContainerState.READY:
            # Invariant 6: only scaling moves one from READY to STOPPING, and never one that has a session.
            assert not live, "scaling stopped a container with a session"
        if effect.state is ContainerState.DRAINING:
            too_old = box.born + box.policy.container_max_age <= self.now
            assert too_old or box.asked_to_stop, "a container was drained for no reason"
            for stay in live:
                stay.drains = stay.drains or effect.reason
        box.state = effect.state
        box.since = self.now if box.state is not ContainerState.STOPPING else self._step_time(effect.container)

    def _step_time(self, container: ContainerId) -> float:
        """When it was asked to end: a late step applies deadlines at their own time, so ask the fleet's clock for it."""
        return (
            self.fleet.capacity.containers[container].stop_at - KILL_AFTER
            if (
                container in self.fleet.capacity.containers
                and self.fleet.capacity.containers[container].stop_at != FOREVER
            )
            else self.now
        )

    def _granted(self, effect: GrantStart) -> None:
        assert effect.session in self.homes
        assert self.homes[effect.session] == effect.container
        chosen = [self.waiting[waiter] for waiter in effect.waiters]
        for waiter in effect.waiters:
            self._answer(waiter)
        if self.prompt and effect.created and chosen and chosen[0].key is None:
            self.grants.append((chosen[0], effect.container))

    def _refused(self, effect: RefuseStart) -> None:
        for waiter in effect.waiters:
            waiting = self.waiting[waiter]
            if isinstance(effect.error, errors.QueueTimedOut):
                assert waiting.deadline <= self.now or waiting.key is not None, "a start timed out early"
            self._answer(waiter)

    def _answer(self, waiter: WaiterId) -> None:
        assert waiter not in self.answered, "a start was answered twice"
        assert waiter in self.waiting, "somebody who does not wait was answered"
        self.answered.add(waiter)
        del self.waiting[waiter]

    def _end(self, effect: EndSession) -> None:
        stay = self.stays.pop(effect.session)
        self.ended[effect.session] = effect.reason
        if effect.reason is EndReason.IDLE_TIMEOUT:
            assert not stay.open, "a session expired with a request in flight"
            assert stay.last + stay.idle_timeout <= self.now, "a session expired early"
        if stay.drains is not None:
            assert effect.reason is stay.drains, "a draining session changed its reason"

    def _overtaken(self, chosen: Waiting, container: ContainerId) -> bool:
        """Whether somebody who came before still waits for what this one was given."""
        box = self.boxes[container]
        dies_at = box.born + box.policy.container_max_age
        return any(
            other.key is None and other.arrived < chosen.arrived and self.now < dies_at - other.idle_timeout
            for other in self._grantable().values()
        )

    def _check_letters(self) -> None:
        """Invariant 3 where mail is slow: decisions are the letters that are new in this step."""
        placed = self.fleet.starts.placed
        for letter in self.fleet.mail:
            if not isinstance(letter, Admit) or letter.session in self.letters or letter.session not in placed:
                continue
            self.letters.add(letter.session)
            chosen = placed[letter.session]
            container = self.fleet.capacity.containers[letter.container]
            for other in self.fleet.starts.waiting():
                fits = self.now < container.fits_until(other.idle_timeout)
                assert not (other.rank < chosen.rank and fits), "a start overtook an earlier one"

    def _lasting(self, memory: Memory) -> Memory:
        """A memory without what may be forgotten by now."""
        return Memory(
            memory.deployment,
            memory.containers,
            memory.sessions,
            {session: stone for session, stone in memory.ended.items() if stone[2] > self.now},
            {session: bound for session, bound in memory.keys.items() if bound.expires_at > self.now},
        )


class SlowMailMachine(FleetMachine):
    """The same, with the mail between admission and ledgers delayed and out of order."""

    prompt = False

    @precondition(lambda self: self.fleet.mail)
    @rule(data=st.data())
    def deliver(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.fleet.mail) - 1))
        self._take(self.fleet.deliver(self.now, index))

    @precondition(lambda self: self.fleet.mail)
    @rule()
    def deliver_all(self) -> None:
        for _ in range(100):
            if not self.fleet.mail:
                break
            self._take(self.fleet.deliver(self.now, 0))
        assert not self.fleet.mail, "mail makes ever more mail"
