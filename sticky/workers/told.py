"""What a proxy has been told to serve by, put where the edge looks: keys, Servers, whose requests take turns. Asks nobody."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from sticky.edge.site import Sites
from sticky.workers.config import ProxyConfig
from sticky.workers.turns import FarTurns
from sticky.workers.values import made


class Keys(Protocol):
    """Whoever verifies tokens (`core.tokens.Verifier`)."""

    def add_key(self, key_id: str, public: bytes) -> None:
        """Its tokens are good."""

    def drop_key(self, key_id: str) -> None:
        """They are not any more."""


class Told:
    """See the module. `known`: public keys by id, in hex, that `keys` has from the beginning."""

    def __init__(self, keys: Keys, sites: Sites, turns: FarTurns, known: Mapping[str, str]) -> None:
        self._keys = keys
        self._sites = sites
        self._turns = turns
        self._known = known

    def take(self, config: Any) -> ProxyConfig:
        """This holds from now on. Raises ValueError, TypeError or KeyError for what cannot be read; nothing has changed then."""
        said = made(ProxyConfig, config)
        fresh = {key_id: bytes.fromhex(public) for key_id, public in said.keys.items() if key_id not in self._known}
        for key_id in self._known.keys() - said.keys.keys():
            self._keys.drop_key(key_id)
        for key_id, public in fresh.items():
            self._keys.add_key(key_id, public)
        self._known = said.keys
        self._sites.replace(said.sites)
        self._turns.servers = said.serial
        return said
