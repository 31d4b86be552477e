"""The seam of the admin API for what an operator sets while the daemon runs: scaling, proxy tokens, keys. No behaviour."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs
from zope.interface import Interface

if TYPE_CHECKING:
    from sticky.core.values import ServerName


@attrs.frozen
class ScalingView:
    """What a Server's autoscaler goes by."""

    server: ServerName
    values: Mapping[str, object]  #: settings by name; windows in seconds
    updated: tuple[str, ...]  #: names of those that an update has set


class IOperating(Interface):
    """What an operator sets while the daemon runs. It outlives the daemon, unless it says otherwise."""

    def bearer() -> str | None:
        """A proxy token for the operator's own control calls; None where no Server wants one. A secret."""

    def scaling(server: str) -> ScalingView:
        """What holds now. Raises `errors.UnknownServer`."""

    def scale(server: str, changes: Mapping[str, object]) -> ScalingView:
        """Other scaling settings, until the next deploy. What is not named stays.

        Raises `errors.UnknownServer`, `errors.BadRequest` for names and values that are not allowed, and
        `errors.StorageFailed`; then nothing has changed.
        """
