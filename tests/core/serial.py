"""Rules of the Hypothesis machine about turns: requests of one session one at a time. See `tests.core.machine`."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from sticky import errors
from sticky.core.values import SessionId, TurnId
from tests.core.named import NamedSessions


class SerialSessions(NamedSessions):
    """Take a turn, give it back, leave the line."""

    turns = 0

    @precondition(lambda self: self.books.granted)
    @rule(data=st.data(), count=st.integers(1, 3), leaves=st.booleans())
    def requests_take_turns(self, data: st.DataObject, count: int, leaves: bool) -> None:
        live = sorted(self.books.lines) or sorted(self.books.granted & set(self.books.stays))
        session = data.draw(st.sampled_from(live)) if live else self._any_session(data)
        for _ in range(count):
            self._take_turn(session)
        if leaves and len(self.books.lines.get(session, [])) > 1:
            self._give_back(session, self.books.lines[session][-1])
            self.seen["left the line"] += 1

    def _take_turn(self, session: SessionId) -> None:
        self.turns += 1
        turn, now, home = TurnId(self.turns), self.books.now, self.books.homes[session]
        stay, policy = self.books.stays.get(session), self.books.policy
        waiting = len(self.books.lines.get(session, [])) - 1
        try:
            core, held = self.fleet.take_turn(now, home, session, turn)
        except errors.SessionEnded as refusal:
            self._refused(session, refusal)
        except errors.SessionBusy:
            assert waiting >= policy.max_session_waiters
            self.seen["too many waited for a turn"] += 1
        else:
            assert stay is not None and stay.drains is None, "a session that ended or drains admitted a request"
            assert waiting < policy.max_session_waiters
            assert held is self.books.ask(session, turn, policy.session_wait_timeout)
            stay.open.append(core)
        self._do(self.fleet.take)

    @precondition(lambda self: self.books.lines)
    @rule(data=st.data(), first=st.sampled_from([True, True, False]))
    def a_turn_is_over_or_somebody_leaves_the_line(self, data: st.DataObject, first: bool) -> None:
        session = data.draw(st.sampled_from(sorted(self.books.lines)))
        line = self.books.lines[session]
        place = line[0] if first else line[-1]
        core = self.books.stays[session].open[-1]
        self._give_back(session, place)
        self.fleet.give_back(self.books.now, self.books.homes[session], core, place.id)  # doubled: a no-op
        self._do(self.fleet.take)

    @precondition(lambda self: any(len(line) > 1 for line in self.books.lines.values()))
    @rule(data=st.data(), how=st.sampled_from(["time", "terminate"]))
    def waiters_are_refused(self, data: st.DataObject, how: str) -> None:
        session = data.draw(st.sampled_from(sorted(s for s, line in self.books.lines.items() if len(line) > 1)))
        if how == "time":
            self._pass_until(self.books.lines[session][-1].deadline)
        else:
            self._terminate(session, None)
