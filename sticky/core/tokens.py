"""Session tokens: claims signed as PASETO v4.public (Ed25519), made and checked with PyNaCl.

Pure: seeds and the wall clock come in. The token routes: whoever holds the public key can tell whose session it is and
in which container it lives, without asking anybody. Must not know where a token travelled.

A token is `v4.public.<base64url(payload + signature)>.<base64url(footer)>`, the format of
https://github.com/paseto-standard/paseto-spec (01-Protocol-Versions/Version4.md), with an empty implicit assertion. The
payload is a JSON object with one-letter names, none of which PASETO reserves: s session, n server, d deployment,
c container, i issued at, x expires at (whole Unix seconds). The footer is `{"kid":"<key id>"}`.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from hashlib import blake2b
from typing import Final

import attrs
from nacl.bindings import (
    crypto_sign,
    crypto_sign_BYTES,
    crypto_sign_open,
    crypto_sign_seed_keypair,
    crypto_sign_SEEDBYTES,
)
from nacl.exceptions import BadSignatureError

from sticky.core.values import ContainerId, DeploymentId, EndReason, ServerName, SessionId
from sticky.errors import IS_PROXY_TOKEN, BadCredential, SessionEnded

HEADER: Final = b"v4.public."
MAX_TOKEN: Final = 1024  #: bytes; every token is shorter (wire.md), so that it fits a header, a query and a cookie
EXPIRY_LEEWAY: Final = 300  #: seconds by which clocks may differ; the ledger decides, this is a coarse bound
TURNS_EVERY: Final = 300.0  #: seconds: a token that is not used for twice as long costs another signature check
FORGOTTEN_AFTER: Final = 30 * 86_400  #: seconds after its expiry from which a token is not worth a signature check

_MAX_TIME: Final = 2**53  # what JSON numbers hold exactly everywhere
_PUBLIC_BYTES: Final = 32
_KEY_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,32}")


@attrs.frozen
class Claims:
    """What a session token says."""

    session: SessionId
    server: ServerName
    deployment: DeploymentId
    container: ContainerId
    issued_at: int  #: Unix seconds
    expires_at: int  #: Unix seconds: a coarse bound; the ledger decides


def key_id_of(public: bytes) -> str:
    """A short name for a public key: 12 URL-safe characters of its hash, the same on every machine."""
    return urlsafe_b64encode(blake2b(public, digest_size=9).digest()).decode("ascii")


class SigningKey:
    """A private key under its id. The repr hides it.

    `seed`: 32 secret random bytes. The same seed gives the same key and, as Ed25519 is deterministic, the same tokens:
    one that was lost on its way can be minted again. Raises ValueError for a seed or an id of another form.
    """

    __slots__ = ("_footer", "_secret", "key_id", "public")

    def __init__(self, key_id: str, seed: bytes) -> None:
        if len(seed) != crypto_sign_SEEDBYTES:
            raise ValueError("a seed has 32 bytes")
        self._footer = _footer(key_id)
        self.key_id = key_id
        self.public, self._secret = crypto_sign_seed_keypair(seed)  #: `public`: 32 bytes, what a `Verifier` needs

    def __repr__(self) -> str:
        return f"<SigningKey {self.key_id}>"

    @property
    def seed(self) -> bytes:
        """The secret itself, for the file where it is kept."""
        return self._secret[:crypto_sign_SEEDBYTES]

    def fingerprint(self, text: str) -> str:
        """12 URL-safe characters that stand for this text and tell nothing about it to whoever has not got the key."""
        keyed = blake2b(text.encode(), digest_size=9, key=self._secret[:crypto_sign_SEEDBYTES], person=b"fingerprint")
        return urlsafe_b64encode(keyed.digest()).decode("ascii")

    def sign(self, claims: Claims) -> str:
        """The token that says this, URL- and cookie-safe. Raises ValueError for claims that no `Verifier` takes."""
        payload = {
            "s": claims.session,
            "n": claims.server,
            "d": claims.deployment,
            "c": claims.container,
            "i": claims.issued_at,
            "x": claims.expires_at,
        }
        message = json.dumps(payload, separators=(",", ":")).encode("ascii")
        if _read(message) != claims:
            raise ValueError("claims are not of the form that tokens hold")
        token = seal(message, self._footer, self._secret)
        if len(token) >= MAX_TOKEN:
            raise ValueError(f"the names in a token are too long: it would have {len(token)} bytes")
        return token.decode("ascii")


class Verifier:
    """Checks tokens against public keys by id, and remembers those that it verified.

    The answer from memory is in the path of every request (0.25 microseconds; a signature takes 60). Memory holds at
    most `cache_size` tokens (about 820 bytes each), in two generations: a token that is used survives the turn of a
    generation, and both finding and forgetting take the same time whatever is stored. A generation turns when it is full, and
    by time, so that memory goes by the tokens that are in use and not by all that ever were. What failed is never remembered.
    """

    def __init__(self, keys: Mapping[str, bytes], cache_size: int = 100_000) -> None:
        if cache_size < 2:
            raise ValueError("a cache holds two tokens or more")
        self._generation = cache_size // 2
        self._turned_at = 0.0
        self._recent: dict[bytes, tuple[Claims, int]] = {}
        self._older: dict[bytes, tuple[Claims, int]] = {}
        self._keys: dict[bytes, tuple[bytes, bytes]] = {}  # encoded footer -> footer, public key
        for key_id, public in keys.items():
            self.add_key(key_id, public)

    def __repr__(self) -> str:
        return f"<Verifier of {len(self._keys)} keys>"

    def add_key(self, key_id: str, public: bytes) -> None:
        """Accept this key's tokens from now on. Raises ValueError for an id that stands for another key already."""
        if len(public) != _PUBLIC_BYTES:
            raise ValueError("a public key has 32 bytes")
        footer = _footer(key_id)
        if self._keys.setdefault(_encoded(footer), (footer, public))[1] != public:
            raise ValueError("this key id stands for another key")

    def drop_key(self, key_id: str) -> None:
        """Accept this key's tokens no longer, not even those verified before. A second call does nothing."""
        self._keys.pop(_encoded(_footer(key_id)), None)
        self._recent = {}
        self._older = {}

    def verify(self, token: bytes, wall: float) -> Claims:
        """What the token says; `wall` is the Unix time. Success does not promise that its session lives.

        Raises `errors.BadCredential` (malformed, forged, unknown key, or expired so long ago that nobody remembers)
        and `errors.SessionEnded` for a true token past its hard expiry and the leeway. A retry helps against neither.
        """
        found = self._recent.get(token)
        if found is None:
            found = self._older.get(token) or self._check(token, wall)
            self._remember(token, found, wall)
        if wall > found[1]:
            raise SessionEnded(EndReason.CONTAINER_MAX_AGE.value)
        return found[0]

    def remembers(self, token: bytes) -> bool:
        """Whether `verify` would answer from memory."""
        return token in self._recent or token in self._older

    def _check(self, token: bytes, wall: float) -> tuple[Claims, int]:
        # In order of cost: 19,000 forgeries a second would fill a core with signature checks alone.
        if len(token) >= MAX_TOKEN:
            raise BadCredential
        message, signature, encoded_footer = split(token)
        key = self._keys.get(encoded_footer)
        if key is None:
            raise BadCredential
        claims = _read(message)
        if claims is None or wall > claims.expires_at + FORGOTTEN_AFTER:
            raise BadCredential
        footer, public = key
        if not is_signed(message, signature, footer, public):
            raise BadCredential
        return claims, claims.expires_at + EXPIRY_LEEWAY

    def _remember(self, token: bytes, found: tuple[Claims, int], wall: float) -> None:
        # The clock may have been stepped in either direction.
        if len(self._recent) >= self._generation or abs(wall - self._turned_at) >= TURNS_EVERY:
            self._turned_at = wall
            self._older = self._recent
            self._recent = {}
        self._recent[token] = found


# --- PASETO v4.public ------------------------------------------------------------------------------------------------


def seal(message: bytes, footer: bytes, secret: bytes, implicit: bytes = b"") -> bytes:
    """A v4.public token; `secret` is the 64-byte form of libsodium (seed and public key)."""
    signature = crypto_sign(_pre_authenticated(message, footer, implicit), secret)[:crypto_sign_BYTES]
    token = HEADER + _encoded(message + signature)
    return token + b"." + _encoded(footer) if footer else token


def split(token: bytes) -> tuple[bytes, bytes, bytes]:
    """Message, signature and *encoded* footer of a v4.public token, of which nothing is verified yet.

    Raises `errors.BadCredential` for any form but the one that `seal` writes, so that each token has one spelling.
    """
    if not token.startswith(HEADER):
        raise BadCredential(IS_PROXY_TOKEN if token.startswith(b"wk-") else None)
    body, dot, encoded_footer = token[len(HEADER) :].partition(b".")
    signed = _decoded(body)
    if len(signed) <= crypto_sign_BYTES or (dot and not encoded_footer):
        raise BadCredential
    return signed[:-crypto_sign_BYTES], signed[-crypto_sign_BYTES:], encoded_footer


def is_signed(message: bytes, signature: bytes, footer: bytes, public: bytes, implicit: bytes = b"") -> bool:
    """Whether the holder of the private key signed this message with this footer. About 60 microseconds."""
    try:
        crypto_sign_open(signature + _pre_authenticated(message, footer, implicit), public)
    except BadSignatureError:
        return False
    return True


def _pre_authenticated(message: bytes, footer: bytes, implicit: bytes) -> bytes:
    """PASETO's PAE: the number of pieces and the length of each go with it, so that none can slide into the next."""
    pieces = (HEADER, message, footer, implicit)
    return _length(len(pieces)) + b"".join(_length(len(piece)) + piece for piece in pieces)


def _length(number: int) -> bytes:
    return number.to_bytes(8, "little")  # "the most significant bit MUST be cleared": lengths here are under 2**63


def _encoded(raw: bytes) -> bytes:
    return urlsafe_b64encode(raw).rstrip(b"=")


def _decoded(text: bytes) -> bytes:
    try:
        raw = urlsafe_b64decode(text + b"=" * (-len(text) % 4))
    except ValueError:
        raise BadCredential
    # Python skips foreign characters, and the last character may carry bits that count for nothing.
    if _encoded(raw) != text:
        raise BadCredential
    return raw


# --- the claims ------------------------------------------------------------------------------------------------------


def _footer(key_id: str) -> bytes:
    if _KEY_ID.fullmatch(key_id) is None:
        raise ValueError("a key id has 1 to 32 letters, digits, - or _")
    return json.dumps({"kid": key_id}, separators=(",", ":")).encode("ascii")


def _read(message: bytes) -> Claims | None:
    """The claims of a payload, or None. It runs before the signature is checked: nothing here may trust its input."""
    try:
        payload = json.loads(message.decode("ascii"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(payload, dict):
        return None
    names = [name for name in map(payload.get, "sndc") if isinstance(name, str) and name]
    issued_at, expires_at = payload.get("i"), payload.get("x")
    if len(names) != 4 or type(issued_at) is not int or type(expires_at) is not int:  # a bool is no time
        return None
    if not 0 <= issued_at <= expires_at < _MAX_TIME:
        return None
    session, server, deployment, container = names
    return Claims(
        SessionId(session), ServerName(server), DeploymentId(deployment), ContainerId(container), issued_at, expires_at
    )
