"""Requests that come while nobody decides: they wait, and one whose client leaves leaves nothing behind, whoever decides then."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import attrs
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.trial.unittest import SynchronousTestCase

from sticky import errors
from sticky.core.tokens import Claims
from sticky.isticky import ILease, ILeaseHolder, TCPAddress, Visit
from sticky.journal.service import JournalService
from sticky.stepping_down import Resting, SteppingDown
from tests.fakes.routing import SERVER, FakeControl, FakeRouting, claims
from tests.test_service import Holder
from tests.workers.test_control import REQUEST


class Slow:
    """A routing that lets nobody in at once."""

    def __init__(self) -> None:
        self.left = 0
        self.asked: list[Deferred[ILease]] = []

    def begin(self, asked: Claims, holder: ILeaseHolder, websocket: bool = False) -> Deferred[ILease]:
        self.asked.append(Deferred(self._left))
        return self.asked[-1]

    def _left(self, waiting: Deferred[ILease]) -> None:
        self.left += 1


class Broken:
    """A routing that lets in all but the first, for a reason that nobody foresaw."""

    def __init__(self) -> None:
        self.asked: list[ILeaseHolder] = []

    def begin(self, asked: Claims, holder: ILeaseHolder, websocket: bool = False) -> str:
        self.asked.append(holder)
        if len(self.asked) == 1:
            raise KeyError("a bug of ours")
        return "a lease"


class RestingTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.resting, self.slow = Resting(), Slow()
        waiting = self.resting.begin(claims(), Holder())
        assert isinstance(waiting, Deferred)
        self.waiting = waiting

    def test_one_that_leaves_before_it_is_known_who_decides_is_not_asked_for(self) -> None:
        self.waiting.cancel()
        self.failureResultOf(self.waiting, CancelledError)
        self.resting.go(self.slow)  # type: ignore[arg-type]
        self.assertEqual(self.slow.asked, [])

    def test_one_that_leaves_while_it_waits_on_is_not_waited_for_any_more(self) -> None:
        self.resting.go(self.slow)  # type: ignore[arg-type]
        self.waiting.cancel()
        self.failureResultOf(self.waiting, CancelledError)
        self.assertEqual(self.slow.left, 1)

    def test_one_that_cannot_be_let_in_keeps_nobody_else_waiting(self) -> None:
        other = self.resting.begin(claims(), Holder())
        broken = Broken()
        self.resting.go(broken)  # type: ignore[arg-type]
        self.failureResultOf(self.waiting, KeyError)
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)
        assert isinstance(other, Deferred)
        self.assertEqual((self.successResultOf(other), len(broken.asked)), ("a lease", 2))

    def test_one_that_leaves_when_another_is_answered_is_not_asked_for(self) -> None:
        other = self.resting.begin(claims(), Holder())
        assert isinstance(other, Deferred)
        self.waiting.addErrback(lambda failure: other.cancel())
        broken = Broken()
        self.resting.go(broken)  # type: ignore[arg-type]
        self.assertEqual(len(self.flushLoggedErrors(KeyError)), 1)
        self.failureResultOf(other, CancelledError)
        self.assertEqual(len(broken.asked), 1)

    def test_what_becomes_of_it_is_its_answer(self) -> None:
        self.resting.go(self.slow)  # type: ignore[arg-type]
        self.assertNoResult(self.waiting)
        self.slow.asked[0].errback(errors.SessionEnded("idle_timeout"))
        self.assertEqual(self.failureResultOf(self.waiting, errors.SessionEnded).value.code, "idle_timeout")


class VisitorTests(SynchronousTestCase):
    """What a visitor of a plain Server shows is judged once, by whoever decides in the end."""

    def setUp(self) -> None:
        self.shown = attrs.evolve(REQUEST, sessioned=False)
        self.control = FakeControl()
        self.routing = FakeRouting(TCPAddress("127.0.0.1", 1))
        self.resting = Resting()
        waiting = self.resting.begin(Visit(SERVER, b"room", self.shown), Holder())
        assert isinstance(waiting, Deferred)
        self.waiting = waiting

    def test_here_before_it_is_let_in(self) -> None:
        self.resting.go(self.routing, self.control.let_in)
        self.successResultOf(self.waiting)
        self.assertEqual(self.control.visitors, [self.shown])
        self.assertEqual(self.routing.visits, [Visit(SERVER, b"room")])

    def test_here_and_not_let_in(self) -> None:
        self.control.let_in_with = errors.BadCredential()
        self.resting.go(self.routing, self.control.let_in)
        self.failureResultOf(self.waiting, errors.BadCredential)
        self.assertEqual(self.routing.visits, [])

    def test_elsewhere_by_the_next_daemon(self) -> None:
        self.resting.go(self.routing)
        self.assertEqual(self.routing.visits, [Visit(SERVER, b"room", self.shown)])


class Journal(JournalService):
    """One that has nothing to let go of."""

    works = True

    def __init__(self) -> None:
        """Neither a file nor a lock."""

    @property
    def lock(self) -> int:
        """See `JournalService`."""
        return 7

    def let_go(self) -> None:
        """See `JournalService`."""


class HandingOverTests(SynchronousTestCase):
    def test_a_journal_that_cannot_be_written_is_not_handed_over(self) -> None:
        """The next daemon would find sessions alive that have ended since."""
        journal = Journal()
        old = SteppingDown.__new__(SteppingDown)
        old._journal = journal
        self.assertEqual(old.lock(), 7)
        journal.works = False
        refused = self.assertRaises(errors.StorageFailed, old.lock)
        self.assertIn("journal cannot be written", str(refused))


class RestTests(SynchronousTestCase):
    def test_nothing_is_promised_from_the_moment_on_in_which_nothing_is_carried_out(self) -> None:
        """What was answered between the two would be nowhere: not in memory that counts, nor in the file."""
        steps: list[str] = []
        closed: Deferred[None] = Deferred()

        async def admin_rests() -> None:
            steps.append("admin calls")
            await closed

        class Kept(Journal):
            async def rest(self) -> None:
                steps.append("journal")

        def step(name: str) -> Any:
            return lambda: steps.append(name)

        old = SteppingDown.__new__(SteppingDown)
        old._edge = None
        old._listeners = SimpleNamespace(pause=step("listeners"))  # type: ignore[assignment]
        old._proxies = SimpleNamespace(rest=step("proxies"), moving=2)  # type: ignore[assignment]
        old._health = SimpleNamespace(stopService=step("health"))
        old._servers = SimpleNamespace(all=lambda: [SimpleNamespace(rest=step("a Server"))])  # type: ignore[assignment]
        old._admin = SimpleNamespace(rest=admin_rests)  # type: ignore[assignment]
        old._journal = Kept()
        resting = old.rest()
        self.assertEqual(steps, ["listeners", "proxies", "health", "a Server", "journal", "admin calls"])
        self.assertNoResult(resting)
        closed.callback(None)
        self.assertEqual(self.successResultOf(resting), 2)

    def test_it_fails_when_all_of_it_is_over_and_not_before(self) -> None:
        """Else the journal would be opened again while it is about to be closed."""
        closed: Deferred[None] = Deferred()

        async def cannot() -> None:
            raise OSError(28, "No space left on device")

        class Kept(Journal):
            async def rest(self) -> None:
                await closed

        def nothing() -> None: ...

        old = SteppingDown.__new__(SteppingDown)
        old._edge = None
        old._listeners = SimpleNamespace(pause=nothing)  # type: ignore[assignment]
        old._proxies = SimpleNamespace(rest=nothing, moving=0)  # type: ignore[assignment]
        old._health = SimpleNamespace(stopService=nothing)
        old._servers = SimpleNamespace(all=list)  # type: ignore[assignment]
        old._admin = SimpleNamespace(rest=cannot)  # type: ignore[assignment]
        old._journal = Kept()
        resting = old.rest()
        self.assertNoResult(resting)
        closed.callback(None)
        self.failureResultOf(resting, OSError)


class WakeTests(SynchronousTestCase):
    def test_a_part_that_cannot_go_on_keeps_no_other_from_it(self) -> None:
        steps: list[str] = []

        def part(name: str) -> Any:
            def goes_on() -> None:
                steps.append(name)
                raise OSError(28, f"{name} has no room")

            return goes_on

        class Kept(Journal):
            def wake(self) -> None:
                part("journal")()

        old = SteppingDown.__new__(SteppingDown)
        old._edge = None
        old._journal = Kept()
        old._servers = SimpleNamespace(all=lambda: [SimpleNamespace(wake=part(name)) for name in ("one", "two")])  # type: ignore[assignment]
        old._health = SimpleNamespace(startService=part("health"))
        old._proxies = SimpleNamespace(wake=part("proxies"))  # type: ignore[assignment]
        old._listeners = SimpleNamespace(resume=lambda: steps.append("listeners"))  # type: ignore[assignment]
        old._admin = SimpleNamespace(wake=part("admin"))  # type: ignore[assignment]
        old.wake()
        self.assertEqual(steps, ["journal", "one", "two", "health", "proxies", "listeners", "admin"])
        self.assertEqual(len(self.flushLoggedErrors(OSError)), 6)


class LeavingTests(SynchronousTestCase):
    def test_whoever_asked_for_the_restart_hears_of_it_where_no_worker_has_to_go(self) -> None:
        said: Deferred[None] = Deferred()
        over: list[str] = []

        def nothing(*_: object) -> None: ...

        parts: dict[str, Any] = dict.fromkeys(("servers", "health", "edge", "reactor"))
        old = SteppingDown(
            **parts,
            daemon=SimpleNamespace(left=None),  # type: ignore[arg-type]
            journal=Journal(),
            admin=SimpleNamespace(leave=lambda: said),  # type: ignore[arg-type]
            backends=(),
            listeners=SimpleNamespace(leave=nothing),  # type: ignore[arg-type]
            endpoints=(),
            proxies=SimpleNamespace(move=lambda path, within: succeed([])),  # type: ignore[arg-type]
            workers=SimpleNamespace(release=nothing),  # type: ignore[arg-type]
            drain_timeout=1.0,
            left=nothing,
            over=lambda: over.append("over"),
        )
        old.leave("a socket")
        self.assertEqual(over, [])
        said.callback(None)
        self.assertEqual(over, ["over"])
