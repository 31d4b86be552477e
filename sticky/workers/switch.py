"""Control calls of a daemon that may hand over: answered here, until they are answered by the next daemon. Knows no call."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, cast

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from zope.interface import implementer

from sticky.isticky import Answer, IControl, IEventStream
from sticky.workers.control import FarControl


class Answers(Enum):
    """Who answers."""

    HERE = "here"
    NOBODY = "nobody"  # for a moment: calls wait
    ELSEWHERE = "elsewhere"


@implementer(IControl)
class ControlSwitch:
    """See the module."""

    def __init__(self, here: IControl) -> None:
        self.state = Answers.HERE
        self._here = here
        self._far: FarControl | None = None
        self._open: dict[_Open, None] = {}  # in order

    def answer(self, request: object) -> object:
        """See `IControl`."""
        if self.state is Answers.HERE:
            result = self._here.answer(request)
            if isinstance(result, Answer):
                return result
            one = _Open(self, request)
            if IEventStream.providedBy(result):
                one.stream(result)
                return one
            one.wait(cast("Deferred[Any]", result))
            return one.outer
        if self._far is not None:
            return self._far.answer(request)
        return _Open(self, request).outer

    def let_in(self, request: object) -> object:
        """See `IControl`. While it is not known who decides nobody judges."""
        return self._here.let_in(request) if self.state is Answers.HERE else request

    def pause(self) -> None:
        """Nobody answers for a moment."""
        self.state = Answers.NOBODY

    def resume(self) -> None:
        """Answered here again."""
        self.state = Answers.HERE
        for one in list(self._open):
            if one.asks_nobody:
                one.ask(self._here.answer)

    def go(self, far: FarControl) -> None:
        """The next daemon answers, also what has begun here."""
        self.state = Answers.ELSEWHERE
        self._far = far
        for one in list(self._open):
            one.ask(far.answer)

    def opened(self, one: _Open) -> None:
        """A call has no answer yet: whoever decides next is asked for it, too."""
        self._open[one] = None

    def closed(self, one: _Open) -> None:
        """It is answered, or its client has left. A no-op on one that is over already."""
        self._open.pop(one, None)


@implementer(IEventStream)
class _Open:
    """A call that is not answered yet: whoever asked sees one Deferred or one stream, whoever answers it."""

    def __init__(self, switch: ControlSwitch, request: object) -> None:
        self.outer: Deferred[Any] = Deferred(lambda _: self.stop())
        self._switch = switch
        self._request = request
        self._waiting: Deferred[Any] | None = None
        self._events: Any = None
        self._streams = False
        self._write: Callable[[bytes], None] | None = None
        self._finish: Callable[[], None] | None = None
        switch.opened(self)

    @property
    def asks_nobody(self) -> bool:
        """Whether it came while nobody answered."""
        return self._waiting is None and self._events is None

    def ask(self, whom: Callable[[object], object]) -> None:
        """Ask anew. What was asked before is dropped."""
        waiting, self._waiting = self._waiting, None
        events, self._events = self._events, None
        if waiting is not None:
            waiting.cancel()
        if events is not None:
            events.stop()
        try:
            result = whom(self._request)
        except Exception:
            self._failed(Failure(), None)
            return
        if isinstance(result, Deferred):
            self.wait(result)
        else:
            self._answered(result, None)

    def wait(self, waiting: Deferred[Any]) -> None:
        """The answer comes later."""
        self._waiting = waiting
        waiting.addCallbacks(self._answered, self._failed, callbackArgs=(waiting,), errbackArgs=(waiting,))

    def stream(self, events: Any) -> None:
        """The answer is a stream."""
        self._streams = True
        self._events = events
        if self._write is not None:
            events.start(self._write, self._end)

    def _answered(self, result: Any, waiting: Deferred[Any] | None) -> None:
        if waiting is not self._waiting:
            return
        self._waiting = None
        if IEventStream.providedBy(result):
            fresh = not self._streams
            self.stream(result)
            if fresh:
                self.outer.callback(self)
        elif self._streams:
            self._end()
        else:
            self._switch.closed(self)
            self.outer.callback(result)

    def _failed(self, failure: Failure, waiting: Deferred[Any] | None) -> None:
        if waiting is not self._waiting:
            return  # dropped
        self._waiting = None
        if self._streams:
            self._end()
        else:
            self._switch.closed(self)
            self.outer.errback(failure)

    def _end(self) -> None:
        self._switch.closed(self)
        finish, self._finish, self._write = self._finish, None, None
        if finish is not None:
            finish()

    # --- as an `IEventStream`

    def start(self, write: object, finish: object) -> None:
        """See `IEventStream`."""
        self._write = cast(Callable[[bytes], None], write)
        self._finish = cast(Callable[[], None], finish)
        if self._events is not None:
            self._events.start(self._write, self._end)

    def stop(self) -> None:
        """See `IEventStream`; also: its client left."""
        self._switch.closed(self)
        self._write = self._finish = None
        waiting, self._waiting = self._waiting, None
        events, self._events = self._events, None
        if waiting is not None:
            waiting.cancel()
        if events is not None:
            events.stop()
