"""The journal's one thread: runs what it is given in order, and hands what comes of it to the reactor. Knows no SQL.

Twisted's thread pool leaves a function that knows itself behind with each call, which only the garbage collector finds: four
objects for each batch, and a daemon writes many.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorFromThreads
from twisted.python.failure import Failure

_Call = tuple[Deferred[Any], Callable[..., Any], tuple[Any, ...]]


class JournalThread:
    """Runs from when it is made until `stop`. A process does not end while it is there."""

    def __init__(self, reactor: IReactorFromThreads) -> None:
        self._reactor = reactor
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._thread = Thread(target=self._work, name="journal")
        self._thread.start()

    def run(self, function: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        """Call it there, after all that it was given before. Fires in the reactor's thread with what it returns or raises."""
        done: Deferred[Any] = Deferred()
        self._calls.put((done, function, arguments))
        return done

    def stop(self) -> None:
        """Come back when all that it was given is done, and the thread has ended."""
        self._calls.put(None)
        self._thread.join()

    def leave(self) -> None:
        """As `stop`, but without waiting for it: what is under way may hang."""
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            done, function, arguments = call
            self._reactor.callFromThread(done.callback, _outcome(function, arguments))
            del call, done, function, arguments  # or a batch would stay here until the next one comes


def _outcome(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        return function(*arguments)
    except BaseException:
        return Failure()
