"""Messages between a proxy and its daemon: JSON objects with their length in front, questions and their answers. No meaning.

docs/protocol.md is the reference. Must not know sessions; what a question asks is found in the table that a link is given.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from enum import Enum
from struct import Struct
from typing import Any, Final

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.protocol import Protocol
from twisted.logger import Logger
from twisted.python.failure import Failure

from sticky import errors
from sticky.workers.values import refusal_of, refused

LONGEST: Final = 16 * 1024 * 1024  #: bytes of a message
LEAVES_WITHIN: Final = 1.0  #: seconds that the last messages of a link have to go out
_LENGTH = Struct(">I")

Message = dict[str, Any]
#: What one message asks or tells is done by this. Gives a Message, None, or a Deferred of either; raises an `errors.Refusal`, or
#: `BadMessage` for what is the other side's fault. Whatever else it raises is ours.
Serve = Callable[[Message], Any]


class LinkLost(Exception):
    """The other side is gone, or was cut off: there will be no answer."""


class BadMessage(Exception):
    """The other side does not speak this protocol, or breaks its rules. The link is closed for it."""


class TooLong(Exception):
    """A message of more than `LONGEST` bytes: our own misuse. Nothing of it has gone out."""


class LinkState(Enum):
    """Whether messages pass."""

    OPEN = "open"
    CLOSED = "closed"  # lost, left or cut off


class Link(Protocol):
    """One end of a connection between a proxy and a daemon. Both ends may ask and tell; messages keep their order.

    `serves` has what the other side may ask or tell, by name. `lost` is called once when the link is over.
    """

    log = Logger()

    def __init__(self, clock: IReactorTime) -> None:
        self.serves: Mapping[str, Serve] = {}
        self.lost: Callable[[], None] = unheard
        self.state = LinkState.OPEN
        self.deaf = False  #: what comes is not read any more
        self.fault = ""  #: of the other side, for which this one has closed it
        self.rests = False  #: what comes waits
        self.heard_at = clock.seconds()  #: when anything came last
        self._clock = clock
        self._buffer = bytearray()
        self._number = 0
        self._asked: dict[int, Deferred[Message]] = {}
        self._patience: IDelayedCall | None = None

    # --- out

    def ask(self, what: str, **fields: Any) -> Deferred[Message]:
        """Ask; the answer comes later. Fails with an `errors.Refusal`, with `LinkLost`, or with `TooLong`.

        To cancel it drops the answer; the other side is not told.
        """
        if self.state is LinkState.CLOSED:
            answer: Deferred[Message] = Deferred()
            answer.errback(LinkLost())
            return answer
        self._number += 1
        number = self._number
        answer = Deferred(lambda _: self._forget(number))
        self._asked[number] = answer
        try:
            self._send({"do": what, "id": number, **fields})
        except TooLong:
            self._forget(number)
            answer.errback()
        return answer

    def tell(self, what: str, **fields: Any) -> None:
        """Say something that has no answer. Lost without a word where the link is over. Raises `TooLong`."""
        if self.state is LinkState.OPEN:
            self._send({"do": what, **fields})

    def close(self) -> None:
        """Cut it, unsent messages included. A no-op on one that is over."""
        if self.transport is not None and self.state is LinkState.OPEN:
            self.transport.abortConnection()  # type: ignore[attr-defined]

    def leave(self) -> None:
        """Close it when everything is sent, or cut it after `LEAVES_WITHIN`."""
        if self.transport is not None and self.state is LinkState.OPEN:
            if self._patience is None:
                self._patience = self._clock.callLater(LEAVES_WITHIN, self.close)
            self.transport.loseConnection()

    def _send(self, message: Message) -> None:
        data = json.dumps(message, separators=(",", ":")).encode("ascii")
        if len(data) > LONGEST:
            raise TooLong(f"a message of {len(data)} bytes: {message.get('do', 'an answer')}")
        assert self.transport is not None
        self.transport.write(_LENGTH.pack(len(data)) + data)

    # --- for a while

    def rest(self) -> None:
        """Take nothing in: what comes waits.

        To stop reading is not enough. In the very turn in which that is asked for, a reactor may still read what it knows to be
        there (Twisted's does, where something waits to be written as well).
        """
        self.rests = True
        self.transport.pauseProducing()  # type: ignore[union-attr]

    def wake(self) -> None:
        """Go on, with what has come meanwhile."""
        self.rests = False
        self.transport.resumeProducing()  # type: ignore[union-attr]
        self.dataReceived(b"")

    def _forget(self, number: int) -> None:
        self._asked.pop(number, None)

    # --- in

    def dataReceived(self, data: bytes) -> None:
        self.heard_at = self._clock.seconds()
        if self.deaf:
            return
        self._buffer += data
        try:
            while self.state is LinkState.OPEN and not self.rests and (message := self._next()) is not None:
                self._take(message)
        except BadMessage as problem:
            self.fault = str(problem)
            self.log.error("a link between processes is closed: {problem}", problem=self.fault)
            self.deaf = True
            self.leave()  # a worker's log goes over this very link: to cut it would lose the line

    def _next(self) -> Message | None:
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if length > LONGEST:
            raise BadMessage(f"a message of {length} bytes")
        end = _LENGTH.size + length
        if len(self._buffer) < end:
            return None
        data = bytes(self._buffer[_LENGTH.size : end])
        del self._buffer[:end]
        try:
            message = json.loads(data)
        except (ValueError, RecursionError):
            raise BadMessage("a message that is not JSON") from None
        if not isinstance(message, dict):
            raise BadMessage("a message that is no object")
        return message

    def _take(self, message: Message) -> None:
        number = message.get("re")
        if number is not None:
            self._answered(number, message)
            return
        what = message.get("do")
        serve = self.serves.get(what) if isinstance(what, str) else None
        if serve is None:
            if "id" in message:
                self._reply(message["id"], Failure(errors.NotFound(f"There is no {what!r} in this version.")))
            return  # a later version tells more
        number = message.get("id")
        try:
            result = serve(message)
        except errors.Refusal as refusal:
            if number is None:
                raise BadMessage(f"{what}: {refusal}") from None
            self._reply(number, Failure(refusal))
            return
        except BadMessage:
            raise
        except Exception as error:
            if number is None:
                self.log.failure("what another process told could not be taken in")
                raise BadMessage(f"{what}: {error!r}") from error
            # Our own fault, with one question: others that are served over there are not to suffer from it.
            result = Failure()
        if number is None:
            return
        if isinstance(result, Deferred):
            result.addBoth(lambda result: self._reply(number, result))
        else:
            self._reply(number, result)

    def _answered(self, number: object, message: Message) -> None:
        if not isinstance(number, int) or number not in self._asked:
            return  # it was cancelled
        refusal = None
        if "refused" in message:
            try:
                refusal = refusal_of(message["refused"])
            except (KeyError, TypeError, ValueError):
                raise BadMessage("a refusal that cannot be read") from None
        answer = self._asked.pop(number)
        if refusal is not None:
            answer.errback(refusal)
        else:
            answer.callback(message)

    def _reply(self, number: int, result: Message | Failure | None) -> None:
        if self.state is not LinkState.OPEN:
            return
        if not isinstance(result, Failure):
            try:
                self._send({"re": number, **(result or {})})
                return
            except TooLong:
                result = Failure()
        refusal = result.value
        if not isinstance(refusal, errors.Refusal):
            if result.check(CancelledError) is None:
                self.log.failure("a question from another process could not be answered", result)
            refusal = errors.Unavailable()
        self._send({"re": number, "refused": refused(refusal)})

    def connectionLost(self, reason: Failure | None = None) -> None:
        self.state = LinkState.CLOSED
        if self._patience is not None and self._patience.active():
            self._patience.cancel()
        asked, self._asked = self._asked, {}
        lost, self.lost = self.lost, unheard
        lost()
        for answer in asked.values():
            answer.errback(LinkLost())


def unheard() -> None:
    """For `Link.lost`, where nobody minds its end."""
