"""Proxy tokens: who may start and end sessions. Their text, their hashes, the table of them, and a limit on failures.

Pure: the wall clock, `now` and the hash key come in. Must not know where a token travelled or where the table is kept.

Text: `wk-<id>` names the token and is no secret; `ws-<secret>` proves it. A bearer holds both as `wk-<id>.ws-<secret>`.

A secret is kept as a hash, written `blake2b:<64 hex digits>` (BLAKE2b-256 of the whole `ws-…` text; a shell makes it
with `printf %s "$SECRET" | b2sum -l 256`) or `blake2b-keyed:<64 hex digits>` (the same under a key of the installation,
so that guesses cannot be tested against a stolen table). Neither needs salt or stretching: a generated secret has 192
random bits.
"""

from __future__ import annotations

import hmac
import re
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from hashlib import blake2b
from ipaddress import AddressValueError, IPv6Address
from typing import Final

import attrs

from sticky.core.values import ServerName
from sticky.errors import IS_SESSION_TOKEN, BadCredential, TooManyFailures

ID_BYTES: Final = 9  #: random bytes that `new_token` wants for an id
SECRET_BYTES: Final = 24  #: random bytes that `new_token` wants for a secret
EVERY_SERVER: Final = "*"

_ID: Final = re.compile(r"wk-[A-Za-z0-9_-]{1,64}")
_SECRET: Final = re.compile(r"ws-[A-Za-z0-9_-]{1,200}")
_HASH: Final = re.compile(r"blake2b(-keyed)?:[0-9a-f]{64}")
_PLAIN: Final = "blake2b:"
_KEYED: Final = "blake2b-keyed:"


# --- text and hashes -------------------------------------------------------------------------------------------------


def parse_bearer(text: str) -> tuple[str, str]:
    """Id and secret of `wk-<id>.ws-<secret>`. Raises `errors.BadCredential` for any other text."""
    token_id, dot, secret = text.partition(".")
    if not dot or not is_token_id(token_id) or not is_secret(secret):
        raise BadCredential(IS_SESSION_TOKEN if text.startswith("v4.public.") else None)
    return token_id, secret


def is_token_id(text: str) -> bool:
    """Whether this is the text of an id, `wk-` included."""
    return _ID.fullmatch(text) is not None


def is_secret(text: str) -> bool:
    """Whether this is the text of a secret, `ws-` included."""
    return _SECRET.fullmatch(text) is not None


def is_secret_hash(text: str) -> bool:
    """Whether this is a hash as `hash_secret` writes it."""
    return _HASH.fullmatch(text) is not None


def new_token(id_bytes: bytes, secret_bytes: bytes) -> tuple[str, str]:
    """An id and a secret from fresh random bytes. Raises ValueError for too few."""
    if len(id_bytes) < ID_BYTES or len(secret_bytes) < SECRET_BYTES:
        raise ValueError("too few random bytes for a proxy token")
    return "wk-" + _text(id_bytes), "ws-" + _text(secret_bytes)


def hash_secret(secret: str, key: bytes = b"") -> str:
    """The text under which a secret is kept; keyed if a key (1 to 64 bytes) is given."""
    digest = blake2b(secret.encode("utf-8"), digest_size=32, key=key).hexdigest()
    return (_KEYED if key else _PLAIN) + digest


def _text(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")


# --- the table -------------------------------------------------------------------------------------------------------


def _checked_id(_: object, __: object, value: str) -> None:
    if not is_token_id(value):
        raise ValueError("a proxy token's id is wk- and 1 to 64 letters, digits, - or _")


def _checked_hash(_: object, __: object, value: str) -> None:
    if not is_secret_hash(value):
        raise ValueError("a secret's hash is blake2b: or blake2b-keyed: and 64 hex digits")


@attrs.frozen(kw_only=True)
class ProxyToken:
    """A proxy token as it is kept. Raises ValueError for an id or a hash of another form."""

    id: str = attrs.field(validator=_checked_id)  #: "wk-…"
    secret_hash: str = attrs.field(repr=False, validator=_checked_hash)  #: as `hash_secret` writes it
    owner: str  #: whose sessions it starts; several tokens may share one
    servers: frozenset[str] = frozenset({EVERY_SERVER})  #: Server names, or "*"
    expires_at: float | None = None  #: Unix time from which it is refused; None: never
    admin: bool = False

    def allows(self, server: ServerName) -> bool:
        """Whether this Server is in the token's scope."""
        return EVERY_SERVER in self.servers or server in self.servers


class ProxyTokens:
    """The proxy tokens of an installation by id. `key` is what `blake2b-keyed` hashes were made with."""

    def __init__(self, tokens: Iterable[ProxyToken] = (), key: bytes = b"") -> None:
        self._key = key
        self._nobody = hash_secret("", key)
        self._tokens: dict[str, ProxyToken] = {}
        for token in tokens:
            self.add(token)

    def __repr__(self) -> str:
        return f"<ProxyTokens: {len(self._tokens)}>"

    def __len__(self) -> int:
        return len(self._tokens)

    def add(self, token: ProxyToken) -> None:
        """Accept this token from now on. Raises ValueError for a known id, or a keyed hash where there is no key."""
        if token.id in self._tokens:
            raise ValueError(f"proxy token {token.id} is there twice")
        if token.secret_hash.startswith(_KEYED) and not self._key:
            raise ValueError(f"proxy token {token.id} has a keyed hash and there is no key")
        self._tokens[token.id] = token

    def revoke(self, token_id: str) -> bool:
        """Refuse this token from now on; False if it is not known (any more)."""
        return self._tokens.pop(token_id, None) is not None

    def all(self) -> list[ProxyToken]:
        """Every token, by id."""
        return sorted(self._tokens.values(), key=lambda token: token.id)

    def identify(self, token_id: str, secret: str, wall: float) -> ProxyToken:
        """The token that this id and secret prove; `wall` is the Unix time. Says nothing about its scope.

        Raises `errors.BadCredential`, the same for an unknown id, a wrong secret and an expired token, and after the
        same work, so that neither answer nor time tells which ids exist. A retry does not help.
        """
        token = self._tokens.get(token_id)
        kept = self._nobody if token is None else token.secret_hash
        offered = hash_secret(secret, self._key if kept.startswith(_KEYED) else b"")
        proved = hmac.compare_digest(kept, offered)
        if token is None or not proved or (token.expires_at is not None and wall >= token.expires_at):
            raise BadCredential
        return token


# --- failures --------------------------------------------------------------------------------------------------------


class FailureLimit:
    """How many wrong credentials a client address may offer: `burst` at once, then one every `interval` seconds.

    A token bucket for each address, kept as the time at which it is full again. IPv6 addresses count by their /64,
    which is what one client has. At most `size` addresses are kept, in two generations: one is forgotten when `size` / 2
    others or more have failed after it.

    Many clients may share an address: a right credential passes from an exhausted one, too, a wrong one learns nothing
    there. Callers ask `check` before they look at a credential and tell `failed` when one was wrong. What that costs is
    bounded: credentials from exhausted addresses are looked at `spare` times a second, all of them together; beyond
    that they are refused unseen.
    """

    def __init__(self, burst: int = 20, interval: float = 2.0, size: int = 20_000, spare: int = 1000) -> None:
        if burst < 1 or interval <= 0 or size < 2 or spare < 0:
            raise ValueError("a failure limit has a burst of 1 or more, a positive interval and a size of 2 or more")
        self._spare = spare
        self._spare_since = 0.0  # when the current second began
        self._looks = 0  # in it
        self._tolerance = (burst - 1) * interval
        self._interval = interval
        self._generation = size // 2
        self._recent: dict[str, float] = {}
        self._older: dict[str, float] = {}

    def check(self, address: str, now: float) -> None:
        """Whether to look at a credential from there.

        Raises `errors.TooManyFailures` with `retry_after` seconds if the address has failed too often and the spare looks
        are used up.
        """
        wait = self._wait(_network(address), now)
        if wait > 0:
            if now - self._spare_since >= 1.0:
                self._spare_since = now
                self._looks = 0
            if self._looks >= self._spare:
                raise TooManyFailures(retry_after=wait)
            self._looks += 1

    def failed(self, address: str, now: float) -> None:
        """The address offered a wrong credential. Raises `errors.TooManyFailures` if it had failed too often before."""
        network = _network(address)
        wait = self._wait(network, now)
        full_at = max(self._full_at(network), now)
        if wait <= 0:
            full_at += self._interval
        if network not in self._recent and len(self._recent) >= self._generation:
            self._older = self._recent
            self._recent = {}
        self._recent[network] = full_at
        if wait > 0:
            raise TooManyFailures(retry_after=wait)

    def __len__(self) -> int:
        return len(self._recent) + len(self._older)

    def _wait(self, network: str, now: float) -> float:
        """Seconds until it may fail again."""
        return self._full_at(network) - self._tolerance - now

    def _full_at(self, network: str) -> float:
        found = self._recent.get(network)
        return self._older.get(network, 0.0) if found is None else found


def _network(address: str) -> str:
    if ":" not in address:
        return address
    try:
        parsed = IPv6Address(address)
    except AddressValueError:
        return address
    mapped = parsed.ipv4_mapped
    return str(mapped) if mapped is not None else parsed.packed[:8].hex()
