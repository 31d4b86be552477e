"""What an operator sets while the daemon runs, put together behind one seam: reads what is asked, and says who carries it out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs
from twisted.internet.defer import Deferred, DeferredLock, succeed
from twisted.logger import Logger
from zope.interface import implementer

from sticky import errors, keys
from sticky.autoscaling import Autoscaling
from sticky.config.kinds import Place, Refused, show
from sticky.config.settings import Settings
from sticky.config.table import PROXY_TOKEN, REQUIRED
from sticky.core.proxy_tokens import ProxyToken, ProxyTokens
from sticky.daemon import Servers
from sticky.ioperating import IOperating, KeyView, ScalingView, TokenView
from sticky.keyring import KeyRing
from sticky.token_store import TokenStore

#: Of `[[proxy_tokens]]`, what may be said of a new one.
_GIVEN = {
    setting.name: setting for setting in PROXY_TOKEN if setting.name in ("owner", "servers", "expires_at", "admin")
}
LEEWAY: Final = 300.0  #: seconds that a token is taken beyond its expiry


@implementer(IOperating)
class Operating:
    """See `IOperating`. What may be replaced by a deploy is asked for each time: `settings`, `admitted`."""

    log = Logger()

    def __init__(
        self,
        *,
        servers: Servers,
        autoscaling: Autoscaling,
        store: TokenStore,
        ring: KeyRing,
        settings: Callable[[], Settings],
        own_token: Callable[[], keys.KeptToken | None],
        admitted: Callable[[], ProxyTokens],
        wall: Callable[[], float],
        now: Callable[[], float],
        keys_changed: Callable[[], Deferred[tuple[str, ...]]] = lambda: succeed(()),
        may_change: Callable[[], None] = lambda: None,
    ) -> None:
        """`own_token`: the one that nobody configured, made if it is missing. `keys_changed` tells the workers: fires when each has
        the keys that are good now, with the names of those that were cut off instead. `may_change` raises a Refusal while
        nothing may be changed that the next daemon has read already.
        """
        self._servers = servers
        self._autoscaling = autoscaling
        self._store = store
        self._ring = ring
        self._settings = settings
        self._own_token = own_token
        self._admitted = admitted
        self._wall = wall
        self._now = now
        self._keys_changed = keys_changed
        self._may_change = may_change
        self._turn = DeferredLock()  # of rotations

    def bearer(self) -> str | None:
        """See `IOperating`."""
        own = self._own_token()
        return None if own is None else own.bearer

    # --- scaling

    def scaling(self, server: str) -> ScalingView:
        """See `IOperating`."""
        return self._autoscaling.view(self._servers, server)

    def scale(self, server: str, changes: Mapping[str, object]) -> ScalingView:
        """See `IOperating`."""
        self._may_change()
        return self._autoscaling.update(self._servers, server, changes)

    # --- proxy tokens

    def tokens(self) -> Sequence[TokenView]:
        """See `IOperating`."""
        return [self._view(token) for token in self._admitted().all()]

    def create_token(self, given: Mapping[str, object]) -> tuple[TokenView, str]:
        """See `IOperating`."""
        read = _read(given)
        if read["expires_at"] is not None and read["expires_at"] <= self._wall():
            raise errors.BadRequest("expires_at is over already.")
        self._may_change()
        with _kept("The new proxy token"):
            token, secret = self._store.create(
                read["owner"], frozenset(read["servers"]), read["expires_at"], read["admin"]
            )
        self._admitted().add(token)
        self.log.info("proxy token {token} of {owner} was created", token=token.id, owner=token.owner)
        return self._view(token), f"{token.id}.{secret}"

    def revoke_token(self, token_id: str) -> TokenView | None:
        """See `IOperating`."""
        token = next((token for token in self._admitted().all() if token.id == token_id), None)
        if token is None:
            raise errors.UnknownToken
        source = self._view(token).source
        if source == "configuration":
            raise errors.BadRequest(f"{token_id} is configured: remove it from the file, then deploy that.")
        self._may_change()
        with _kept("The revocation"):
            if source == "created":
                self._store.revoke(token_id)
            else:
                self._own_path().unlink(missing_ok=True)
        self._admitted().revoke(token_id)
        self.log.info("proxy token {token} of {owner} was revoked", token=token.id, owner=token.owner)
        if source == "created":
            return None
        fresh = self._own_token()
        assert fresh is not None  # somebody needs one: there was one
        self._admitted().add(fresh.proxy_token())
        return self._view(fresh.proxy_token())

    def _own_path(self) -> Path:
        own = self._own_token()
        assert own is not None
        return own.path

    def _view(self, token: ProxyToken) -> TokenView:
        source = "state directory"
        if any(token.id == one.id for one in self._settings().daemon.proxy_tokens):
            source = "configuration"
        elif any(token.id == one.id for one in self._store.all()):
            source = "created"
        return TokenView(token.id, token.owner, tuple(sorted(token.servers)), token.expires_at, token.admin, source)

    # --- signing keys

    def keys(self) -> KeyView:
        """See `IOperating`."""
        return KeyView(self._ring.key_id, {name: key.until for name, key in self._ring.retired.items()})

    def rotate_key(self, *, revoke: bool) -> Deferred[KeyView]:
        """See `IOperating`. A token is good as long as its container may live: the oldest limit counts from now."""
        rotated: Deferred[KeyView] = self._turn.run(lambda: Deferred.fromCoroutine(self._rotate(revoke)))
        return rotated

    async def _rotate(self, revoke: bool) -> KeyView:
        self._may_change()
        self._ring.announce()
        # A token that one worker's client was given may be used at another one in the next moment.
        cut_off = await self._keys_changed()
        self._may_change()
        boxes = [box for server in self._servers.all() for box in server.fleet.capacity.containers.values()]
        left = max((box.dies_at - self._now() for box in boxes), default=0.0)
        with _kept("The new key"):
            self._ring.rotate(None if revoke else self._wall() + max(0.0, left) + LEEWAY)
        if revoke:
            cut_off += await self._keys_changed()
        self.log.info(
            "session tokens are signed by the new key {key}; earlier tokens are {fate}",
            key=self._ring.key_id,
            fate="refused" if revoke else "good to their end",
        )
        return attrs.evolve(self.keys(), cut_off=cut_off)


@contextmanager
def _kept(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise errors.StorageFailed(f"{what} cannot be kept: {error.strerror}.", retry_after=1.0) from None


def _read(given: Mapping[str, object]) -> dict[str, Any]:
    """What is said of a new token, with defaults. Raises `errors.BadRequest`."""
    unknown = given.keys() - _GIVEN.keys()
    if unknown:
        raise errors.BadRequest(f"{show(min(unknown))} is not known; there are: {', '.join(sorted(_GIVEN))}.")
    read = {}
    for name, setting in _GIVEN.items():
        value = given.get(name)
        if value is None:
            if setting.default is REQUIRED:
                raise errors.BadRequest(f"{name} is missing; allowed: {setting.kind.allowed}.")
            read[name] = setting.default
            continue
        try:
            read[name] = setting.kind.read(value, Place("request", Path()))
        except Refused as refused:
            problem = refused.problem or f"{show(value)} is not allowed; allowed: {setting.kind.allowed}"
            raise errors.BadRequest(f"{name}: {problem}.") from None
    return read
