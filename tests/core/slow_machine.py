"""The Hypothesis machine with mail between admission and ledgers that is late and out of order, and with another admitter."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from sticky.core.container import ContainerState
from sticky.core.effects import Admit, Close
from sticky.core.values import Caller, SessionId
from tests.core.machine import FleetMachine


class SlowMailMachine(FleetMachine):
    """The same, with the mail between admission and ledgers delayed and out of order."""

    prompt = False

    @precondition(lambda self: self._in(ContainerState.READY))
    @rule(data=st.data(), count=st.integers(1, 3))
    def another_admitter_places_sessions(self, data: st.DataObject, count: int) -> None:
        """Of which this fleet's admission knows nothing: so ledgers are full, and refuse to close."""
        home = data.draw(st.sampled_from(self._in(ContainerState.READY)))
        for _ in range(count):
            self.strangers += 1
            self.fleet.mail.append(Admit(home, SessionId(f"sd-x{self.strangers}"), Caller("bob"), 20.0))

    @rule(quicker=st.booleans())
    def quiet_hours(self, quicker: bool) -> None:
        """Everybody goes, containers are asked to close, and perhaps somebody else's session is there first."""
        for waiter in self.books.waiters():
            self._leave(waiter)
        for session in sorted(self.books.granted & set(self.books.stays)):
            self._terminate(session, 0.0)
        self._deliver_all()
        self._pass_until(self.books.now + self.books.policy.scaledown_window)
        for letter in [letter for letter in self.fleet.mail if isinstance(letter, Close)] if quicker else []:
            self.strangers += 1
            admit = Admit(letter.container, SessionId(f"sd-x{self.strangers}"), Caller("bob"), 20.0)
            self.fleet.mail.insert(self.fleet.mail.index(letter), admit)
        self._deliver_all()

    @precondition(lambda self: self.fleet.mail)
    @rule(data=st.data())
    def deliver(self, data: st.DataObject) -> None:
        self._deliver(data.draw(st.integers(0, len(self.fleet.mail) - 1)))

    @precondition(lambda self: self.fleet.mail)
    @rule()
    def deliver_all(self) -> None:
        self._deliver_all()
