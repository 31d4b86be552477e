"""The Hypothesis machine of a fleet: random clients, containers and clocks against the ten invariants of semantics.md.

What a fleet must do is computed in `tests.core.books`, from events and effects alone; what must be true after every step is
in `tests.core.audit`. Here is what can happen. Time passes as a good timer would have it, from deadline to deadline, but
for one rule that shows that a late timer comes to the same.
"""

from __future__ import annotations

import pickle
from typing import Any

import attrs
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from sticky import errors
from sticky.core.container import ContainerState
from sticky.core.events import (
    ContainerExited,
    ContainerReady,
    ContainerStopRequested,
    ContainerUnhealthy,
    Deployed,
    Event,
    PolicyChanged,
    StartAbandoned,
    StartRequested,
    StopRequested,
    TimePassed,
)
from sticky.core.fleet import Fleet
from sticky.core.recall import memory_of, recall
from sticky.core.session import Session
from sticky.core.values import (
    Caller,
    ContainerId,
    DeploymentId,
    Policy,
    SessionId,
    WaiterId,
)
from tests.core.audit import lasting_memory, residue, unsettled
from tests.core.driver import plain
from tests.core.entries import FOREVER
from tests.core.serial import SerialSessions
from tests.core.worlds import policies


class FleetMachine(SerialSessions):
    """See the module. Mail between admission and ledgers is prompt; `tests.core.slow_machine` delays and reorders it."""

    @initialize(
        policy=policies,
        jitter=st.sampled_from([0.0, 0.25, 0.99]),
        mayhem=st.sampled_from(["calm", "calm", "deploys", "deploys", "stops", "both"]),
    )
    def begin_world(self, policy: Policy, jitter: float, mayhem: str) -> None:
        self.mayhem = mayhem
        self.deployments = 1
        self.open_books(policy, jitter)

    # --- clients

    @precondition(lambda self: self.books.bound or any(ask.key for ask in self.books.asks))
    @rule(data=st.data(), idle_timeout=st.sampled_from([0.0, 0.0, 1.0]))
    def try_again_with_the_same_key(self, data: st.DataObject, idle_timeout: float) -> None:
        known: dict[tuple[str, str], float] = {scope: bound.idle_timeout for scope, bound in self.books.bound.items()}
        known.update({(ask.owner, ask.key): ask.idle_timeout for ask in self.books.asks if ask.key is not None})
        owner, key = data.draw(st.sampled_from(sorted(known)))
        self.start(owner or "ann", known[owner, key] + idle_timeout, key, bool(owner))

    @rule(key=st.sampled_from(["m" * 16, "n" * 16]), away=st.sampled_from([None, 1.0, 4.5, 5.0]), owned=st.booleans())
    def leave_and_come_back(self, key: str, away: float | None, owned: bool) -> None:
        """A client with a key loses its connection, and tries again or does not."""
        self.start("ann", None, key, owned)
        waiter = WaiterId(self.waiters)
        if waiter in self.books.waiters():
            self._leave(waiter)
        if away is not None:
            self._pass_until(self.books.now + away)
            self.start("ann", None, key, owned)

    @precondition(lambda self: self._in(ContainerState.READY))
    @rule(late=st.booleans())
    def start_long_and_short_on_an_old_container(self, late: bool) -> None:
        """The oldest container's age limit is too near for the first of the two starts."""
        oldest = min(
            (self.books.boxes[container] for container in self._in(ContainerState.READY)), key=lambda b: b.born
        )
        longest = self.books.policy.longest_idle
        self._pass_until(max(self.books.now, oldest.born + oldest.max_age - longest + (5.0 if late else 0.0)))
        self.start("ann", longest, None, True)
        self.start("bob", 1.0, None, True)

    @rule(idle_timeout=st.sampled_from([0.0, -1.0, 0.5, 101.0, 1e9, float("nan")]))
    def start_with_a_bad_timeout(self, idle_timeout: float) -> None:
        self.start("ann", idle_timeout, None, True)
        assert self.waiters in self.books.answered

    @precondition(lambda self: self.books.waiters())
    @rule(data=st.data())
    def client_leaves(self, data: st.DataObject) -> None:
        waiter = data.draw(st.sampled_from(self.books.waiters()))
        self._leave(waiter)
        self._do(lambda: self.fleet.step(self.books.now, StartAbandoned(waiter)))  # doubled: a no-op

    @precondition(lambda self: self.books.granted)
    @rule(data=st.data())
    def request_begins(self, data: st.DataObject) -> None:
        session = self._any_session(data)
        stay, home = self.books.stays.get(session), self.books.homes[session]
        try:
            core = self.fleet.begin(self.books.now, home, session)
        except errors.SessionEnded as refusal:
            self._refused(session, refusal)
        else:
            assert stay is not None and stay.drains is None, "a session that ended or drains admitted a request"
            stay.open.append(core)
        self._do(self.fleet.take)

    @precondition(lambda self: self.books.granted & set(self.books.stays))
    @rule(data=st.data(), seconds=st.sampled_from([0.5, 25.0]))
    def a_request_takes_a_while(self, data: st.DataObject, seconds: float) -> None:
        session = data.draw(st.sampled_from(sorted(self.books.granted & set(self.books.stays))))
        stay = self.books.stays[session]
        if stay.drains is None:
            stay.open.append(self.fleet.begin(self.books.now, stay.container, session))
            self._do(self.fleet.take)
        self._pass_until(self.books.now + seconds)
        if session in self.books.stays:
            self._finish(session)

    @precondition(lambda self: any(stay.open for stay in self.books.stays.values()))
    @rule(data=st.data())
    def request_finishes(self, data: st.DataObject) -> None:
        busy = sorted(session for session, stay in self.books.stays.items() if stay.open)
        self._finish(data.draw(st.sampled_from(busy)))

    @precondition(lambda self: self.books.granted)
    @rule(data=st.data(), grace=st.sampled_from([None, 0.0, 3.0, 30.0]))
    def terminate(self, data: st.DataObject, grace: float | None) -> None:
        self._terminate(self._any_session(data), grace)

    @precondition(lambda self: self.books.granted)
    @rule(data=st.data(), touch=st.booleans())
    def extend_or_look(self, data: st.DataObject, touch: bool) -> None:
        session = self._any_session(data)
        stay = self.books.stays.get(session)
        call = self.fleet.extend if touch else self.fleet.look
        try:
            core = call(self.books.now, self.books.homes[session], session)
        except errors.SessionEnded as refusal:
            self._refused(session, refusal)
        else:
            assert stay is not None and (not touch or stay.drains is None)
            if touch:
                stay.last = self.books.now
            assert core.due == (None if stay.due == FOREVER else stay.due)
        self._do(self.fleet.take)

    # --- containers

    @precondition(lambda self: self._in(ContainerState.STARTING, ContainerState.STOPPING))
    @rule(data=st.data())
    def container_ready(self, data: st.DataObject) -> None:
        ready = data.draw(st.sampled_from(self._in(ContainerState.STARTING, ContainerState.STOPPING)))
        self._step(ContainerReady(ready))

    @precondition(lambda self: self.books.boxes)
    @rule(
        data=st.data(),
        detail=st.sampled_from(["exited", "killed"]),
        which=st.sampled_from(["any", "dying", "starting", "ready"]),
    )
    def container_exits(self, data: st.DataObject, detail: str, which: str) -> None:
        some = {
            "any": [],
            "dying": self._in(ContainerState.STOPPING, ContainerState.DRAINING),
            "starting": self._in(ContainerState.STARTING),
            "ready": self._in(ContainerState.READY),
        }[which]
        self._step(ContainerExited(data.draw(st.sampled_from(some or sorted(self.books.boxes))), detail))

    @precondition(lambda self: self.mayhem in ("deploys", "both"))
    @rule(policy=policies, recreate=st.booleans())
    def deploy(self, policy: Policy, recreate: bool) -> None:
        self.deployments += 1
        number = self.deployments
        self._step(Deployed(DeploymentId(f"d{number}"), policy, recreate))

    @precondition(lambda self: self.mayhem in ("deploys", "both") and self.books.newest != "d1")
    @rule(policy=policies, recreate=st.booleans(), data=st.data())
    def roll_back(self, policy: Policy, recreate: bool, data: st.DataObject) -> None:
        """To an earlier deployment, some of whose containers may be there still."""
        known = {box.deployment for box in self.books.boxes.values()} | {DeploymentId("d1")}
        self._step(Deployed(data.draw(st.sampled_from(sorted(known))), policy, recreate))

    @precondition(lambda self: self.mayhem in ("deploys", "both"))
    @rule(policy=policies, lower=st.booleans())
    def change_limits(self, policy: Policy, lower: bool) -> None:
        if lower:
            self.rush_hour(5, 1, 1)
            policy = attrs.evolve(self.books.policy, max_concurrency=1, target_concurrency=None)
        before = {container: box.state for container, box in self.books.boxes.items()}
        loads = {container: self.books.load(box) for container, box in self.books.boxes.items()}
        self._step(PolicyChanged(policy))
        for container, box in self.books.boxes.items():
            if loads.get(container):
                assert box.state is before[container], "a container with sessions was touched"
        self.seen["kept sessions beyond a lowered limit"] += any(box.excess for box in self.books.boxes.values())

    @precondition(lambda self: self.books.boxes)
    @rule(data=st.data(), unhealthy=st.booleans())
    def operator_or_health_stops_one(self, data: st.DataObject, unhealthy: bool) -> None:
        ready = self._in(ContainerState.READY)
        which = data.draw(st.sampled_from(ready or sorted(self.books.boxes)))
        if not unhealthy:
            self._step(ContainerStopRequested(which))
            if which in self.books.boxes:
                self._step(ContainerStopRequested(which))  # doubled: a no-op
        elif self.books.boxes[which].state is not ContainerState.STARTING:
            self._step(ContainerUnhealthy(which))
            assert self.books.boxes[which].state is not ContainerState.READY
            self._step(ContainerUnhealthy(which))  # doubled: a no-op
            self.seen["was unhealthy"] += 1

    @precondition(lambda self: self.mayhem in ("stops", "both") and not self.books.stopping)
    @rule(back=st.booleans())
    def stop(self, back: bool) -> None:
        self._step(StopRequested())
        self._step(StopRequested())  # doubled: a no-op
        if back:
            self._deliver_all()
            self.restart()

    # --- time

    @rule(seconds=st.sampled_from([0.25, 1.0, 5.0, 30.0, 200.0]))
    def wait(self, seconds: float) -> None:
        self._pass_until(self.books.now + seconds)

    @precondition(lambda self: self.fleet.next_deadline(self.books.now) is not None)
    @rule()
    def wait_for_the_next_deadline(self) -> None:
        deadline = self.fleet.next_deadline(self.books.now)
        assert deadline is not None
        self._pass_until(deadline - (deadline - self.books.now) / 2)
        self._pass_until(deadline)

    @precondition(lambda self: self._in(ContainerState.READY))
    @rule()
    def grow_old_with_everything_busy(self) -> None:
        """Every session gets a request, then the oldest container reaches its age limit."""
        for session, stay in self.books.stays.items():
            if stay.drains is None and session in self.books.granted:
                stay.open.append(self.fleet.begin(self.books.now, stay.container, session))
        boxes = [self.books.boxes[container] for container in self._in(ContainerState.READY)]
        self._pass_until(min(box.born + box.max_age for box in boxes))

    @rule(
        seconds=st.sampled_from([0.0, 2.0, 20.0, 100.0]),
        what=st.sampled_from(["nothing", "start", "stop", "begin", "finish", "terminate", "extend", "look"]),
        data=st.data(),
    )
    def the_timer_is_late(self, seconds: float, what: str, data: st.DataObject) -> None:
        """A twin hears nothing until the event; it must do what a fleet does whose timer was on time."""
        twin: Fleet = pickle.loads(pickle.dumps(self.fleet))
        event: Event = TimePassed()
        if what == "start":
            event = self._request("bob", None, None, True)
        elif what == "stop" and self.mayhem in ("stops", "both"):
            event = StopRequested()
        session = self._any_session(data) if self.books.granted else SessionId("sd-nobody")
        home = self.books.homes.get(session, ContainerId("ct-nobody"))
        busy = session in self.books.stays and self.books.plain(session) > 0
        then = self.books.now + seconds

        def act(fleet: Fleet, core: Session | None) -> list[Any]:
            try:
                match what:
                    case "begin":
                        fleet.begin(then, home, session)
                    case "finish" if core is not None:
                        fleet.finish(then, home, core)
                    case "terminate":
                        fleet.terminate(then, home, session, 3.0)
                    case "extend":
                        fleet.extend(then, home, session)
                    case "look":
                        fleet.look(then, home, session)
                    case _:
                        return fleet.step(then, event)
            except errors.Refusal as refusal:
                return [*fleet.take(), str(refusal)]
            return fleet.take()

        timely: Fleet = pickle.loads(pickle.dumps(self.fleet))
        cores = [fleet.ledgers[home].sessions[session] if busy else None for fleet in (twin, timely)]
        late, told = act(twin, cores[0]), []
        while timely.wake_at <= then:
            told += timely.step(timely.wake_at, TimePassed())
        told += act(timely, cores[1])
        assert [plain(effect) for effect in late] == [plain(effect) for effect in told]
        assert memory_of(twin) == memory_of(timely)
        self.seen["a late timer had something to do"] += len(told) > 0

    # --- what cannot happen, and what must survive

    @rule(which=st.sampled_from(["ready", "exit", "waiter", "finish", "ready twice", "unhealthy", "stop"]))
    def illegal(self, which: str) -> None:
        """Invariant 9."""
        before = unsettled(self.fleet)
        nobody, ready = ContainerId("ct-nobody"), self._in(ContainerState.READY, ContainerState.DRAINING)
        idle = [session for session, stay in self.books.stays.items() if not stay.open]
        now = self.books.now
        try:
            match which:
                case "ready":
                    self.fleet.step(now, ContainerReady(nobody))
                case "exit":
                    self.fleet.step(now, ContainerExited(nobody))
                case "unhealthy":
                    starting = self._in(ContainerState.STARTING)
                    self.fleet.step(now, ContainerUnhealthy(starting[0] if starting else nobody))
                case "stop":
                    self.fleet.step(now, ContainerStopRequested(nobody))
                case "ready twice" if ready:
                    self.fleet.step(now, ContainerReady(ready[0]))
                case "waiter" if waiters := self.books.waiters():
                    self.fleet.step(now, StartRequested(waiters[0], Caller("ann"), "ann"))
                case "finish" if idle:
                    home = self.books.homes[idle[0]]
                    self.fleet.finish(now, home, self.fleet.ledgers[home].sessions[idle[0]])
                case _:
                    return
        except errors.IllegalEvent:
            pass
        else:
            raise AssertionError(f"{which} was taken")
        assert before == unsettled(self.fleet)

    @precondition(lambda self: not self.fleet.mail)
    @rule()
    def restart(self) -> None:
        """Invariant 10: what was remembered is found again, with nothing in flight and idle clocks restarted."""
        books = self.books
        remembered = lasting_memory(books, books.memory)
        survivors = {session for session, stay in books.stays.items() if stay.drains is None}
        for stay in books.stays.values():
            stay.open.clear()
            books.lines.clear()
            stay.last = books.now
            stay.cut_at = FOREVER
        for box in books.boxes.values():
            box.since = books.now
            box.killed = False
            box.requests = 0
            box.proven = box.state not in (
                ContainerState.STARTING,
                ContainerState.READY,
            )  # nobody waits for it any more
            box.limit = books.policy.max_concurrency
            box.excess = max(0, books.load(box) - box.limit)
            box.startup_timeout = books.policy.startup_timeout
            if box.state is ContainerState.DRAINING:
                box.drained_by = books.now + books.policy.exit_grace_period
            box.empty_since = FOREVER
        books.asks.clear()
        books.ranks = len(remembered.keys)
        books.failures, books.next_attempt, books.refused, books.short_since = 0, 0.0, False, FOREVER
        books.stopping = False
        books.cause = TimePassed()
        self.fleet = self._new_fleet()
        self._do(lambda: recall(self.fleet, books.now, remembered))
        kept = {session for ledger in self.fleet.ledgers for session in ledger.sessions}
        assert kept == survivors

    def teardown(self) -> None:
        """Everything ends: nothing may stay behind."""
        if not getattr(self, "sound", False):
            return  # it has failed already; what it says of that is what counts
        for waiter in self.books.waiters():
            self._leave(waiter)
        self._step(StopRequested())
        for container in sorted(self.books.boxes):
            self._step(ContainerExited(container))
        self._deliver_all()
        self._pass_until(self.books.now + 10.0)
        assert not self.books.asks and not self.books.stays
        assert residue(self.fleet) == {}
