"""An `IOperating` that notes what it is asked to do."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
from zope.interface import implementer

from sticky import errors
from sticky.core.values import ServerName
from sticky.ioperating import IOperating, ScalingView


@implementer(IOperating)
@attrs.define(eq=False)
class FakeOperating:
    """What it was asked is in `asked`."""

    asked: list[object] = attrs.field(factory=list)
    token: str | None = "wk-operator.ws-secret"

    def bearer(self) -> str | None:
        return self.token

    def scaling(self, server: str) -> ScalingView:
        if server != "game":
            raise errors.UnknownServer
        return ScalingView(ServerName(server), {"min_containers": 1, "scaledown_window": 60.0}, ("min_containers",))

    def scale(self, server: str, changes: Mapping[str, object]) -> ScalingView:
        self.asked.append((server, dict(changes)))
        return self.scaling(server)
