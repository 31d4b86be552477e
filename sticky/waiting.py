"""Clients that wait for a start: a Deferred each, answered once. Knows no queue and no rule."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from sticky.core.values import WaiterId
from sticky.isticky import Credentials


class Waiting:
    """Waiters by number, and back."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._answers: dict[WaiterId, Deferred[Credentials]] = {}
        self._waiters: dict[Deferred[Credentials], WaiterId] = {}

    def join(self, left: Callable[[WaiterId], None]) -> tuple[WaiterId, Deferred[Credentials]]:
        """One more client waits. `left` is called when its Deferred is cancelled."""
        waiter = WaiterId(next(self._numbers))

        def cancelled(answer: Deferred[Credentials]) -> None:
            self._answers.pop(waiter, None)
            self._waiters.pop(answer, None)
            left(waiter)

        answer: Deferred[Credentials] = Deferred(cancelled)
        self._answers[waiter] = answer
        self._waiters[answer] = waiter
        return waiter, answer

    def who(self, answer: Deferred[Credentials]) -> WaiterId | None:
        """Who waits for this; None once answered."""
        return self._waiters.get(answer)

    def answer(self, waiter: WaiterId, result: Credentials | Failure) -> None:
        """Answer one client. A no-op for one that left."""
        answer = self._answers.pop(waiter, None)
        if answer is not None:
            self._waiters.pop(answer, None)
            answer.callback(result)

    def all(self) -> list[WaiterId]:
        """Everybody who still waits."""
        return list(self._answers)

    def answer_all(self, result: Failure) -> None:
        """Answer everybody who still waits."""
        for waiter in list(self._answers):
            self.answer(waiter, result)
