"""The seam of the admin API for what an operator sets while the daemon runs: scaling, proxy tokens, keys. No behaviour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import attrs
from zope.interface import Interface

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

    from sticky.core.values import ServerName


@attrs.frozen
class ScalingView:
    """What a Server's autoscaler goes by."""

    server: ServerName
    values: Mapping[str, object]  #: settings by name; windows in seconds
    updated: tuple[str, ...]  #: names of those that an update has set


@attrs.frozen
class TokenView:
    """A proxy token, without its secret."""

    id: str
    owner: str
    servers: tuple[str, ...]  #: names, or "*"
    expires_at: float | None  #: Unix time
    admin: bool
    source: str  #: "configuration", "created", or "state directory" for the one that nobody configured


@attrs.frozen
class KeyView:
    """The signing keys of session tokens."""

    key: str  #: the id of the one in use
    retired: Mapping[str, float]  #: ids of earlier ones, with the Unix time up to which their tokens are good
    cut_off: tuple[str, ...] = ()  #: after a rotation: names of workers that were silent, and were ended for that


class IOperating(Interface):
    """What an operator sets while the daemon runs. It outlives the daemon, unless it says otherwise."""

    def bearer() -> str | None:
        """A proxy token for the operator's own control calls; None where no Server wants one. A secret."""

    def tokens() -> Sequence[TokenView]:
        """Every proxy token, by id."""

    def create_token(given: Mapping[str, object]) -> tuple[TokenView, str]:
        """A new proxy token and its bearer, which is known to nobody else: `owner`, and perhaps servers, expires_at, admin.

        Raises `errors.BadRequest`, `errors.StorageFailed`; then there is no new one.
        """

    def revoke_token(token_id: str) -> TokenView | None:
        """Refuse a proxy token from now on, in all workers: they have the daemon look at proxy tokens. Its sessions go on. One
        that nobody configured is replaced by the one returned.

        Raises `errors.UnknownToken`, `errors.BadRequest` for one of the configuration, `errors.StorageFailed`.
        """

    def keys() -> KeyView:
        """The signing keys."""

    def rotate_key(*, revoke: bool) -> Deferred[KeyView]:
        """Sign session tokens with a new key. Earlier tokens are good to their end, or with `revoke` no longer: sessions go on
        that nobody can reach any more, until they are idle too long. Raises `errors.StorageFailed`; then nothing has changed.

        Fires when no worker goes by the keys before any more: each has the new ones, or was silent and is ended.
        """

    def scaling(server: str) -> ScalingView:
        """What holds now. Raises `errors.UnknownServer`."""

    def scale(server: str, changes: Mapping[str, object]) -> ScalingView:
        """Other scaling settings, until the next deploy. What is not named stays.

        Raises `errors.UnknownServer`, `errors.BadRequest` for names and values that are not allowed, and
        `errors.StorageFailed`; then nothing has changed.
        """
