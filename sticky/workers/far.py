"""The daemon as a proxy sees it: connects, says hello, follows when another daemon takes over, reports every second.

Used by workers and by a daemon that has handed over to the next one. Must not know what is done with what is let in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import ClientFactory
from twisted.logger import Logger
from twisted.python.failure import Failure

from sticky.core.values import SessionId
from sticky.isticky import Address
from sticky.workers import messages
from sticky.workers.control import FarControl
from sticky.workers.frames import Link, LinkLost, Message, unheard
from sticky.workers.routing import FarRouting
from sticky.workers.turns import FarTurns
from sticky.workers.values import plain

TRY_EVERY = 0.1  #: seconds between two attempts to reach a daemon


class FarDaemon:
    """See the module.

    `welcomed` gets the configuration of each daemon that is reached, `lost` is called once when there is none any more;
    `ended_for` says why then, where there is more to say than that it has gone.
    `close` is asked to close WebSockets, `stop` to end; `moved` is told, when another daemon takes over, for how long those who are
    here may stay, and that no others may come. `tally` gives what is reported.
    """

    log = Logger()

    def __init__(
        self,
        reactor: Any,
        name: str,
        *,
        welcomed: Callable[[Any], object],
        lost: Callable[[], None],
        close: Callable[[int, str], Deferred[None]],
        stop: Callable[[], None],
        moved: Callable[[float], None],
        tally: Callable[[], Mapping[str, Any]],
    ) -> None:
        self.turns = FarTurns()
        self.routing = FarRouting(reactor, self.turns)
        self.visits = self.routing.visits
        self.control = FarControl()
        self.ended_for = ""
        self._reactor = reactor
        self._name = name
        self._welcomed = welcomed
        self._lost = lost
        self._close = close
        self._stop = stop
        self._moved = moved
        self._tally = tally
        self._link: Link | None = None
        self._reaching: _Reaching | None = None  # the attempt that counts: what comes of others is dropped
        self._report: IDelayedCall | None = None
        self._again: IDelayedCall | None = None
        self._deadline = 0.0
        self._moved_here = False
        self._welcome_here = False  # this daemon has answered our hello

    # --- reaching it

    def connect(self, path: str, *, moved: bool = False) -> None:
        """Reach the daemon that listens there; the one before, if any, is left. `moved`: clients of that one are served here."""
        self._let_go()
        self._moved_here = moved
        self._welcome_here = False
        self._deadline = self._reactor.seconds() + messages.TRY_FOR
        self._try(path)

    def leave(self) -> None:
        """Be nobody's proxy any more; what is held is given up."""
        self._let_go()
        self.routing.stop()

    def _let_go(self) -> None:
        link, self._link = self._link, None
        self._reaching = None
        self.routing.disconnect()
        self.turns.disconnect()
        self.visits.disconnect()
        self.control.disconnect()
        for call in (self._report, self._again):
            if call is not None and call.active():
                call.cancel()
        self._report = self._again = None
        if link is not None:
            link.lost = unheard
            link.leave()

    def _try(self, path: str) -> None:
        self._again = None
        self._reaching = _Reaching(self, path)
        self._reactor.connectUNIX(path, self._reaching, timeout=messages.TRY_FOR)

    def not_reached(self, attempt: _Reaching, path: str) -> None:
        """An attempt has failed."""
        if attempt is not self._reaching:
            return  # we have been sent elsewhere meanwhile
        if self._reactor.seconds() < self._deadline:
            self._again = self._reactor.callLater(TRY_EVERY, self._try, path)
        else:
            self.ended_for = f"the daemon could not be reached within {messages.TRY_FOR:.0f} s"
            self.log.error("{reason}", reason=self.ended_for)
            self._lost()

    def reached(self, attempt: _Reaching, link: Link) -> None:
        """The connection stands: say hello."""
        if attempt is not self._reaching:
            link.close()  # we have been sent elsewhere meanwhile, and are nobody's proxy twice
            return
        link.serves = {
            **self.routing.calls(),
            **self.visits.calls(),
            **self.control.calls(),
            messages.END: self._end,
            messages.CONFIGURE: self._configure,
            messages.CLOSE: lambda message: self._close(message["code"], message["reason"]).addCallback(_acknowledged),
            messages.MOVE: self._move,
            messages.STOP: lambda message: self._stop(),
        }
        link.lost = lambda: self._gone(link)
        self._link = link
        *more, last = _in_parts(holds=self.routing.held(), turns=self.turns.held(), visits=self.visits.held())
        for part in more:
            link.tell(messages.HELD, **part)
        # A daemon of version 1 would pass over what it was told before the hello, and take it for free.
        versions = [messages.VERSION] if more else list(messages.VERSIONS)
        hello = link.ask(messages.HELLO, versions=versions, name=self._name, moved=self._moved_here, **last)
        # Also where its configuration cannot be read here: nobody may wait for ever for a link that is half made.
        hello.addCallback(self._welcome, link).addErrback(self._turned_away, link)

    def _welcome(self, answer: Message, link: Link) -> None:
        if link is not self._link:
            return
        self._welcomed(answer["config"])
        self._welcome_here = True
        self.routing.connect(link, answer["over"])
        self.turns.connect(link, answer["over"])
        self.visits.connect(link, answer.get("cut", ()))
        self.control.connect(link)
        self._report = self._reactor.callLater(messages.REPORT, self._say)

    def _turned_away(self, failure: Failure, link: Link) -> None:
        if link is not self._link or failure.check(LinkLost) is not None:
            return  # we have been sent elsewhere meanwhile; or it is gone, and `_gone` has said so
        self.ended_for = f"the daemon takes no proxy: {failure.getErrorMessage()}"
        self.log.error("{reason}", reason=self.ended_for)
        link.leave()  # with that line, if the daemon has let us in and it is its configuration that cannot be read here

    def _gone(self, link: Link) -> None:
        if link.fault:
            self.ended_for = f"the daemon has said what it must not: {link.fault}"
        self._lost()

    def _configure(self, message: Message) -> None:
        self._welcomed(message["config"])

    def _end(self, message: Message) -> None:
        session, reason, detail = SessionId(message["session"]), message["reason"], message.get("detail")
        self.turns.ended(session, reason, detail)
        self.routing.ended(session, reason, detail)

    def _move(self, message: Message) -> None:
        self._moved(float(message["within"]))
        # Whom this daemon has not heard it does not count among those that come, but as it was told itself to expect us.
        self.connect(message["socket"], moved=self._welcome_here or self._moved_here)

    # --- what it is told

    def _say(self) -> None:
        self._report = self._reactor.callLater(messages.REPORT, self._say)
        if self._link is not None:
            self._link.tell(messages.REPORTED, counts=self.routing.counts(), **self._tally())

    def doubt(self, address: Address) -> None:
        """A container could not be connected to."""
        if self._link is not None:
            self._link.tell(messages.DOUBT, address=plain(address))

    def say(self, level: str, namespace: str, text: str) -> None:
        """A line for the daemon's log."""
        if self._link is not None:
            self._link.tell(messages.LOG, level=level, namespace=namespace, text=text)


class _Reaching(ClientFactory):
    noisy = False

    def __init__(self, far: FarDaemon, path: str) -> None:
        self._far = far
        self._path = path

    def buildProtocol(self, addr: object) -> Link:
        link = _Reached(self._far._reactor)
        link.far, link.attempt = self._far, self
        return link

    def clientConnectionFailed(self, connector: object, reason: object) -> None:
        self._far.not_reached(self, self._path)


class _Reached(Link):
    far: FarDaemon
    attempt: _Reaching

    def connectionMade(self) -> None:
        self.far.reached(self.attempt, self)


def _in_parts(**held: Sequence[Message]) -> list[dict[str, list[Message]]]:
    """All of it, in so many messages as it takes: one at least."""
    entries = [(name, one) for name, those in held.items() for one in those]
    parts: list[dict[str, list[Message]]] = []
    for start in range(0, max(1, len(entries)), messages.AT_ONCE):
        part: dict[str, list[Message]] = {name: [] for name in held}
        for name, one in entries[start : start + messages.AT_ONCE]:
            part[name].append(one)
        parts.append(part)
    return parts


def _acknowledged(_: object) -> None:
    return None
