"""Control calls that come to a proxy and are answered by its daemon: both sides of their way. Must not know what they mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from zope.interface import implementer

from sticky import errors
from sticky.isticky import Answer, ControlRequest, IControl, IEventStream
from sticky.workers import messages
from sticky.workers.fields import number_of, value_of
from sticky.workers.frames import Link, LinkLost, Message
from sticky.workers.values import made, plain

# --- the proxy's side ------------------------------------------------------------------------------------------------


@implementer(IEventStream)
class FarCall:
    """One call, from the request to the end of its answer. What its client sees is an answer, or a stream of events."""

    def __init__(self, calls: FarControl, number: int, request: ControlRequest) -> None:
        self.number = number
        self.request = request
        self.answer: Deferred[object] = Deferred(lambda _: calls.cancel(self))
        self._calls = calls
        self._streams = False
        self._write: Callable[[bytes], None] | None = None
        self._finish: Callable[[], None] | None = None

    def answered(self, message: Message) -> None:
        """The daemon's answer."""
        if "answer" in message:
            if not self._calls.over(self):
                return  # its client left
            if self._streams:
                self._end()  # another daemon answers at once what an earlier one had answered with events
            else:
                self.answer.callback(made(Answer, message["answer"]))
            return
        if not self._calls.waits(self):
            return
        if not self._streams:
            self._streams = True
            self.answer.callback(self)
        elif self._write is not None:
            self._calls.open(self)

    def failed(self, failure: Failure) -> None:
        """There is none."""
        if failure.check(LinkLost) is not None:
            return  # asked again of the next daemon, or this process ends
        if not self._calls.over(self):
            return  # its client left
        if self._streams:
            self._end()
        else:
            self.answer.errback(failure)

    def event(self, data: bytes) -> None:
        """A part of the stream."""
        if self._write is not None:
            self._write(data)

    def finished(self) -> None:
        """It was the last."""
        self._calls.over(self)
        self._end()

    def start(self, write: object, finish: object) -> None:
        """See `IEventStream`."""
        self._write = cast(Callable[[bytes], None], write)
        self._finish = cast(Callable[[], None], finish)
        self._calls.open(self)

    def stop(self) -> None:
        """See `IEventStream`."""
        self._write = self._finish = None
        self._calls.cancel(self)

    def _end(self) -> None:
        finish, self._finish, self._write = self._finish, None, None
        if finish is not None:
            finish()


@implementer(IControl)
class FarControl:
    """Has control calls answered by the daemon. While there is no link they wait."""

    def __init__(self) -> None:
        self._link: Link | None = None
        self._calls: dict[int, FarCall] = {}
        self._number = 0

    def calls(self) -> dict[str, Callable[[Message], Any]]:
        """What of this file a daemon may tell."""
        return {messages.EVENT: self._event, messages.FINISH: self._finish}

    def disconnect(self) -> None:
        """The daemon goes, and another one will come."""
        self._link = None

    def connect(self, link: Link) -> None:
        """Calls that wait are made here, too."""
        self._link = link
        for call in list(self._calls.values()):
            self._ask(call)

    def answer(self, request: object) -> object:
        """See `IControl`. The Deferred may give an `IEventStream`, too."""
        self._number += 1
        call = FarCall(self, self._number, cast(ControlRequest, request))
        self._calls[call.number] = call
        self._ask(call)
        return call.answer

    def let_in(self, request: object) -> object:
        """See `IControl`: the daemon judges, when it is asked where the request goes."""
        return request

    def _ask(self, call: FarCall) -> None:
        if self._link is not None:
            asked = self._link.ask(messages.CONTROL, call=call.number, request=plain(call.request))
            asked.addCallbacks(call.answered, call.failed)

    def open(self, call: FarCall) -> None:
        """Its events may come."""
        if self._link is not None:
            self._link.tell(messages.STREAM, call=call.number)

    def cancel(self, call: FarCall) -> None:
        """Its client left."""
        if self._calls.pop(call.number, None) is not None and self._link is not None:
            self._link.tell(messages.CANCEL, call=call.number)

    def waits(self, call: FarCall) -> bool:
        """Whether its client still waits."""
        return call.number in self._calls

    def over(self, call: FarCall) -> bool:
        """It is answered. False: its client has left already."""
        return self._calls.pop(call.number, None) is not None

    def _event(self, message: Message) -> None:
        call = self._calls.get(message["call"])
        if call is not None:
            call.event(message["data"].encode("latin-1"))

    def _finish(self, message: Message) -> None:
        call = self._calls.get(message["call"])
        if call is not None:
            call.finished()


# --- the daemon's side -----------------------------------------------------------------------------------------------


class NearControl:
    """Answers a proxy's control calls with the daemon's own `IControl`."""

    def __init__(self, control: IControl, link: Link) -> None:
        self._control = control
        self._link = link
        self._waiting: dict[int, Deferred[Any]] = {}
        self._streams: dict[int, IEventStream] = {}

    def calls(self) -> dict[str, Callable[[Message], Any]]:
        """What of this file a proxy may ask or tell."""
        return {messages.CONTROL: self._answer, messages.STREAM: self._start, messages.CANCEL: self._cancel}

    def stop(self) -> None:
        """The proxy is gone, and its clients with it."""
        waiting, self._waiting = self._waiting, {}
        for one in waiting.values():
            one.cancel()
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.stop()

    def _answer(self, message: Message) -> object:
        number = number_of(message, "call")
        result = self._control.answer(value_of(ControlRequest, message.get("request")))
        if isinstance(result, Answer):
            return {"answer": plain(result)}
        if IEventStream.providedBy(result):
            return self._stream(number, result)
        assert isinstance(result, Deferred)
        self._waiting[number] = result
        return result.addBoth(self._answered, number)

    def _answered(self, result: object, number: int) -> object:
        self._waiting.pop(number, None)
        if isinstance(result, Failure):
            return result
        if IEventStream.providedBy(result):
            return self._stream(number, result)
        return {"answer": plain(result)}

    def _stream(self, number: int, stream: Any) -> Message:
        self._streams[number] = stream
        return {"stream": number}

    def _start(self, message: Message) -> None:
        number = number_of(message, "call")
        stream = self._streams.get(number)
        if stream is None:
            raise errors.NotFound

        def write(data: bytes) -> None:
            self._link.tell(messages.EVENT, call=number, data=data.decode("latin-1"))

        def finish() -> None:
            self._streams.pop(number, None)
            self._link.tell(messages.FINISH, call=number)

        stream.start(write, finish)

    def _cancel(self, message: Message) -> None:
        number = number_of(message, "call")
        waiting = self._waiting.pop(number, None)
        if waiting is not None:
            waiting.cancel()
        stream = self._streams.pop(number, None)
        if stream is not None:
            stream.stop()
