"""Several proxies hold leases of the same sessions, and messages take their time: no session ends early, none is used too late.

A Hypothesis machine over the real ledger, book, and both ends of the protocol. What is true is kept beside: when each session
had a request in flight last, in any proxy that lives. Daemons come one after the other, as at `sticky restart`: the proxies
move, each in its own time, and what one of them holds stays held.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import attrs
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer

from sticky import errors
from sticky.core.effects import EndSession
from sticky.core.ledger import Ledger
from sticky.core.session import Session, SessionState
from sticky.core.tokens import Claims
from sticky.core.values import Caller, ContainerId, DeploymentId, EndReason, ServerName, SessionId
from sticky.isticky import ILeaseHolder, TCPAddress
from sticky.lease import Lease, LeaseBook
from sticky.workers import messages
from sticky.workers.holder import HeldState, Proxy
from sticky.workers.messages import TRY_FOR
from sticky.workers.routing import FarRouting
from sticky.workers.turns import FarTurns
from tests.fakes.links import Wire

BOX = ContainerId("ct-1")
SESSIONS = [SessionId(f"sd-{number}") for number in range(3)]
IDLE = 4.0  #: seconds
PROXIES = 3


class Core:
    """A fleet of one container: deadlines first, then the call."""

    def __init__(self, clock: Clock, sessions: Iterable[SessionId] = SESSIONS, patience: float = 0.0) -> None:
        """`patience`: as `ServerService.recall` has it, where an earlier daemon's sessions are taken up."""
        self.ended: list[EndSession] = []
        self._clock = clock
        self.ledger = Ledger(BOX, 100, 1e9, lambda answer: None, self.ended.append)
        for session in sessions:
            self.ledger.restore(clock.seconds() + patience, Session(session, Caller("a"), IDLE, 0.0, 0.0))

    @property
    def effects(self) -> Sequence[EndSession]:
        return self.ended

    def begin(self, now: float, container: ContainerId, session: SessionId) -> Session:
        self.ledger.expire(now)
        try:
            return self.ledger.begin(session)
        except KeyError:
            raise errors.SessionEnded from None

    def finish(self, now: float, container: ContainerId, session: Session, idle_for: float = 0.0) -> bool:
        self.ledger.expire(now)
        self.ledger.finish(now - idle_for, session)
        return True


@implementer(ILeaseHolder)
@attrs.define(eq=False)
class Request:
    """One request, as its proxy sees it."""

    machine: LeaseMachine
    site: Site
    session: SessionId
    lease: Lease | None = None
    quiet: bool = False  #: suspended
    doubtful: bool = False  #: resumed in good faith: the daemon may say no
    over: bool = False

    def session_ended(self, reason: EndReason, detail: str | None) -> None:
        self.over = True
        self.machine.cut[reason] += 1


class Site:
    """One proxy with its wire to the daemon, and while it moves to the next one that to the daemon before."""

    def __init__(self, name: str, machine: LeaseMachine, clock: Clock) -> None:
        self.name = name
        self._machine = machine
        self.far = FarRouting(clock, FarTurns())
        self.before: Wire | None = None
        self.welcome = True  #: the daemon has answered its hello
        self.sent_at = 0.0  #: when it was sent to this daemon
        self._clock = clock
        self.near = self._daemon()
        self.wire.near.serves = self.near.calls()
        self.far.connect(self.wire.far, [])

    def _daemon(self) -> Proxy:
        self.wire = wire = Wire(self._clock)
        wire.far.serves = {**self.far.calls(), messages.END: self.ends, messages.MOVE: self.moves}
        return Proxy(self.name, wire.near, self._machine, self._clock, lambda proxy: None)  # type: ignore[arg-type]

    def ends(self, message: Any) -> None:
        self.far.ended(message["session"], message["reason"], message["detail"])

    # --- to the next daemon, as `proxies` and `far` have it

    def is_sent(self) -> None:
        """The next daemon is in charge; the proxy hears of it when that arrives."""
        self.near.rest()
        self.near.move(socket="", within=0.0)
        self.before, self.welcome, self.sent_at = self.wire, False, self._clock.seconds()
        self.near = self._daemon()
        self.wire.near.serves = {messages.HELLO: self.hello}

    def moves(self, message: Any) -> None:
        assert self.before is not None
        self.before.far.leave()
        self.before = None
        self.far.disconnect()
        hello = self.wire.far.ask(messages.HELLO, holds=self.far.held())
        hello.addCallbacks(self.is_welcome, lambda lost: None)

    def hello(self, message: Any) -> Any:
        self.wire.near.serves = self.near.calls()
        return {"over": self.near.take_over(message["holds"])}

    def is_welcome(self, answer: Any) -> None:
        self.welcome = True
        self.far.connect(self.wire.far, answer["over"])
        self._machine.is_here(self)

    # --- what is on its way

    def deliver(self, toward: str, size: int | None) -> None:
        wire = self.wire if self.before is None else self.before
        wire.deliver(getattr(wire, toward), size)

    def run(self) -> None:
        if self.before is not None:
            before = self.before
            while before.waits(before.far):
                before.deliver(before.far)
        self.wire.run()

    def lose(self) -> None:
        if self.before is not None:
            self.before.far.lost = lambda: None
            self.before.lose()
        self.wire.lose()


class LeaseMachine(RuleBasedStateMachine):
    seen: Counter[str] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.core = Core(self.clock)
        self.book = LeaseBook(self.core, {BOX: TCPAddress("127.0.0.1", 1)}, self.clock, self.follow_up)
        self.cut: Counter[EndReason] = Counter()
        self.active_at = dict.fromkeys(SESSIONS, 0.0)
        self.requests: list[Request] = []
        self.refusing: set[SessionId] = set()  # a terminate of it was answered
        self.terminated: set[SessionId] = set()
        self.coming: set[Site] = set()  # to this daemon from the one before
        self.incomplete: list[Deferred[None]] = []  # who waits for them
        self.sites = [Site(f"p{number}", self, self.clock) for number in range(PROXIES)]

    # --- the daemon

    def begin(self, claims: Claims, holder: ILeaseHolder, websocket: bool = False) -> Lease:
        return self.book.begin(claims, holder)

    def follow_up(self) -> None:
        while self.core.ended:
            effect = self.core.ended.pop(0)
            now = self.clock.seconds()
            if effect.reason is EndReason.IDLE_TIMEOUT:
                self.seen["idle"] += 1
                busy = [one for one in self.open_of(effect.session) if not one.quiet and not one.doubtful]
                assert not busy, "it ended with a request in flight"
                assert now >= self.active_at[effect.session] + IDLE - 1e-6, "it ended early"
            self.book.end(effect.session, effect.reason, effect.detail)

    # --- what is true

    def open_of(self, session: SessionId) -> list[Request]:
        return [one for one in self.requests if one.session == session and one.lease is not None and not one.over]

    def touch(self, session: SessionId) -> None:
        self.active_at[session] = self.clock.seconds()

    # --- rules

    @rule(site=st.integers(0, PROXIES - 1), session=st.sampled_from(SESSIONS))
    def asks(self, site: int, session: SessionId) -> None:
        here = self.sites[site]
        request = Request(self, here, session)
        claims = Claims(session, ServerName("s"), DeploymentId(""), BOX, 0, 0)
        try:
            found = here.far.begin(claims, request)
        except errors.SessionEnded:
            self.seen["refused at once"] += 1
            return
        if isinstance(found, Deferred):
            self.seen["asked"] += 1
            found.addCallbacks(lambda lease: self.granted(request, lease), self.refused)
        else:
            self.seen["without asking"] += 1
            self.granted(request, found)

    def granted(self, request: Request, lease: Any) -> None:
        assert request.session not in self.refusing, "a terminated session let a request in"
        request.lease = lease
        self.requests.append(request)
        self.touch(request.session)

    def refused(self, failure: Failure) -> None:
        assert failure.check(errors.SessionEnded), failure
        self.seen["refused"] += 1

    @precondition(lambda self: any(not one.over for one in self.requests))
    @rule(data=st.data())
    def ends(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from([one for one in self.requests if not one.over]))
        request.over = True
        if not request.quiet and not request.doubtful:
            self.touch(request.session)
        assert request.lease is not None
        request.lease.release()

    @precondition(lambda self: any(not one.over and not one.quiet for one in self.requests))
    @rule(data=st.data())
    def falls_silent(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from([one for one in self.requests if not one.over and not one.quiet]))
        if not request.doubtful:
            self.touch(request.session)
        request.quiet, request.doubtful = True, False
        assert request.lease is not None
        request.lease.suspend()

    @precondition(lambda self: any(not one.over and one.quiet for one in self.requests))
    @rule(data=st.data())
    def speaks_again(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from([one for one in self.requests if not one.over and one.quiet]))
        assert request.lease is not None
        try:
            request.lease.resume()
        except errors.SessionEnded:
            request.over = True
            self.seen["resumed too late"] += 1
            return
        request.quiet, request.doubtful = False, True
        self.seen["resumed"] += 1

    @rule(
        site=st.integers(0, PROXIES - 1), toward=st.sampled_from(["near", "far"]), size=st.none() | st.integers(1, 200)
    )
    def arrives(self, site: int, toward: str, size: int | None) -> None:
        self.sites[site].deliver(toward, size)

    @rule(site=st.integers(0, PROXIES - 1), session=st.sampled_from(SESSIONS))
    def asks_and_is_answered(self, site: int, session: SessionId) -> None:
        self.asks(site, session)
        self.sites[site].run()

    @rule()
    def everything_arrives(self) -> None:
        for site in self.sites:
            site.run()

    @rule(seconds=st.sampled_from([0.05, 0.05, 0.3, 0.9, 1.1]))
    def time_passes(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.05)):
            for request in self.requests:
                if not (request.over or request.quiet or request.doubtful):
                    self.active_at[request.session] = self.clock.seconds() + 0.05
            self.clock.advance(0.05)
            self.whoever_is_cut_off_is_killed()
            self.whoever_finds_no_daemon_ends()
            self.core.ledger.expire(self.clock.seconds())
            self.follow_up()

    @rule(session=st.sampled_from(SESSIONS))
    def terminates(self, session: SessionId) -> None:
        now = self.clock.seconds()
        self.core.ledger.expire(now)
        self.follow_up()
        acknowledged = self.book.acknowledged(session)
        try:
            self.core.ledger.terminate(now, session, None)
        except KeyError:
            return
        self.terminated.add(session)
        self.follow_up()
        if session in self.core.ledger.sessions:
            self.seen["drains"] += 1
            self.book.drains(session, EndReason.TERMINATED)
        told = acknowledged()
        if self.coming:  # as `workers.proxies.complete` has it
            everybody: Deferred[None] = Deferred()
            self.incomplete.append(everybody)
            told.append(everybody)
        DeferredList(told).addCallback(lambda _: self.refusing.add(session))

    def is_here(self, site: Site) -> None:
        """It has come over from an earlier daemon, or has ended."""
        self.coming.discard(site)
        while self.incomplete and not self.coming:
            self.incomplete.pop().callback(None)

    @precondition(lambda self: all(site.welcome for site in self.sites))
    @rule()
    def another_daemon_takes_over(self) -> None:
        """What this one remembers is the next one's; what drains ends there, and what was said to this one last is lost."""
        self.core.ledger.expire(self.clock.seconds())
        self.follow_up()
        kept = [session.id for session in self.core.ledger if session.state is SessionState.ACTIVE]
        self.core = Core(self.clock, kept, TRY_FOR)
        self.book = LeaseBook(self.core, {BOX: TCPAddress("127.0.0.1", 1)}, self.clock, self.follow_up)
        self.coming, self.incomplete = (
            set(self.sites),
            [],
        )  # who asked the daemon before is answered by that one, or asks again
        for site in self.sites:
            site.is_sent()
        self.seen["taken over"] += 1
        self.seen["taken over with something held"] += any(site.far.holds for site in self.sites)

    @rule(site=st.integers(0, PROXIES - 1))
    def dies(self, site: int) -> None:
        """SIGKILL, and another one takes its place."""
        gone = self.sites[site]
        for request in self.requests:
            if request.site is gone and not request.over:
                request.over = True
                if not request.quiet and not request.doubtful:
                    self.touch(request.session)
        gone.far.stop()
        gone.lose()
        self.follow_up()
        self.is_here(gone)
        self.sites[site] = Site(f"{gone.name}'", self, self.clock)

    # --- what always holds

    @invariant()
    def whoever_is_cut_off_is_killed(self) -> None:
        for number, site in enumerate(self.sites):
            if site.wire._ends[site.wire.near].closed:
                self.seen["cut off"] += 1
                self.dies(number)

    def whoever_finds_no_daemon_ends(self) -> None:
        for number, site in enumerate(self.sites):
            if not site.welcome and self.clock.seconds() >= site.sent_at + TRY_FOR:
                self.seen["found no daemon"] += 1
                self.dies(number)

    @invariant()
    def the_daemon_counts_each_proxys_lease_once(self) -> None:
        held: Counter[SessionId] = Counter()
        for site in self.sites:
            held.update(session for session, one in site.near.held.items() if one.state is HeldState.COUNTS)
        counted = {session.id: session.in_flight for session in self.core.ledger if session.in_flight}
        assert counted == dict(held), (counted, held)

    @invariant()
    def what_drains_has_something_in_flight(self) -> None:
        for session in self.core.ledger:
            assert session.state is SessionState.ACTIVE or session.in_flight

    def finish_all(self) -> None:
        for request in self.requests:
            if not request.over:
                request.over = True
                if not request.quiet and not request.doubtful:
                    self.touch(request.session)
                assert request.lease is not None
                request.lease.release()

    def teardown(self) -> None:
        """Everything ends, and then everything is over."""
        for _ in range(3):
            for site in self.sites:
                site.run()  # what was asked for is granted, and over
            self.finish_all()
        still = self.terminated & self.core.ledger.sessions.keys()
        assert not still, "a terminated session did not end with its last request"
        for _ in range(320):
            if not self.core.ledger.sessions and not any(site.far.holds for site in self.sites):
                break
            self.time_passes(0.05)
            for site in self.sites:
                site.run()
        assert not self.core.ledger.sessions, f"a session did not expire: {list(self.core.ledger)}"
        for site in self.sites:
            assert not site.far.holds and not site.near.held
            site.far.stop()
        self.seen["examples"] += 1


class LeaseMachineTests(SynchronousTestCase):
    def test_leases_with_several_holders(self) -> None:
        LeaseMachine.seen = Counter()
        run_state_machine_as_test(
            LeaseMachine,
            settings=settings(
                max_examples=150,
                stateful_step_count=40,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
        for what in (
            "asked",
            "without asking",
            "refused",
            "drains",
            "idle",
            "resumed",
            "taken over with something held",
        ):
            self.assertTrue(LeaseMachine.seen[what], f"{what} never happened: {LeaseMachine.seen}")
