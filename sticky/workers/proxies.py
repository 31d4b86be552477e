"""The daemon's side of all proxies: lets them in, gives them what they must know, asks things of all of them at once.

Must not know where they come from: workers are processes of `pool`, an earlier daemon comes by itself.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any

import attrs
from twisted.internet.defer import Deferred, DeferredList, succeed
from twisted.internet.interfaces import IDelayedCall, IListeningPort
from twisted.internet.protocol import Factory
from twisted.logger import InvalidLogLevelError, Logger, LogLevel

from sticky import errors
from sticky.core.values import EndReason
from sticky.isticky import Address, IControl, IRouting
from sticky.observe.access import COUNTED
from sticky.peer import peer
from sticky.workers import messages
from sticky.workers.coming import Coming
from sticky.workers.config import ProxyConfig
from sticky.workers.control import NearControl
from sticky.workers.early import Early
from sticky.workers.fields import address_of, list_of, text_of
from sticky.workers.frames import BadMessage, Link, Message
from sticky.workers.holder import Proxy, send_on
from sticky.workers.processes import Progress, Strangers
from sticky.workers.turns import NearTurns, Resume
from sticky.workers.values import plain
from sticky.workers.visits import NearVisits


class Hearing(Enum):
    """Whether what proxies say is heard here."""

    OPEN = "open"
    RESTING = "resting"  # another daemon may take over: it waits, also the hello of those who come now
    LEFT = "left"  # the other one is in charge


HEARING_STEPS: dict[tuple[Hearing, str], Hearing] = {
    (Hearing.OPEN, "rest"): Hearing.RESTING,
    (Hearing.OPEN, "wake"): Hearing.OPEN,  # something else could not rest, before it was our turn
    (Hearing.OPEN, "move"): Hearing.LEFT,
    (Hearing.RESTING, "wake"): Hearing.OPEN,
    (Hearing.RESTING, "move"): Hearing.LEFT,
}


@attrs.define(eq=False)
class Member:
    """A proxy that has been let in."""

    name: str
    pid: int
    proxy: Proxy
    link: Link
    report: Mapping[str, Any]  #: its last
    heard_at: float  #: when that came
    turns: NearTurns
    visits: NearVisits
    awaited: bool  #: it comes from an earlier daemon, and has not acknowledged yet what it was told here


class Proxies:
    """See the module. `socket` is where they come in, once it is open.

    `resume` is for requests that an earlier daemon gave their turn. `config` gives what they must know, `doubt` hears of addresses
    that a proxy could not connect to, `arrived` and `left` of proxies.
    """

    log = Logger()

    def __init__(
        self,
        reactor: Any,
        routing: IRouting,
        resume: Resume,
        control: IControl,
        config: Callable[[], ProxyConfig],
        doubt: Callable[[Address], None],
    ) -> None:
        self.socket = ""
        self.state = Hearing.OPEN
        self.members: list[Member] = []
        self.arrived: Callable[[Member], None] = _nobody
        self.left: Callable[[Member], None] = _nobody
        self._reactor = reactor
        self._routing = routing
        self._resume = resume
        self._control = control
        self._config = config
        self._doubt = doubt
        self._port: IListeningPort | None = None
        self._watch: IDelayedCall | None = None
        self._entering: set[Link] = set()  # connected, and no member yet
        self.early = Early(reactor)
        self._strangers = Strangers(reactor)
        self._doubted = False  # somebody seemed silent when this was looked at last
        self._coming = Coming(reactor)

    def open(self) -> None:
        """Let proxies in. Every user can read the socket's name in /proc/net/unix: `enter` says who is heard."""
        self.socket = f"\0sticky-{os.getpid()}-{secrets.token_hex(8)}"
        self._port = self._reactor.listenUNIX(self.socket, _Door(self), backlog=128)
        self._watch = self._reactor.callLater(messages.REPORT, self._look)

    async def close(self) -> None:
        """Let nobody in and drop those who are."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        port, self._port = self._port, None
        if port is not None:
            await (port.stopListening() or _done())
        self._coming.all_are_in()
        for link in [*self._entering, *(member.link for member in self.members)]:
            link.close()

    # --- to all of them

    def configure(self) -> Deferred[tuple[str, ...]]:
        """What they must know has changed. Fires when all have it or were cut off, `messages.STALLED` later at most: those of an
        earlier daemon that are on their way, too.

        Gives the names of those that have ended, or were cut off, without having said that they have it: none of them serves
        any more. Whoever comes in from now on is told with its welcome.
        """
        config = plain(self._config())
        told = [
            member.proxy.push(messages.CONFIGURE, config=config).addCallback(_missing, member)
            for member in list(self.members)
            if member.proxy.believed  # one that was cut off is here until its connection has ended
        ]
        complete = self.complete()
        if complete is not None:
            told.append(complete.addCallback(lambda _: None))
        return DeferredList(told).addCallback(lambda found: tuple(name for _, name in found if name))

    def close_websockets(self, code: int = 1001, reason: str = EndReason.SERVER_STOPPED.value) -> Deferred[Any]:
        """Have all open WebSockets closed; fires when they are gone."""
        asked = [member.link.ask(messages.CLOSE, code=code, reason=reason) for member in self.members]
        return DeferredList(asked, consumeErrors=True)

    # --- while another daemon takes over

    def rest(self) -> None:
        """Read nothing that proxies say, and watch nobody: what they ask waits, also of those who come while this lasts."""
        self._become("rest")
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        self._coming.rest()
        for member in self.members:
            member.proxy.rest()
        for link in self._entering:
            link.rest()

    @property
    def moving(self) -> int:
        """How many the next daemon has to expect; while this one rests it does not grow.

        Those that an earlier daemon has sent here, and that have not said hello yet, are among them: they may hold sessions.
        """
        return len(self.members) + max(0, self._coming.count - sum(member.awaited for member in self.members))

    def wake(self) -> None:
        """Go on as before. A no-op where it has not rested."""
        rested = self.state is Hearing.RESTING
        self._become("wake")
        if not rested:
            return
        if self.socket:
            self._watch = self._reactor.callLater(messages.REPORT, self._look)
        self._coming.hear()
        entering = list(self._entering)
        for member in list(self.members):
            member.heard_at = self._reactor.seconds()
            member.proxy.wake()
        for link in entering:
            if link not in self.early:
                link.wake()

    def move(self, path: str, within: float) -> Deferred[Any]:
        """The other daemon is in charge, and listens there. Fires when all proxies have left this one, or are gone.

        Those whose hello has not been heard go, too: they may have clients of an earlier daemon. `within`: seconds that they
        may go on serving those who are there.
        """
        self._become("move")
        self._coming.hear()
        leaving = [member.proxy.move(socket=path, within=within) for member in self.members]
        leaving += [send_on(link, socket=path, within=within) for link in self._entering]
        self._entering.clear()
        if self._port is not None:
            self._port.stopListening()
            self._port = None
        return DeferredList(leaving)

    def _become(self, what: str) -> None:
        self.state = HEARING_STEPS[self.state, what]

    # --- when this one takes over from another

    def let_in(self) -> None:
        """Hear those, too, that were `early`."""
        waiting = self.early.release()
        if self.state is Hearing.OPEN:
            for link in waiting:
                link.wake()

    def expect(self, count: int) -> None:
        """So many proxies of an earlier daemon are on their way; until they are here nobody knows what they hold.

        One that is not here within `messages.TRY_FOR` has ended.
        """
        self._coming.expect(count)

    def complete(self) -> Deferred[None] | None:
        """Fires when all those that are expected are here, and go by what they were told, or have ended. None: there are none."""
        return self._coming.wait()

    def gathered(self, within: float) -> Deferred[None]:
        """The same, or when so many seconds have passed. Never fails."""
        complete = self.complete()
        if complete is None:
            return succeed(None)
        return complete.addTimeout(within, self._reactor).addErrback(lambda _: None)

    def _is_here(self, member: Member) -> None:
        member.awaited = False
        self._coming.one_is_in()

    # --- one of them

    def enter(self, link: Link) -> None:
        """Somebody has connected. Only our own user and root are heard; of anybody else nothing is kept."""
        pid, uid = peer(link.transport)
        if uid not in (0, os.geteuid()):
            self._strangers.refused(uid)
            link.close()
            return
        if self.state is Hearing.LEFT:
            link.close()
            return
        link.lost = partial(self._is_gone, link)
        held: list[Message] = []  # what does not fit into the hello
        link.serves = {messages.HELD: held.append, messages.HELLO: lambda message: self._hello(link, [*held, message])}
        self._entering.add(link)
        if not self.early.keep(link, pid) and self.state is Hearing.RESTING:
            link.rest()

    def _is_gone(self, link: Link) -> None:
        self._entering.discard(link)
        self.early.lose(link)

    def _hello(self, link: Link, parts: Sequence[Message]) -> Message:
        message = parts[-1]
        versions = list_of(message, "versions")
        version = max((one for one in messages.VERSIONS if one in versions), default=None)
        if version is None:
            self.log.error("a proxy was refused that speaks versions {versions} of the protocol", versions=versions)
            spoken = " and ".join(map(str, messages.VERSIONS))
            raise errors.BadRequest(f"This daemon speaks versions {spoken} of the protocol, not {versions}.")
        name = text_of(message, "name")
        near = NearControl(self._control, link)

        def gone(_: Proxy) -> None:
            self.members.remove(member)
            near.stop()
            turns.stop()
            visits.stop()
            self.left(member)

        proxy = Proxy(name, link, self._routing, self._reactor, gone, Progress(peer(link.transport)[0]).made)
        turns = NearTurns(proxy, self._routing, self._resume)
        visits = NearVisits(proxy, self._routing, self._control)
        now = self._reactor.seconds()
        moved = bool(message.get("moved"))
        member = Member(name, peer(link.transport)[0], proxy, link, {}, now, turns, visits, awaited=moved)
        self._entering.discard(link)
        self.members.append(member)
        link.serves = {
            **proxy.calls(),
            **near.calls(),
            **turns.calls(),
            **visits.calls(),
            messages.REPORTED: lambda message: self._reported(member, message),
            messages.DOUBT: lambda message: self._doubt(address_of(message.get("address"))),
            messages.LOG: lambda message: self._said(member, message),
        }
        over, cut = [], []
        for part in parts:
            over += proxy.take_over(list_of(part, "holds"))
            over += turns.take_over(list_of(part, "turns"))
            cut += visits.take_over(part.get("visits", ()))
        some = messages.OVER_AT_ONCE
        self._reactor.callLater(0, self._entered, member, over[some:], cut[some:])
        return {"version": version, "config": plain(self._config()), "over": over[:some], "cut": cut[:some]}

    def _entered(self, member: Member, over: Sequence[Message], cut: Sequence[Message]) -> None:
        """`over` and `cut`: what did not fit into its welcome."""
        self.arrived(member)
        for one in over:
            member.proxy.push(messages.END, **one, detail=None)
        for one in cut:
            member.proxy.push(messages.CUT, **one, detail=None)
        if member.awaited:
            # Said after its welcome, and so acknowledged when it has done what that says.
            here = member.proxy.push(messages.CONFIGURE, config=plain(self._config()))
            here.addCallback(lambda _: self._is_here(member))

    def _reported(self, member: Member, message: Message) -> None:
        member.heard_at = self._reactor.seconds()
        member.report = message
        member.proxy.counted(message["counts"])
        counts = {str(server): int(count) for server, count in message.get("requests", {}).items()}
        if counts:
            self.log.emit(LogLevel.debug, sticky_event=COUNTED, counts=counts)  # without a text: for whoever counts

    def _said(self, member: Member, message: Message) -> None:
        try:
            level = LogLevel.lookupByName(text_of(message, "level"))
        except InvalidLogLevelError:
            raise BadMessage("a level of log that there is not") from None
        self.log.emit(level, "{worker}: {text}", worker=member.name, text=text_of(message, "text"))

    def _look(self) -> None:
        """Cut off whoever has not reported for too long: it is stopped, or in an endless loop."""
        now = self._reactor.seconds()
        silent = [member for member in self.members if now - member.heard_at >= messages.STALLED]
        if silent and not self._doubted:
            # It may have been us who got no processor: what they have said by now is read before this is looked at again.
            self._doubted = True
            self._watch = self._reactor.callLater(0, self._look)
            return
        self._doubted = False
        self._watch = self._reactor.callLater(messages.REPORT, self._look)
        for member in silent:
            self.log.error("proxy {proxy} has not reported and is cut off", proxy=member.name)
            member.proxy.cut_off()


class _Door(Factory):
    noisy = False

    def __init__(self, proxies: Proxies) -> None:
        self._proxies = proxies

    def buildProtocol(self, addr: object) -> Link:
        link = _Entering(self._proxies._reactor)
        link.proxies = self._proxies
        return link


class _Entering(Link):
    proxies: Proxies

    def connectionMade(self) -> None:
        self.proxies.enter(self)


def _missing(_: None, member: Member) -> str | None:
    return None if member.proxy.believed else member.name


async def _done() -> None:
    return None


def _nobody(member: Member) -> None:
    pass
