"""What an operator sets while the daemon runs, put together behind one seam. Decides nothing; implements `IOperating`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from zope.interface import implementer

from sticky.autoscaling import Autoscaling
from sticky.daemon import Servers
from sticky.ioperating import IOperating, ScalingView


@implementer(IOperating)
class Operating:
    """See `IOperating`."""

    def __init__(self, *, servers: Servers, autoscaling: Autoscaling, bearer: Callable[[], str | None]) -> None:
        self._servers = servers
        self._autoscaling = autoscaling
        self._bearer = bearer

    def bearer(self) -> str | None:
        """See `IOperating`."""
        return self._bearer()

    def scaling(self, server: str) -> ScalingView:
        """See `IOperating`."""
        return self._autoscaling.view(self._servers, server)

    def scale(self, server: str, changes: Mapping[str, object]) -> ScalingView:
        """See `IOperating`."""
        return self._autoscaling.update(self._servers, server, changes)
