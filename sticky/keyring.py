"""The signing keys of a state directory over time: the one in use, and those before it whose tokens are still good.

`signing-key` is the one in use. `retired-keys` has the public halves of earlier ones, a line each: id, hex, Unix time up to
which a token of it may be presented. `deployment-key`, made at the first rotation, keeps the names of deployments the same.
Must not know sessions, nor who asks for a rotation.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import attrs

from sticky import keys
from sticky.core.tokens import Claims, SigningKey, Verifier
from sticky.errors import ConfigError

RETIRED: Final = "retired-keys"
DEPLOYMENT_KEY: Final = "deployment-key"


@attrs.frozen
class Retired:
    """An earlier key's public half."""

    public: bytes
    until: float  #: Unix time from which no token of it is good


class KeyRing:
    """See the module. `verifier` knows every key that counts, and is told of changes."""

    def __init__(self, state_dir: Path, wall: Callable[[], float], random: keys.Randomness = os.urandom) -> None:
        """Makes what is missing. Raises `ConfigError` for files that are damaged, or that others may read."""
        self._state_dir = state_dir
        self._wall = wall
        self._random = random
        self._current = keys.signing_key(state_dir, random)
        self.retired = {name: key for name, key in self._read().items() if key.until > wall()}  #: by id
        kept = keys.read_key(state_dir, DEPLOYMENT_KEY)
        self._naming = self._current if kept is None else kept
        self._next: SigningKey | None = None  # announced, and signs nothing yet
        self.verifier = Verifier(self.publics)

    @property
    def key_id(self) -> str:
        """Of the key in use."""
        return self._current.key_id

    @property
    def publics(self) -> Mapping[str, bytes]:
        """The public halves of all keys that count, by id."""
        signing = [self._current] if self._next is None else [self._current, self._next]
        return {
            **{name: key.public for name, key in self.retired.items()},
            **{key.key_id: key.public for key in signing},
        }

    @property
    def hexes(self) -> Mapping[str, str]:
        """The same in hex, as they go to other processes."""
        return {key_id: public.hex() for key_id, public in self.publics.items()}

    def sign(self, claims: Claims) -> str:
        """See `SigningKey.sign`: by the key in use at this moment."""
        return self._current.sign(claims)

    def fingerprint(self, text: str) -> str:
        """See `SigningKey.fingerprint`: the same before and after a rotation, but for one that revokes."""
        return self._naming.fingerprint(text)

    def announce(self) -> None:
        """Make the key that the next rotation will sign with, so that whoever verifies can know it before that. In memory only."""
        if self._next is None:
            self._next = keys.new_signing_key(self._random)
            self.verifier.add_key(self._next.key_id, self._next.public)

    def rotate(self, until: float | None) -> None:
        """Sign with a new key from now on, with the one that was announced. Tokens of the earlier ones are good up to `until`
        (Unix time); None: no longer.

        Raises OSError if the files cannot be written; then the earlier key goes on. After None deployments get other names at
        their next deploy: whoever has the old key must not be able to guess at what they stand for.
        """
        old = self._current
        retired: dict[str, Retired] = {}
        if until is not None:
            keys.write_key(self._state_dir, DEPLOYMENT_KEY, self._naming)
            retired = {name: key for name, key in self.retired.items() if key.until > self._wall()}
            retired[old.key_id] = Retired(old.public, until)
        # Before the key: a rotation that stops half way must not leave a revoked key to be taken at the next start.
        self._write(retired)
        self.announce()
        fresh = self._next
        assert fresh is not None
        keys.write_key(self._state_dir, keys.SIGNING_KEY, fresh)
        self._current, self._next = fresh, None
        if until is None:
            for name in {*self.retired, old.key_id}:
                self.verifier.drop_key(name)
            self._naming = fresh
        self.retired = retired
        if until is None:
            (self._state_dir / DEPLOYMENT_KEY).unlink(missing_ok=True)

    # --- the file of those before

    def _read(self) -> dict[str, Retired]:
        path = self._state_dir / RETIRED
        try:
            lines = path.read_text("ascii").splitlines()
            entries = [line.split() for line in lines]
            return {name: Retired(_public(text), float(until)) for name, text, until in entries}
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ConfigError(str(path), "", f"cannot be read: {error.strerror}") from None
        except ValueError:
            raise ConfigError(
                str(path), "", "these are no public keys; restore it, or remove it (tokens of earlier keys end then)"
            ) from None

    def _write(self, retired: Mapping[str, Retired]) -> None:
        lines = [f"{name} {key.public.hex()} {key.until:.0f}\n" for name, key in retired.items()]
        keys.replace(self._state_dir, RETIRED, "".join(lines))


def _public(text: str) -> bytes:
    public = bytes.fromhex(text)
    if len(public) != 32:
        raise ValueError("a public key has 32 bytes")
    return public
