"""An `IOperating` that notes what it is asked to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
from twisted.internet.defer import Deferred, succeed
from zope.interface import implementer

from sticky import errors
from sticky.core.values import ServerName
from sticky.ioperating import IOperating, KeyView, ScalingView, TokenView

ALICE = TokenView("wk-alice", "alice", ("game",), 4e9, True, "created")
OWN = TokenView("wk-own", "dev", ("*",), None, False, "state directory")


@implementer(IOperating)
@attrs.define(eq=False)
class FakeOperating:
    """What it was asked is in `asked`."""

    asked: list[object] = attrs.field(factory=list)
    token: str | None = "wk-operator.ws-secret"

    def bearer(self) -> str | None:
        return self.token

    def tokens(self) -> Sequence[TokenView]:
        return [ALICE, OWN]

    def create_token(self, given: Mapping[str, object]) -> tuple[TokenView, str]:
        self.asked.append(("create", dict(given)))
        return ALICE, "wk-alice.ws-secret"

    def revoke_token(self, token_id: str) -> TokenView | None:
        if token_id not in (ALICE.id, OWN.id):
            raise errors.UnknownToken
        self.asked.append(("revoke", token_id))
        return OWN if token_id == OWN.id else None

    def keys(self) -> KeyView:
        return KeyView("k2", {"k1": 4e9})

    def rotate_key(self, *, revoke: bool) -> Deferred[KeyView]:
        self.asked.append(("rotate", revoke))
        return succeed(attrs.evolve(self.keys(), cut_off=("worker-2",)))

    def scaling(self, server: str) -> ScalingView:
        if server != "game":
            raise errors.UnknownServer
        return ScalingView(ServerName(server), {"min_containers": 1, "scaledown_window": 60.0}, ("min_containers",))

    def scale(self, server: str, changes: Mapping[str, object]) -> ScalingView:
        self.asked.append((server, dict(changes)))
        return self.scaling(server)
