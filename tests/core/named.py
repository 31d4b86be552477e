"""Rules of the Hypothesis machine about sessions that have names, and what every kind of client does. See `tests.core.machine`."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from sticky import errors
from sticky.core.container import ContainerState
from sticky.core.events import ContainerReady
from sticky.core.values import EndReason, SessionId
from tests.core.driver import FleetDriver
from tests.core.worlds import callers, idle_timeouts, keys, names


class NamedSessions(FleetDriver):
    """Start by name, release, and use a name whose session is going."""

    @rule(caller=callers, idle_timeout=idle_timeouts, key=keys, owned=st.booleans())
    def start(self, caller: str, idle_timeout: float | None, key: str | None, owned: bool) -> None:
        event = self._request(caller, idle_timeout, key, owned)
        self.books.start(event, self._held_by(event.caller))
        self._do(lambda: self.fleet.step(self.books.now, event))

    @rule(count=st.integers(2, 6), ready=st.booleans())
    def herd(self, count: int, ready: bool) -> None:
        """Everybody at once, and mostly enough room for all."""
        for _ in range(count):
            self.start("ann", None, None, True)
        for _ in range(4 if ready else 0):
            self.all_become_ready()
            self._deliver_all()

    @rule(count=st.integers(4, 8), leaving=st.integers(1, 3), coming=st.integers(1, 3))
    def rush_hour(self, count: int, leaving: int, coming: int) -> None:
        """Many come, some of them leave again, others come: containers of unlike loads are there to choose from."""
        self.herd(count, True)
        for session in sorted(self.books.granted & set(self.books.stays))[:leaving]:
            self._terminate(session, None)
        for _ in range(coming):
            self.start("bob", None, None, True)

    @rule()
    def all_become_ready(self) -> None:
        for container in self._in(ContainerState.STARTING):
            if container in self._in(ContainerState.STARTING):
                self._step(ContainerReady(container))

    @rule(
        name=names,
        caller=callers,
        idle_timeout=idle_timeouts,
        key=keys,
        owned=st.sampled_from([True, True, False]),
        count=st.integers(1, 3),
        ready=st.booleans(),
    )
    def start_by_name(
        self, name: str, caller: str, idle_timeout: float | None, key: str | None, owned: bool, count: int, ready: bool
    ) -> None:
        """Perhaps several at the same moment, who must get one session."""
        for _ in range(count):
            event = self._request(caller, idle_timeout, key, owned, name)
            self.books.start(event, self._held_by(event.caller))
            self._do(lambda event=event: self.fleet.step(self.books.now, event))  # type: ignore[misc]
        if ready:
            self.all_become_ready()
            self._deliver_all()

    @rule(data=st.data(), which=st.sampled_from(["live", "live", "any", "known"]), grace=st.sampled_from([None, 3.0]))
    def release_a_name(self, data: st.DataObject, which: str, grace: float | None) -> None:
        everything = {(owner, name) for owner in ("ann", "bob", "") for name in ("room", "lab")}
        some = {"any": everything, "known": set(self.books.names), "live": self._live_names()}[which]
        scope = data.draw(st.sampled_from(sorted(some or everything)))
        bound = self.books.names.pop(scope, None)
        stay = None if bound is None else self.books.stays.get(bound.session)
        try:
            self.fleet.release(self.books.now, *scope, grace)
        except errors.UnknownName:
            assert bound is None, "a name that is known could not be released"
        else:
            assert bound is not None, "a name that nobody knew was released"
            self.seen["released a live name"] += stay is not None
            self.seen["released an expired name"] += stay is None
            if stay is not None:
                stay.drains = stay.drains or EndReason.TERMINATED
                stay.cut_at = stay.cut_at if grace is None else min(stay.cut_at, self.books.now + grace)
        self._do(self.fleet.take)

    @rule(data=st.data(), name=names, grace=st.sampled_from([None, 3.0]))
    def come_and_give_the_name_back(self, data: st.DataObject, name: str, grace: float | None) -> None:
        self.start_by_name(name, "ann", None, None, True, 1, True)
        self.release_a_name(data, "live", grace)

    @precondition(lambda self: self.books.names.keys() & self._live_names())
    @rule(data=st.data())
    def use_a_name_whose_session_drains(self, data: st.DataObject) -> None:
        owner, name = data.draw(st.sampled_from(sorted(self._live_names())))
        session = self.books.names[owner, name].session
        stay = self.books.stays[session]
        if stay.drains is None:
            stay.open.append(self.fleet.begin(self.books.now, stay.container, session))
            self._do(self.fleet.take)
            self._terminate(session, None)
        event = self._request(owner or "ann", None, None, bool(owner), name)
        self.books.start(event, self._held_by(event.caller))
        self._do(lambda: self.fleet.step(self.books.now, event))
        self.seen["refused a name whose session drains"] += session in self.books.stays

    def _live_names(self) -> set[tuple[str, str]]:
        return {scope for scope, bound in self.books.names.items() if bound.session in self.books.stays}

    def _terminate(self, session: SessionId, grace: float | None) -> None:
        stay = self.books.stays.get(session)
        try:
            self.fleet.terminate(self.books.now, self.books.homes[session], session, grace)
        except errors.UnknownSession:
            assert stay is None
        else:
            assert stay is not None
            stay.drains = stay.drains or EndReason.TERMINATED
            stay.cut_at = stay.cut_at if grace is None else min(stay.cut_at, self.books.now + grace)
        self._do(self.fleet.take)
        assert session not in self.books.stays or self.books.stays[session].open, "an idle one outlived its terminate"
