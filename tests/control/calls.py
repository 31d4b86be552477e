"""What the tests of the control calls share: a control room with a fake ISessions behind it, and requests to it."""

from __future__ import annotations

import json
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from sticky.control.calls import ControlCalls
from sticky.control.queue_events import QueueEvents
from sticky.core.proxy_tokens import FailureLimit, ProxyToken, ProxyTokens, hash_secret
from sticky.core.tokens import Claims, SigningKey, Verifier
from sticky.core.values import ContainerId, DeploymentId, ServerName, SessionId
from sticky.edge.wire import Names
from sticky.isticky import Answer, ControlRequest
from tests.fakes.sessions import FakeSessions

SECRET = "ws-0123456789abcdef0123456789abcdef"
BEARER = (b"Authorization", b"Bearer wk-dev." + SECRET.encode())
GAME = ServerName("game")
WALL = 1_800_000_000.0
KEY = SigningKey("k1", bytes(range(32)))


def token(session: str = "sd-1", server: str = "game", expires_in: int = 3600, key: SigningKey = KEY) -> bytes:
    claims = Claims(
        SessionId(session),
        ServerName(server),
        DeploymentId("dp-1"),
        ContainerId("ct-1"),
        int(WALL) - 10_000,
        int(WALL) + expires_in,
    )
    return key.sign(claims).encode()


class Room:
    """A control room whose clock, wall clock and sessions a test holds."""

    def __init__(self, brand: str = "modal") -> None:
        self.sessions = FakeSessions()
        self.clock = Clock()
        self.clock.advance(1000)
        self.wall = WALL
        self.names = Names(brand)
        self.failures = FailureLimit(burst=3, interval=10.0, spare=0)
        self.proxy_tokens = ProxyTokens(
            [
                ProxyToken(id="wk-dev", secret_hash=hash_secret(SECRET), owner="dev"),
                ProxyToken(id="wk-chat", secret_hash=hash_secret(SECRET), owner="dev", servers=frozenset({"chat"})),
                ProxyToken(id="wk-old", secret_hash=hash_secret(SECRET), owner="dev", expires_at=WALL - 1),
            ]
        )
        self.control = ControlCalls(
            sessions=self.sessions,
            proxy_tokens=self.proxy_tokens,
            verifier=Verifier({KEY.key_id: KEY.public}),
            names=self.names,
            clock=self.clock,
            wall=lambda: self.wall,
            failures=self.failures,
        )

    def ask(self, request: ControlRequest) -> object:
        return self.control.answer(request)

    def answer(self, request: ControlRequest) -> Answer:
        """The answer to a call that is answered at once."""
        answer = self.control.answer(request)
        if isinstance(answer, Deferred):
            answers: list[object] = []
            answer.addCallback(answers.append)
            (answer,) = answers  # whoever expects one that takes time asks with `ask`
        assert isinstance(answer, Answer), answer
        return answer

    def pending(self, request: ControlRequest) -> Deferred[Answer]:
        answer = self.control.answer(request)
        assert isinstance(answer, Deferred), answer
        return answer

    def events(self, request: ControlRequest) -> QueueEvents:
        answer = self.control.answer(request)
        assert isinstance(answer, QueueEvents), answer
        return answer


def call(method: bytes, name: bytes, *headers: tuple[bytes, bytes], **more: Any) -> ControlRequest:
    """A request for `/_modal/<name>`, without credentials of its own."""
    request = ControlRequest(
        server=GAME,
        sessioned=True,
        unauthenticated=False,
        method=method,
        path=b"/_modal/" + name,
        query=b"",
        headers=headers,
        client="192.0.2.1",
        origin_allowed=True,
    )
    return attrs.evolve(request, **more)


def start(*headers: tuple[bytes, bytes], **more: Any) -> ControlRequest:
    """A start with a good proxy token."""
    return call(b"POST", b"sessions/start", BEARER, *headers, **more)


def anonymous_start(*headers: tuple[bytes, bytes], **more: Any) -> ControlRequest:
    """A start on an unauthenticated Server."""
    return call(b"POST", b"sessions/start", *headers, unauthenticated=True, **more)


def terminate(session_token: bytes, *headers: tuple[bytes, bytes], **more: Any) -> ControlRequest:
    return call(
        b"POST", b"sessions/terminate", BEARER, (b"X-Modal-Server-Session-Token", session_token), *headers, **more
    )


def body(answer: Answer) -> Any:
    assert (b"content-type", b"application/json") in answer.headers
    return json.loads(answer.body)
