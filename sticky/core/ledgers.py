"""All ledgers of one Server and the tombstones of their ended sessions: the side that knows sessions. Decides no placement."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush, heapreplace

from sticky import errors
from sticky.core.effects import Admit, Effect, EndSession
from sticky.core.events import LedgerAnswer
from sticky.core.ledger import Ledger
from sticky.core.records import Record, SessionCreated, SessionDrains
from sticky.core.session import Session, SessionState
from sticky.core.tombstones import Tombstone, Tombstones
from sticky.core.values import UNBOUNDED, ContainerId, EndReason, SessionId


class Ledgers:
    """Ledgers by container. What they answer goes to `answer`, what has to be done or written down to `emit`."""

    def __init__(self, answer: Callable[[LedgerAnswer], None], emit: Callable[[Effect | Record], None]) -> None:
        self.tombstones = Tombstones()
        self.by_container: dict[ContainerId, Ledger] = {}  #: read by the fleet for each request, hence no method
        # The same idiom as in a ledger: each is in the heap under `expected_at`, never later than its next deadline.
        self._heap: list[tuple[float, int, Ledger]] = []
        self._order = 0
        self._answer = answer
        self._emit = emit

    # --- containers come and go

    def open(self, container: ContainerId, limit: int, tokens_end_at: float) -> Ledger:
        """A container is about to start: an empty ledger for it."""
        ledger = Ledger(container, limit, tokens_end_at, self._answer, self._ended, self._sooner)
        self.by_container[container] = ledger
        return ledger

    def drain(self, container: ContainerId, reason: EndReason) -> None:
        """It takes nothing new; sessions end with their last request."""
        self.by_container[container].drain(reason)

    def cut(self, container: ContainerId, reason: EndReason, detail: str | None = None) -> None:
        """Its sessions end now; one that drains keeps the reason that it has."""
        self.by_container[container].cut(reason, detail)

    def drop(self, container: ContainerId) -> None:
        """It is gone, and so is its ledger; cut it first."""
        self.by_container.pop(container).expected_at = UNBOUNDED

    # --- what admission asks

    def admit(self, now: float, request: Admit) -> None:
        """Ask a ledger to take a session. Silent where the container is gone: admission knows, and placed it anew."""
        ledger = self.by_container.get(request.container)
        if ledger is not None:
            ledger.admit(now, request)
            if request.session in ledger.sessions:
                self._emit(
                    SessionCreated(request.session, request.container, request.caller, request.idle_timeout, now)
                )

    def close(self, container: ContainerId) -> None:
        """Ask a ledger to close. Silent where the container is gone."""
        if container in self.by_container:
            self.by_container[container].close()

    # --- calls about one session

    def terminate(self, now: float, container: ContainerId, session: SessionId, grace: float | None) -> None:
        """Nothing new; what is in flight completes, at most `grace` seconds. Raises `UnknownSession`."""
        ledger = self.by_container.get(container)
        if ledger is None or session not in ledger.sessions:
            raise errors.UnknownSession
        before = ledger.sessions[session].state
        ledger.terminate(now, session, grace)
        if before is SessionState.ACTIVE and session in ledger.sessions:
            self._emit(SessionDrains(session, container, EndReason.TERMINATED))

    def extend(self, now: float, container: ContainerId, session: SessionId) -> Session:
        """Restart the idle clock. Raises `SessionEnded`."""
        try:
            return self.by_container[container].extend(now, session)
        except KeyError:
            raise self.why(container, session) from None

    def look(self, container: ContainerId, session: SessionId) -> Session:
        """The session as it is. Raises `SessionEnded`; touches nothing."""
        try:
            return self.by_container[container].sessions[session]
        except KeyError:
            raise self.why(container, session) from None

    def finish(self, now: float, container: ContainerId, session: Session) -> None:
        """One request less, within a step. A no-op where the container is gone."""
        ledger = self.by_container.get(container)
        if ledger is not None:
            ledger.finish(now, session)

    # --- time

    def expire(self, now: float) -> None:
        """End every session whose time is up."""
        while self.next_deadline() <= now:
            self._heap[0][2].expire(now)
        self.tombstones.forget(now)

    def next_deadline(self) -> float:
        """When time alone ends the next session. Exact."""
        heap = self._heap
        while heap:
            expected_at, _, ledger = heap[0]
            if ledger.expected_at != expected_at:
                heappop(heap)  # an older entry: the deadline came nearer, or the ledger is gone
            elif (due := ledger.next_deadline()) is None:
                heappop(heap)
                ledger.expected_at = UNBOUNDED
            elif due > expected_at:
                ledger.expected_at = due
                self._order += 1
                heapreplace(heap, (due, self._order, ledger))
            else:
                return due
        return UNBOUNDED

    def _sooner(self, ledger: Ledger, due: float) -> None:
        ledger.expected_at = due
        self._order += 1
        heappush(self._heap, (due, self._order, ledger))

    # --- reading

    def __iter__(self) -> Iterator[Ledger]:
        return iter(self.by_container.values())

    def __getitem__(self, container: ContainerId) -> Ledger:
        return self.by_container[container]

    def ending(self, container: ContainerId, session: Session) -> errors.SessionEnded:
        """Why a session that does not take requests any more does not."""
        if session.state is SessionState.ENDED:
            return self.why(container, session.id)
        assert session.reason is not None
        return errors.SessionEnded(session.reason.value)

    def why(self, container: ContainerId, session: SessionId) -> errors.SessionEnded:
        """Why there is no such session, as far as anybody remembers."""
        stone = self.tombstones.get(session)
        if stone is not None:
            return errors.SessionEnded(stone.reason.value, stone.detail)
        reason = EndReason.UNKNOWN if container in self.by_container else EndReason.CONTAINER_LOST
        return errors.SessionEnded(reason.value)

    def _ended(self, effect: EndSession) -> None:
        self.tombstones.add(effect.session, Tombstone(effect.reason, effect.detail, effect.forget_at))
        self._emit(effect)
