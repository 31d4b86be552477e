"""Who a client is: a trusted proxy's word counts, nobody else's; and which Origin is a Host's own."""

from __future__ import annotations

from ipaddress import ip_network

from twisted.trial.unittest import TestCase

from sticky.edge.forwarding import Peer, TrustedProxies, host_name, origin_allowed
from sticky.edge.grammar import HeadLimits
from sticky.edge.parsing import RequestHead, parse_request
from sticky.edge.wire import Names, container_head

PROXIES = TrustedProxies((ip_network("10.0.0.0/8"), ip_network("fd00::/8")), unix=True)


def request(fields: bytes = b"", host: bytes = b"a.example") -> RequestHead:
    return parse_request(b"GET / HTTP/1.1\r\nHost: " + host + b"\r\n" + fields + b"\r\n", HeadLimits())


class TrustTests(TestCase):
    def test_who_is_trusted(self) -> None:
        for address, trusted in (
            *(("10.1.2.3", True), ("::ffff:10.1.2.3", True), ("fd00::1", True), ("fd00::1%eth0", True), ("", True)),
            *(("11.0.0.1", False), ("::1", False), ("nonsense", False)),
        ):
            self.assertEqual(PROXIES.trusts(address), trusted, address)
        self.assertFalse(TrustedProxies().trusts(""))
        self.assertFalse(TrustedProxies().trusts("127.0.0.1"))


class FactsTests(TestCase):
    forged = b"X-Forwarded-For: 198.51.100.7\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: pub.example\r\n"

    def test_an_untrusted_peer_is_overwritten(self) -> None:
        peer = Peer("192.0.2.1", False, PROXIES)
        self.assertEqual(
            peer.facts(request(self.forged)),
            b"\r\nX-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: a.example",
        )
        self.assertEqual(peer.client(request(self.forged)), "192.0.2.1")
        self.assertEqual(peer.proto(request(self.forged)), b"http")

    def test_a_trusted_peer_is_believed_and_joins_the_chain(self) -> None:
        peer = Peer("10.0.0.9", False, PROXIES)
        self.assertEqual(
            peer.facts(request(self.forged)),
            b"\r\nX-Forwarded-For: 198.51.100.7, 10.0.0.9\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: pub.example",
        )
        self.assertEqual(
            (peer.client(request(self.forged)), peer.proto(request(self.forged))), ("198.51.100.7", b"https")
        )
        self.assertEqual(
            peer.facts(request()),
            b"\r\nX-Forwarded-For: 10.0.0.9\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: a.example",
        )
        self.assertEqual(peer.client(request()), "10.0.0.9")

    def test_a_trusted_peers_own_other_facts_pass(self) -> None:
        fields = self.forged + b"X-Forwarded-Port: 443\r\nForwarded: for=1\r\n"
        sent = container_head(request(fields), Names(), Peer("10.0.0.9", False, PROXIES))
        self.assertIn(b"\r\nX-Forwarded-Port: 443\r\nForwarded: for=1\r\n", sent)
        self.assertEqual(sent.count(b"X-Forwarded-For"), 1)
        sent = container_head(request(fields), Names(), Peer("192.0.2.1", False, PROXIES))
        self.assertNotIn(b"443", sent)

    def test_nonsense_from_a_trusted_peer_is_replaced(self) -> None:
        peer = Peer("10.0.0.9", True, PROXIES)
        facts = peer.facts(request(b"X-Forwarded-Proto: ws\r\nX-Forwarded-Host: a/b\r\n"))
        self.assertTrue(facts.endswith(b"Proto: https\r\nX-Forwarded-Host: a.example"))

    def test_the_client_is_the_last_address_before_trusted_proxies(self) -> None:
        peer = Peer("10.0.0.9", False, PROXIES)
        for chain, client in (
            (b"203.0.113.5, 198.51.100.7, 10.0.0.1", "198.51.100.7"),
            (b"198.51.100.7:1234", "198.51.100.7"),
            (b"[2001:db8::1]:80", "2001:db8::1"),
            (b"2001:db8::1", "2001:db8::1"),
            (b"198.51.100.7, unknown", "10.0.0.9"),
            (b"10.0.0.1, 10.0.0.2", "10.0.0.1"),
        ):
            self.assertEqual(peer.client(request(b"X-Forwarded-For: " + chain + b"\r\n")), client, chain)

    def test_a_peer_on_a_unix_socket_has_no_address_to_tell(self) -> None:
        facts = Peer("", False, TrustedProxies()).facts(request(self.forged))
        self.assertEqual(facts, b"\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: a.example")
        trusted = Peer("", False, PROXIES)
        self.assertIn(b"X-Forwarded-For: 198.51.100.7\r\n", trusted.facts(request(self.forged)))
        self.assertEqual(trusted.client(request(self.forged)), "198.51.100.7")


class HostTests(TestCase):
    def test_host_names(self) -> None:
        for host, name in (
            (b"A.Example:8080", "a.example"),
            (b"a.example.", "a.example"),
            (b"[2001:DB8::1]:80", "[2001:db8::1]"),
            (b"[::1]", "[::1]"),
            (b"", ""),
        ):
            self.assertEqual(host_name(host), name)

    def test_which_origins_are_allowed(self) -> None:
        allowed = frozenset({"https://other.example"})
        for host, origin, good in (
            (b"a.example", None, True),
            (b"a.example", b"https://a.example", True),
            (b"a.example:443", b"https://A.example", True),
            (b"a.example", b"https://a.example:443", True),
            (b"a.example:8080", b"http://a.example:8080", True),
            (b"a.example:8080", b"http://a.example", False),
            (b"[::1]:80", b"http://[::1]", True),
            (b"a.example", b"https://other.example", True),
            (b"a.example", b"https://other.example:444", False),
            (b"a.example", b"https://evil.example", False),
            (b"a.example", b"https://a.example.evil.example", False),
            (b"a.example", b"null", False),
            (b"a.example", b"", False),
            (b"a.example", b"file://a.example", False),
        ):
            fields = b"" if origin is None else b"Origin: " + origin + b"\r\n"
            self.assertEqual(origin_allowed(request(fields, host), allowed), good, (host, origin))
        twice = request(b"Origin: http://a.example\r\nOrigin: http://a.example\r\n")
        self.assertFalse(origin_allowed(twice, allowed))
        self.assertTrue(origin_allowed(request(b"Origin: null\r\n"), {"null"}))
