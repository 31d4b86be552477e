"""Proxy tokens that are made while a daemon runs, kept in its state directory as keyed hashes. Files only; admits nobody.

`tokens.json` holds a list, `token-key` the key of the hashes: without it guesses cannot be tested against a stolen list.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import attrs

from sticky import keys
from sticky.core.proxy_tokens import ID_BYTES, SECRET_BYTES, ProxyToken, hash_secret, new_token
from sticky.errors import ConfigError

FILE: Final = "tokens.json"
KEY: Final = "token-key"


class TokenStore:
    """See the module."""

    def __init__(self, state_dir: Path, random: keys.Randomness = os.urandom) -> None:
        """Raises `ConfigError` for files that are damaged, or that others may read."""
        self._state_dir = state_dir
        self._random = random
        self.key = bytes.fromhex(keys.kept_hex(state_dir, KEY, random))  #: of the hashes
        self._tokens = {token.id: token for token in self._read()}

    def all(self) -> list[ProxyToken]:
        """Every one, by id."""
        return sorted(self._tokens.values(), key=lambda token: token.id)

    def create(
        self, owner: str, servers: frozenset[str], expires_at: float | None, admin: bool
    ) -> tuple[ProxyToken, str]:
        """A new one, and its secret, which is kept nowhere. Raises OSError, and then there is none."""
        token_id, secret = new_token(self._random(ID_BYTES), self._random(SECRET_BYTES))
        token = ProxyToken(
            id=token_id,
            secret_hash=hash_secret(secret, self.key),
            owner=owner,
            servers=servers,
            expires_at=expires_at,
            admin=admin,
        )
        self._write([*self._tokens.values(), token])
        self._tokens[token.id] = token
        return token, secret

    def revoke(self, token_id: str) -> bool:
        """Forget one; False if it is not there. Raises OSError, and then it is still there."""
        if token_id not in self._tokens:
            return False
        self._write(token for token in self._tokens.values() if token.id != token_id)
        del self._tokens[token_id]
        return True

    def _read(self) -> list[ProxyToken]:
        path = self._state_dir / FILE
        text = keys.read_secret(self._state_dir, FILE)
        if text is None:
            return []
        try:
            return [ProxyToken(**{**entry, "servers": frozenset(entry["servers"])}) for entry in json.loads(text)]
        except (ValueError, TypeError, KeyError):
            raise ConfigError(
                str(path), "", "these are no proxy tokens; restore it, or remove it (its tokens are refused then)"
            ) from None

    def _write(self, tokens: Iterable[ProxyToken]) -> None:
        entries = [{**attrs.asdict(token), "servers": sorted(token.servers)} for token in tokens]
        keys.replace(self._state_dir, FILE, json.dumps(entries) + "\n")
