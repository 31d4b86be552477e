"""Whether ready containers still answer: looks every ten seconds, closer when in doubt, and says which do not.

Knows addresses and how to knock, no session and no rule: what becomes of an unhealthy container is the core's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import attrs
from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from sticky.core.values import ContainerId
from sticky.exhaustion import is_ours
from sticky.isticky import Address

EVERY = 10.0  #: seconds between two looks at a container that answers (semantics.md, Container)
SOON = 1.0  #: seconds between two looks at one that does not
_EARLY = (
    SOON / 2
)  # rounds are a little late, each by another bit: who is due a moment after this one is not left for the next
PATIENCE = 10  #: failures in a row that are borne; the next one is too many


@attrs.frozen
class Patient:
    """A container to be looked at, as long as it is ready."""

    container: ContainerId
    address: Address
    ready_path: str | None  #: probe with GET and expect a status under 400; None: an open port is enough
    unhealthy: Callable[[], None]  #: it does not answer
    halted: Callable[[], bool] = lambda: False  #: it cannot, whatever its port says


@attrs.define(eq=False)
class _Chart:
    address: Address
    next_at: float
    failures: int = 0
    asking: Deferred[int] | None = None


class Health(Service):
    """Looks after all containers of a daemon. `patients` gives those that are ready now, of all Servers.

    `knock` says whether a connection was accepted and never waits (a port is asked so: 20 us); `probe` is the status of a GET.
    One timer for all: a second passes between two rounds, and each container has its own turn within ten.
    """

    log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        patients: Callable[[], Iterable[Patient]],
        knock: Callable[[Address], bool],
        probe: Callable[[Address, str], Deferred[int]],
    ) -> None:
        self._clock = clock
        self._patients = patients
        self._knock = knock
        self._probe = probe
        self._charts: dict[ContainerId, _Chart] = {}
        self._by_address: dict[Address, _Chart] = {}
        self._doubts: set[Address] = set()  # of the time since the last round
        self._born = 0
        self._rounds = LoopingCall(self._round)
        self._rounds.clock = clock

    def startService(self) -> None:
        """Begin with the first round in a second."""
        super().startService()  # type: ignore[no-untyped-call]
        self._rounds.start(SOON, now=False).addErrback(self._broken)

    def stopService(self) -> None:
        """Look no more."""
        super().stopService()  # type: ignore[no-untyped-call]
        if self._rounds.running:
            self._rounds.stop()
        for container in list(self._charts):
            self._forget(container)

    def doubt(self, address: Address) -> None:
        """Somebody could not connect there: the next round looks. As often as it may be said, one look a second."""
        chart = self._by_address.get(address)
        if chart is None:
            self._doubts.add(address)  # it may have become ready since the last round
        else:
            chart.next_at = min(chart.next_at, self._clock.seconds())

    # --- a round

    def _round(self) -> None:
        try:
            self._look_around()
        except Exception:
            self._broken(Failure())  # and go on in a second: nothing else would notice that nobody looks any more

    def _look_around(self) -> None:
        now = self._clock.seconds()
        patients = {patient.container: patient for patient in self._patients()}
        for container in self._charts.keys() - patients.keys():
            self._forget(container)  # it drains, stops or is gone: that is not ours to judge
        for patient in patients.values():
            chart = self._charts.get(patient.container)
            if chart is None:
                chart = self._admit(now, patient)
            if chart.next_at <= now + _EARLY and chart.asking is None:
                self._look(patient, chart)
        self._doubts.clear()

    def _admit(self, now: float, patient: Patient) -> _Chart:
        # It has just been found ready. Spread over the rounds, or a hundred that came together would be asked together.
        self._born += 1
        first = now if patient.address in self._doubts else now + EVERY - self._born % int(EVERY)
        chart = self._charts[patient.container] = self._by_address[patient.address] = _Chart(patient.address, first)
        return chart

    def _look(self, patient: Patient, chart: _Chart) -> None:
        if patient.halted():
            self._note(patient, chart, False)
            return
        if patient.ready_path is None:
            self._note(patient, chart, self._knocked(patient.address))
            return
        chart.asking = asking = self._probe(patient.address, patient.ready_path)
        asking.addCallbacks(lambda status: status < 400, _tells_nothing)
        asking.addCallback(partial(self._answered, patient, chart))
        asking.addErrback(self._broken)

    def _knocked(self, address: Address) -> bool:
        try:
            return self._knock(address)
        except OSError:  # no descriptors left: our trouble, not the container's
            return True

    def _answered(self, patient: Patient, chart: _Chart, good: bool) -> None:
        chart.asking = None
        if self._charts.get(patient.container) is chart:
            self._note(patient, chart, good)

    def _note(self, patient: Patient, chart: _Chart, good: bool) -> None:
        now = self._clock.seconds()
        if good:
            chart.failures = 0
            chart.next_at = now + EVERY
            return
        chart.failures += 1
        chart.next_at = now + SOON
        if chart.failures == 1:
            self.log.warn("container {container} does not answer; it is asked again", container=patient.container)
        if chart.failures > PATIENCE:
            self._forget(patient.container)
            patient.unhealthy()

    def _forget(self, container: ContainerId) -> None:
        chart = self._charts.pop(container)
        if self._by_address.get(chart.address) is chart:
            del self._by_address[chart.address]
        if chart.asking is not None:
            chart.asking.cancel()

    def _broken(self, failure: Failure) -> Any:
        self.log.failure("health checks met what they do not understand", failure)


def _tells_nothing(failure: Failure) -> bool:
    """Whether the failure of a probe is our own trouble, so that the container is as well as it was: as with `knock`."""
    return is_ours(failure.value)
