"""When a container is ready: it accepts connections, with a socket of its own, and answers its probe. Must not know how it runs.

    LOOKING -> PROBING -> DONE        LOOKING: nobody listens, or somebody else does
       ^----------'                   a refused probe goes back to looking; DONE also by `stop`

The cheap question first and often (does a connection succeed), the dear one only then (whose socket is it, by /proc).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from sticky.isticky import Address

#: Seconds between two looks: a share of the time waited so far, so that our delay stays a small part of the program's
#: own (a server that needs 0.3 s to listen is seen within 10 ms), and one that never listens costs little.
SHORTEST, LONGEST, SHARE = 0.002, 0.01, 1 / 32
PROBE_PAUSE = 0.02  #: the least between two GETs: they are work for the program, and lines in its log

#: Seconds between two looks at whose socket it is, while it is somebody else's; doubles from the first to the second.
FOREIGN_FIRST, FOREIGN_LAST = 0.02, 1.0


class _Stage(Enum):
    LOOKING = "looking"  # a timer is set
    PROBING = "probing"  # a GET is under way
    DONE = "done"  # found, or stopped


@attrs.define(eq=False)
class _Doubt:
    """An address where somebody else listens: when to look again, and how long to wait after that."""

    until: float
    wait: float


@attrs.define(eq=False)
class Readiness:
    """Watches a container's possible addresses, the preferred one first, and calls `found` once with the first good one."""

    _clock: IReactorTime
    _candidates: Sequence[Address]
    _knock: Callable[[Address], bool]  #: a connection succeeds
    _owned: Callable[[Address], bool]  #: the listening socket is the container's
    _probe: Callable[[Address], Deferred[int]] | None  #: the HTTP status of a GET; None: an open port is enough
    _found: Callable[[Address], None]
    _log: Logger = attrs.field(factory=lambda: Logger(namespace="sticky.containers"))
    _stage: _Stage = attrs.field(init=False, default=_Stage.LOOKING)
    _since: float = attrs.field(init=False, default=0.0)
    _timer: IDelayedCall | None = attrs.field(init=False, default=None)
    _asking: Deferred[int] | None = attrs.field(init=False, default=None)
    _doubts: dict[Address, _Doubt] = attrs.field(init=False, factory=dict)
    refusal: str | None = attrs.field(init=False, default=None)  #: why the last probe was not answered well

    def start(self) -> None:
        """Begin; the first look is taken at once, so `found` may be called from within."""
        self._since = self._clock.seconds()
        self._look()

    def stop(self) -> None:
        """Stop looking; `found` is not called any more. Again, or after `found`: nothing happens."""
        self._stage = _Stage.DONE
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None
        if self._asking is not None:
            asking, self._asking = self._asking, None
            asking.cancel()

    def _look(self) -> None:
        self._timer = None
        for address in self._candidates:
            try:
                if self._suspended(address) or not self._knock(address):
                    continue
                owned = self._owned(address)
            except OSError:
                continue  # no descriptors left: our trouble, not the container's
            if not owned:
                self._doubt(address)
                continue
            if self._probe is None:
                self._finish(address)
            else:
                self._ask(address)
            return
        self._wait(SHORTEST)

    def _wait(self, at_least: float) -> None:
        elapsed = self._clock.seconds() - self._since
        self._timer = self._clock.callLater(max(at_least, min(LONGEST, elapsed * SHARE)), self._look)

    def _suspended(self, address: Address) -> bool:
        doubt = self._doubts.get(address)
        return doubt is not None and self._clock.seconds() < doubt.until

    def _doubt(self, address: Address) -> None:
        doubt = self._doubts.get(address)
        wait = FOREIGN_FIRST if doubt is None else min(FOREIGN_LAST, doubt.wait * 2)
        self._doubts[address] = _Doubt(self._clock.seconds() + wait, wait)
        if doubt is None:
            self._log.debug("Somebody else listens on {address}", address=address)

    def _ask(self, address: Address) -> None:
        assert self._probe is not None
        self._stage = _Stage.PROBING
        asking = self._probe(address)
        self._asking = asking  # before the callbacks: it may have fired
        asking.addCallbacks(self._answered, self._refused, callbackArgs=(address,), errbackArgs=(address,))

    def _answered(self, status: int, address: Address) -> None:
        if status < 400:
            self._finish(address)
        else:
            self.refusal = f"status {status}"
            self._again()

    def _refused(self, failure: Failure, address: Address) -> None:
        self.refusal = failure.getErrorMessage()
        self._log.debug("The probe of {address} failed: {reason}", address=address, reason=self.refusal)
        self._again()

    def _again(self) -> None:
        self._asking = None
        if self._stage is _Stage.PROBING:
            self._stage = _Stage.LOOKING
            self._wait(PROBE_PAUSE)

    def _finish(self, address: Address) -> None:
        self._asking = None
        if self._stage is not _Stage.DONE:
            self._stage = _Stage.DONE
            self._found(address)
