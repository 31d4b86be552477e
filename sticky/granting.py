"""Clients that wait for a start, and how each is answered: with credentials once the journal has the session, or with why not.

Knows the fleet as far as one start goes, no container's life and no request. Who gets a session, and where, is the core's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from sticky import errors
from sticky.core.effects import GrantStart, RefuseStart
from sticky.core.events import StartAbandoned, StartRequested
from sticky.core.fleet import Fleet
from sticky.core.session import SessionState
from sticky.core.values import ServerName, WaiterId
from sticky.isticky import Credentials, QueuePosition, StartRequest
from sticky.journal.writer import Journal
from sticky.minting import Minting
from sticky.waiting import Waiting


class Granting:
    """The starts of one Server on their way. `step` gives the fleet an event; `follow_up` is called after a plain call to it."""

    log = Logger()

    def __init__(
        self,
        server: ServerName,
        fleet: Fleet,
        minting: Minting,
        journal: Journal,
        clock: IReactorTime,
        step: Callable[[StartRequested | StartAbandoned], None],
        follow_up: Callable[[], None],
    ) -> None:
        self._server = server
        self._fleet = fleet
        self._minting = minting
        self._journal = journal
        self._clock = clock
        self._step = step
        self._follow_up = follow_up
        self._waiting = Waiting()

    # --- what clients ask

    def start(self, request: StartRequest) -> Deferred[Credentials]:
        """See `ISessions`."""
        if not self._journal.works:
            return fail(errors.StorageFailed(retry_after=1.0))
        waiter, answer = self._waiting.join(self._left)
        self._step(
            StartRequested(waiter, request.caller, request.owner, request.idle_timeout, request.key, request.name)
        )
        return answer

    def position(self, waiting: Deferred[Credentials]) -> QueuePosition | None:
        """See `ISessions`."""
        waiter = self._waiting.who(waiting)
        place = None if waiter is None else self._fleet.position(waiter)
        if place is None:
            return None
        now = self._clock.seconds()
        position, start = place
        return QueuePosition(position, now - start.asked_at, start.deadline - now)

    def _left(self, waiter: WaiterId) -> None:
        self._step(StartAbandoned(waiter))

    # --- what the core has decided

    def grant(self, effect: GrantStart) -> None:
        """Answer with credentials, once everything decided so far would survive this process; without a journal that is now."""
        if effect.waiters:
            durable = self._journal.settled()
            durable.addCallback(lambda _: self._hand_out(effect))
            durable.addErrback(partial(self._cannot, effect))

    def refuse(self, effect: RefuseStart) -> None:
        """Answer with the error."""
        for waiter in effect.waiters:
            self._waiting.answer(waiter, Failure(effect.error))

    def _hand_out(self, effect: GrantStart) -> None:
        container = self._fleet.capacity.containers.get(effect.container)
        try:
            session = self._fleet.look(self._clock.seconds(), effect.container, effect.session)
        except errors.SessionEnded:
            session = None
        if container is None or session is None or session.state is not SessionState.ACTIVE:
            # Lost between the grant and its commit: the client asks again, and gets a session that lives.
            raise errors.Unavailable(retry_after=1.0)
        claims = self._minting.claims(self._server, container, effect.session, self._clock.seconds())
        token = self._minting.sign(claims)
        self.log.info(
            "session {session} started on {container} of {server}",
            session=effect.session,
            container=effect.container,
            server=self._server,
        )
        for waiter in effect.waiters:
            self._waiting.answer(
                waiter,
                Credentials(effect.session, token, effect.idle_timeout, float(claims.expires_at), effect.created),
            )

    def _cannot(self, effect: GrantStart, failure: Failure) -> None:
        """The grant cannot be kept: refuse, and end what nobody has a token for."""
        if not failure.check(errors.Refusal):
            self.log.failure("session {session} could not be given to anybody", failure, session=effect.session)
            failure = Failure(errors.Refusal())
        for waiter in effect.waiters:
            self._waiting.answer(waiter, failure)
        if effect.created:
            self._fleet.disown(effect.session)
            try:
                self._fleet.terminate(self._clock.seconds(), effect.container, effect.session, None)
            except errors.UnknownSession:
                pass
            self._follow_up()

    # --- what nobody decided

    def storage_failed(self, failure: Failure) -> None:
        """Nothing can be started just now: nobody is to wait for it until the queue's time is up."""
        for waiter in self._waiting.all():
            self._waiting.answer(waiter, failure)
            self._step(StartAbandoned(waiter))

    def stop(self) -> None:
        """Whoever still waits is refused."""
        self._waiting.answer_all(Failure(errors.ShuttingDown(retry_after=5.0)))
