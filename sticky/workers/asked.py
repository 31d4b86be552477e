"""Requests that the daemon is asked for one by one, each a lease of its own: what turns and visits have in common at the proxy.

Must not know what is asked for, nor what a lease is good for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

import attrs
from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from sticky import errors
from sticky.isticky import ILease, ILeaseHolder
from sticky.workers.frames import Link, LinkLost, Message


@attrs.define(eq=False, kw_only=True)
class FarRequest:
    """One request, by a number of the proxy's. Until the daemon has answered it has no lease."""

    number: int
    holder: ILeaseHolder
    waiting: Deferred[ILease] | None = None
    lease: Any = None


Request = TypeVar("Request", bound=FarRequest)


class FarRequests(ABC, Generic[Request]):
    """Those that have a lease, and those that the daemon is asked for. `over` is the message that one of them is over."""

    log = Logger()
    over: str

    def __init__(self) -> None:
        self._link: Link | None = None
        self._requests: dict[int, Request] = {}
        self._untold: list[tuple[str, int]] = []  # what has happened since `held`, while there is no link
        self._number = 0

    # --- the link

    def held(self) -> list[Message]:
        """Leases that are held, for a daemon that takes over. What changes from here until `connect` is told then."""
        self._untold.clear()
        return [self._describe(one) for one in self._requests.values() if one.lease is not None]

    def disconnect(self) -> None:
        """The daemon goes, and another one will come."""
        self._link = None

    def connect(self, link: Link, ended: Iterable[Message]) -> None:
        """This daemon knows what is `held`, but for what has `ended`; it is asked for everything else again, in its order."""
        self._link = link
        untold, self._untold = self._untold, []
        for what, number in untold:
            link.tell(what, request=number)
        for message in ended:
            self._end(message)
        for one in list(self._requests.values()):
            if one.waiting is not None:
                self._ask(one)

    # --- asking and telling

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _take(self, one: Request) -> Deferred[ILease]:
        waiting: Deferred[ILease] = Deferred(lambda _: self._leave(one))
        one.waiting = waiting
        self._requests[one.number] = one
        self._ask(one)
        return waiting

    def _ask(self, one: Request) -> None:
        if self._link is not None:
            asked = self._question(self._link, one)
            asked.addCallbacks(self._given, self._refused, callbackArgs=(one,), errbackArgs=(one,))

    def _given(self, answer: Message, one: Request) -> None:
        if one.number not in self._requests:
            return  # its client left, and the daemon knows
        waiting, one.waiting = one.waiting, None
        assert waiting is not None
        one.lease = self._lease(answer, one)
        waiting.callback(one.lease)

    def _refused(self, failure: Failure, one: Request) -> None:
        if failure.check(LinkLost) is not None or self._requests.pop(one.number, None) is None:
            return
        waiting, one.waiting = one.waiting, None
        assert waiting is not None
        waiting.errback(failure if failure.check(errors.Refusal) else Failure(errors.Unavailable()))

    def _leave(self, one: Request) -> None:
        one.waiting = None  # it knows `one`: a cycle for the garbage collector
        if self._requests.pop(one.number, None) is not None:
            self._tell(self.over, one)

    def _tell(self, what: str, one: Request) -> None:
        if self._link is not None:
            self._link.tell(what, request=one.number)
        else:
            self._untold.append((what, one.number))

    # --- what differs

    @abstractmethod
    def _describe(self, one: Request) -> Message:
        """One that has its lease, for the next daemon."""

    @abstractmethod
    def _question(self, link: Link, one: Request) -> Deferred[Message]:
        """Ask for it."""

    @abstractmethod
    def _lease(self, answer: Message, one: Request) -> Any:
        """The lease that the daemon's answer gives."""

    @abstractmethod
    def _end(self, message: Message) -> None:
        """What of it the daemon says has ended: whoever has a lease of that is told."""
