"""Which Server a host name reaches, also when Servers are replaced."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from sticky import errors
from sticky.core.values import ServerName
from sticky.edge.site import Site, Sites


def site(name: str, *hosts: str, unauthenticated: bool = False) -> Site:
    return Site(name=ServerName(name), hosts=frozenset(hosts), unauthenticated=unauthenticated)


class SitesTests(SynchronousTestCase):
    def test_replaced_sites_are_found_and_the_old_ones_are_not(self) -> None:
        old = site("a", "a.localhost")
        sites = Sites([old, site("b", "b.localhost")])
        remembered = {"a.localhost": sites.find("a.localhost")}
        sites.watch(remembered.clear)
        new = site("c", "a.localhost", "c.localhost")
        sites.replace([new])
        self.assertEqual(remembered, {})
        self.assertIs(sites.find("a.localhost"), new)
        self.assertRaises(errors.UnknownHost, sites.find, "b.localhost")
        self.assertEqual(old.name, "a", "whoever has it keeps it")

    def test_the_only_site_without_hosts_is_the_only_one_no_longer(self) -> None:
        sites = Sites([site("a")])
        self.assertEqual(sites.find("any.example.org").name, "a")
        sites.replace([site("a", "a.localhost"), site("b", "b.localhost")])
        self.assertRaises(errors.UnknownHost, sites.find, "any.example.org")
