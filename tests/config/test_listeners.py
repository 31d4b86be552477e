"""Endpoint strings: what is taken, what is refused, and which paths become absolute."""

from __future__ import annotations

from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st
from twisted.internet.endpoints import serverFromString
from twisted.trial.unittest import SynchronousTestCase

from sticky.config.kinds import Place, Refused
from sticky.config.listeners import endpoint, quoted, reaches_others, tcp_endpoint

PLACE = Place("sticky.toml", Path("/etc/a:b"))


class EndpointTests(SynchronousTestCase):
    def test_what_twisted_takes_is_taken_as_it_is(self) -> None:
        for text in (
            "tcp:8080",
            "tcp:8080:interface=127.0.0.1",
            "tcp:port=0:backlog=100",
            "tcp6:8080:interface=\\:\\:1",
            "haproxy:tcp:8080",
        ):
            self.assertEqual(endpoint(text, PLACE), text)

    def test_where_the_admin_api_may_listen(self) -> None:
        self.assertEqual(tcp_endpoint("tcp:9443:interface=127.0.0.1", PLACE), "tcp:9443:interface=127.0.0.1")
        for text in ("unix:a.sock", "haproxy:tcp:9443", "systemd:domain=INET:index=0", ""):
            self.assertRaises(ValueError, tcp_endpoint, text, PLACE)
        self.assertRaises(Refused, tcp_endpoint, "tcp:port", PLACE)

    def test_ports_for_more_than_this_machine(self) -> None:
        for text in ("tcp:1:interface=127.0.0.1", "tcp6:1:interface=\\:\\:1", "tcp:1:interface=localhost"):
            self.assertFalse(reaches_others(text), text)
        for text in ("tcp:1", "tcp:1:interface=0.0.0.0", "tcp6:1:interface=\\:\\:", "tcp:1:interface=192.0.2.1"):
            self.assertTrue(reaches_others(text), text)

    def test_paths_become_absolute_and_stay_one_field(self) -> None:
        self.assertEqual(endpoint("unix:a.sock:mode=600", PLACE), "unix:/etc/a\\:b/a.sock:mode=600")
        self.assertEqual(endpoint("unix:address=/run/a.sock", PLACE), "unix:address=/run/a.sock")
        self.assertEqual(endpoint("haproxy:unix:a\\:b.sock", PLACE), "haproxy:unix:/etc/a\\:b/a\\:b.sock")

    def test_certificates_are_looked_for_beside_the_file(self) -> None:
        refused = self.assertRaises(Refused, endpoint, "ssl:8443:privateKey=key.pem:certKey=cert.pem", PLACE)
        self.assertIn("cannot read '/etc/a:b/cert.pem': No such file or directory", str(refused.problem))

    def test_a_certificate_that_is_none(self) -> None:
        file = self.mktemp()
        Path(file).write_text("not PEM")
        place = Place("sticky.toml", Path.cwd())
        refused = self.assertRaises(Refused, endpoint, f"ssl:8443:privateKey={file}", place)
        self.assertIn("the certificate or key cannot be used", str(refused.problem))

    def test_other_forms_are_refused(self) -> None:
        for text in ("", ":", ":tcp:80", "8080", "tcp", "tcp:", "tcp:http", "tcp:65536", "tcp:-1", "tcp:80:nope=1"):
            self.assertRaises(Refused, endpoint, text, PLACE)
        for text in ("nope:1", "haproxy:", "haproxy:tcp", "haproxy:tcp:x", "unix", "unix:a:mode=9", "tcp:٣"):
            self.assertRaises(Refused, endpoint, text, PLACE)

    def test_a_socket_path_that_no_kernel_takes(self) -> None:
        longest = "/" + "x" * 106
        self.assertEqual(endpoint(f"unix:{longest}", PLACE), f"unix:{longest}")
        refused = self.assertRaises(Refused, endpoint, f"unix:{longest}x", PLACE)
        self.assertIn("at most 107 bytes", str(refused.problem))

    @given(st.text(st.characters(codec="utf-8", exclude_characters="\0/"), min_size=1, max_size=20))
    @example("a=b:c\\")
    def test_any_socket_path_survives(self, name: str) -> None:
        resolved = endpoint(f"unix:{quoted(f'/run/{name}')}:mode=600", PLACE)
        listening = serverFromString(None, resolved)
        self.assertEqual(listening._address, str(Path(f"/run/{name}")))
