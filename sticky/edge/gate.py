"""Which request may pass, and what it is: a control call, a data request of a session, a handshake, or refused. Reads no bytes.

Every request of every client passes `Gate.admit`, in the order of wire.md: Host, control paths, credential, its validity, its
Server, redirect, origin rule; then the one gate of sessions, `IRouting.begin`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from twisted.internet.interfaces import ISSLTransport

from sticky import errors
from sticky.edge.calls import FreshCall, has_session, is_call
from sticky.edge.controls import ControlCall
from sticky.edge.credentials import Credential, Source, find_credential, public_base, redirect_answer, wants_redirect
from sticky.edge.forwarding import host_name, origin_allowed
from sticky.edge.frames import Closing
from sticky.edge.handover import closed_handshake, wants_close_frame
from sticky.edge.parsing import RequestHead
from sticky.edge.plain import PlainHead
from sticky.edge.refusing import preflight_answer, refusal_answer
from sticky.edge.relay import Exchange
from sticky.edge.site import Site
from sticky.edge.straight import STRAIGHT, Straight
from sticky.isticky import Answer, ControlRequest, Visit
from sticky.observe.access import AccessRecord

if TYPE_CHECKING:
    from sticky.core.tokens import Claims
    from sticky.edge.context import EdgeContext
    from sticky.edge.frontend import Frontend

_QUERY, _COOKIE = Source.QUERY, Source.COOKIE
SAFE = frozenset({b"GET", b"HEAD", b"OPTIONS"})  #: methods that a page of another origin may use with the cookie
MAX_HOSTS = 1024  #: spellings of hosts remembered


class Gate:
    """The rules of admission for the whole edge."""

    def __init__(self, context: EdgeContext) -> None:
        self._context = context
        self._hosts: dict[bytes, Site] = {}
        context.sites.watch(self._hosts.clear)
        self._suspects: set[str] = set()  # peers that offered a wrong token

    def admit(self, front: Frontend, head: RequestHead, first: bytes) -> None:
        """Serve a request whose head is complete; `first` is what came of its body. Answers or goes on by itself."""
        context = self._context
        site: Site | None = None
        credential: Credential | None = None
        plain = head.plain if type(head) is PlainHead else None
        try:
            host = head.host if plain is None else plain.host
            site = self._hosts.get(host) or self._site(front, host)
            answer = preflight_answer(head, site) if site.allowed_origins else None
            if answer is None:
                if head.target.startswith(context.names.control) and not self._is_call_of_session(
                    front, head, site, first
                ):
                    return
                if site.sessioned:
                    if plain is None or site.insecure_cookie:
                        credential = find_credential(head, context.names, insecure_cookie=site.insecure_cookie)
                    else:
                        credential = plain.credential
                    if credential is None:
                        raise errors.NoCredential(self._lacking(head))
                    if self._suspects:
                        self._check_suspect(front, head, credential.token)
                    claims: Claims | Visit = context.verifier.verify(credential.token, context.wall())
                    if claims.server != site.name:
                        raise errors.WrongServer
                    if credential.source is _QUERY:
                        answer = self._redirect(front, head, site, credential)
                    elif credential.source is _COOKIE and (head.method not in SAFE or head.websocket):
                        self._check_origin(head, site)
                else:
                    claims = self._visit(front, head, site)
        except errors.Refusal as error:
            if credential is not None and isinstance(error, errors.BadCredential):
                error = self._suspect(front, head) or error
            self._answer_refusal(front, head, site, credential, error)
            return
        if answer is not None:
            self._answer(front, head, site, answer)
            return
        if plain is not None and not plain.length and head.method in STRAIGHT:
            straight = front.straight
            if straight is None:
                straight = front.straight = Straight(front)
            if TYPE_CHECKING:
                assert isinstance(head, PlainHead)  # `plain` says so
            straight.begin(head, site, credential, claims)
            return
        exchange = Exchange(front, head, site, credential, first)
        front.served = exchange
        exchange.begin(claims)

    # --- the rules, in order

    def _site(self, front: Frontend, host: bytes) -> Site:
        name = host_name(host)
        try:
            site = self._context.sites.find(name)
        except errors.UnknownHost:
            if tls_name(front.transport) not in (None, name):
                raise errors.MisdirectedRequest from None
            raise
        if len(self._hosts) >= MAX_HOSTS:
            self._hosts.clear()
        self._hosts[host] = site
        return site

    def _lacking(self, head: RequestHead) -> str:
        """What is said to whoever shows no session token where one is looked for."""
        scheme, _, shown = (head.value(b"authorization") or b"").partition(b" ")
        if scheme.lower() == b"bearer" and shown.lstrip().startswith(b"wk-"):
            return errors.IS_PROXY_TOKEN
        if scheme.lower() == b"bearer" and shown.lstrip().startswith(b"v4.public."):
            field = self._context.names.authorization.decode("ascii").title()
            return f"Authorization is the container's own: send the session token as {field}: Bearer TOKEN."
        return "This request needs a session token: in its header, as a query parameter, a cookie, or a WebSocket's subprotocol."

    def _visit(self, front: Frontend, head: RequestHead, site: Site) -> Visit:
        """A request to a plain Server: let in by a proxy token, if at all by one, and led by its affinity key."""
        shown: Any = None
        if not site.unauthenticated:
            shown = self._context.control.let_in(self._control_request(front, head, site))
        for name in self._context.names.affinity:
            key = head.value(name)
            if key:
                return Visit(site.name, key, shown)
        return Visit(site.name, b"", shown)

    # A forged token costs a signature check; there are only so many of them for those who offer many. Tokens that were
    # verified before need none: they may belong to somebody else behind the same address.

    def _check_suspect(self, front: Frontend, head: RequestHead, token: bytes) -> None:
        context = self._context
        if context.failures is None or front.peer.address not in self._suspects or context.verifier.remembers(token):
            return
        context.failures.check(front.peer.client(head), context.reactor.seconds())

    def _suspect(self, front: Frontend, head: RequestHead) -> errors.Refusal | None:
        """A wrong token came. What it is refused with if there were too many before it."""
        context = self._context
        if context.failures is None:
            return None
        if len(self._suspects) >= MAX_HOSTS:
            self._suspects.clear()
        self._suspects.add(front.peer.address)
        try:
            context.failures.failed(front.peer.client(head), context.reactor.seconds())
        except errors.TooManyFailures as error:
            return error
        return None

    def _redirect(self, front: Frontend, head: RequestHead, site: Site, credential: Credential) -> Answer | None:
        if not wants_redirect(head, credential) or (not head.host and site.url is None):
            return None  # without a Host (HTTP/1.0) there is nothing to make a location of: the token counts as it is
        return redirect_answer(
            head,
            credential.token,
            self._context.names,
            public_base(head, site.url, front.peer.proto(head)),
            third_party_frames=site.third_party_frames,
            insecure_cookie=site.insecure_cookie,
        )

    def _check_origin(self, head: RequestHead, site: Site) -> None:
        if not origin_allowed(head, site.allowed_origins):
            raise errors.BadOrigin

    # --- what is not a data request

    def _is_call_of_session(self, front: Frontend, head: RequestHead, site: Site, first: bytes) -> bool:
        """A function call with a session's token is a data request; every other request below /_<brand>/ is served here."""
        names = self._context.names
        if not is_call(head, site, names):
            call = ControlCall(front, head, site)
            front.served = call
            call.start(self._control_request(front, head, site))
            return False
        if head.method != b"POST":
            raise errors.MethodNotAllowed("POST")
        if has_session(head, site, names):
            return True
        fresh = FreshCall(front, head, site, first, self._control_request(front, head, site))
        front.served = fresh
        fresh.start()
        return False

    def _control_request(self, front: Frontend, head: RequestHead, site: Site) -> ControlRequest:
        names = self._context.names
        credential = None
        try:
            credential = find_credential(head, names, insecure_cookie=site.insecure_cookie)
            token = None if credential is None else credential.token
        except errors.BadCredential:
            token = b""  # present, and valid nowhere
        return ControlRequest(
            server=site.name,
            sessioned=site.sessioned,
            unauthenticated=site.unauthenticated,
            named=site.public_names or not site.unauthenticated,
            method=head.method,
            path=head.path,
            query=head.query,
            headers=head.fields,
            client=front.peer.client(head),
            origin_allowed=origin_allowed(head, site.allowed_origins),
            session_token=token,
            session_from_cookie=credential is not None and credential.source is _COOKIE,
        )

    def _answer(self, front: Frontend, head: RequestHead, site: Site, answer: Answer) -> None:
        sent = front.answer(answer, keep=head.keep_alive)
        self._log(front, head, site, answer.status, sent, "-")

    def _answer_refusal(
        self,
        front: Frontend,
        head: RequestHead,
        site: Site | None,
        credential: Credential | None,
        error: errors.Refusal,
    ) -> None:
        def note(status: int, sent: int) -> None:
            self._log(front, head, site, status, sent, error.code)

        self.refuse(front, head, site, credential, error, keep=head.keep_alive, note=note)

    def refuse(
        self,
        front: Frontend,
        head: RequestHead,
        site: Site | None,
        credential: Credential | None,
        error: errors.Refusal,
        *,
        keep: bool,
        note: Callable[[int, int], None],
    ) -> None:
        """Answer with a refusal and finish. `note` hears the answer's status and size before the finish."""
        ended = isinstance(error, errors.SessionEnded)
        if ended and site is not None and wants_close_frame(head, site.websocket_refusal):
            data = closed_handshake(head, error.code, self._context.names)
            front.transport.write(data)
            note(101, len(data))
            # A browser calls an end clean if the connection stays until its own Close is out (RFC 6455, 7.1.1).
            front.finish_when(Closing().heard)
            return
        answer = refusal_answer(error, head, site, credential, self._context.names)
        front.answer(answer, keep=keep, note=note)

    def _log(self, front: Frontend, head: RequestHead, site: Site | None, status: int, sent: int, reason: str) -> None:
        self._context.access.write(
            AccessRecord(
                client=front.peer.client(head),
                method=head.method,
                target=head.target,
                status=status,
                bytes_out=sent,
                server="-" if site is None else site.name,
                reason=reason,
                block=head.block,
            )
        )


def tls_name(transport: Any) -> str | None:
    """The host name that the client's TLS handshake asked for (SNI), as `host_name` gives it; None: none, or no TLS here."""
    # Any: that it has a handle, the interface does not say.
    secure: Any = transport if ISSLTransport.providedBy(transport) else None
    asked = None if secure is None else secure.getHandle().get_servername()
    return None if asked is None else host_name(asked)
