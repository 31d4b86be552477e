"""What a proxy is told to serve by, put where its edge looks."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from sticky.edge.forwarding import TrustedProxies
from sticky.edge.limits import EdgeLimits, EdgeSettings
from sticky.edge.site import Site, Sites
from sticky.errors import UnknownHost
from sticky.workers.config import ProxyConfig
from sticky.workers.told import Told
from sticky.workers.turns import FarTurns
from sticky.workers.values import plain

K1, K2, K3 = (bytes([number]) * 32 for number in range(1, 4))


class Keys:
    """Notes which there are."""

    def __init__(self, *known: str) -> None:
        self.there = set(known)

    def add_key(self, key_id: str, public: bytes) -> None:
        self.there.add(f"{key_id}={public.hex()[:2]}")

    def drop_key(self, key_id: str) -> None:
        self.there = {one for one in self.there if not one.startswith(f"{key_id}=")}


def config(keys: dict[str, bytes], *hosts: str) -> Any:
    return plain(
        ProxyConfig(
            brand="modal",
            edge=EdgeSettings(limits=EdgeLimits(), trusted_proxies=TrustedProxies()),
            keys={name: public.hex() for name, public in keys.items()},
            sites=tuple(Site(name=host, hosts=frozenset({host})) for host in hosts),  # type: ignore[arg-type]
            serial=frozenset({"slow"}),
            access_log="off",
            access_log_format="text",
        )
    )


class ToldTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.keys, self.sites, self.turns = Keys("k1=01"), Sites([]), FarTurns()
        self.told = Told(self.keys, self.sites, self.turns, {"k1": K1.hex()})

    def test_keys_come_and_go(self) -> None:
        self.told.take(config({"k1": K1, "k2": K2}))
        self.assertEqual(self.keys.there, {"k1=01", "k2=02"})
        self.told.take(config({"k3": K3}))
        self.assertEqual(self.keys.there, {"k3=03"})

    def test_servers_come_and_go(self) -> None:
        self.told.take(config({"k1": K1}, "a.test"))
        self.assertEqual(self.sites.find("a.test").name, "a.test")
        self.assertEqual(self.turns.servers, {"slow"})
        self.told.take(config({"k1": K1}, "b.test", "c.test"))
        self.assertRaises(UnknownHost, self.sites.find, "a.test")

    def test_what_cannot_be_read_changes_nothing(self) -> None:
        self.told.take(config({"k1": K1}, "a.test"))
        for wrong in ({**config({"k2": K2}), "more": 1}, {**config({}), "keys": {"k2": "no hex"}}, None):
            self.assertRaises((ValueError, TypeError), self.told.take, wrong)
            self.assertEqual((self.keys.there, self.sites.find("a.test").name), ({"k1=01"}, "a.test"))
