"""Listening sockets for several processes: which endpoint strings can have them, where they are, who is there already."""

from __future__ import annotations

import socket

from twisted.trial.unittest import SynchronousTestCase

from sticky import sockets
from sticky.sockets import Place


class PlaceTests(SynchronousTestCase):
    def test_what_can_be_shared(self) -> None:
        for endpoint in (
            "tcp:80",
            "tcp:80:interface=\\:\\:1",
            "unix:/a",
            "haproxy:tcp:80",
            "haproxy:unix:/a",
            "ssl:443",
        ):
            self.assertTrue(sockets.shareable(endpoint), endpoint)
        for endpoint in ("systemd:domain=INET:index=0", "stdio:", "haproxy:systemd:domain=INET:index=0", "txtorcon:80"):
            self.assertFalse(sockets.shareable(endpoint), endpoint)

    def test_where_an_endpoint_string_listens(self) -> None:
        for endpoint, place in {
            "tcp:80": Place(socket.AF_INET, "", 80, "", 50),
            "tcp:80:interface=127.0.0.1:backlog=7": Place(socket.AF_INET, "127.0.0.1", 80, "", 7),
            "tcp:80:interface=\\:\\:1": Place(socket.AF_INET6, "::1", 80, "", 50),
            "haproxy:tcp:80": Place(socket.AF_INET, "", 80, "", 50),
            "unix:/a/b": Place(socket.AF_UNIX, "", 0, "/a/b", 50),
        }.items():
            self.assertEqual(sockets.place_of(endpoint), place)

    def opened(self, place: Place, copies: int) -> list[socket.socket]:
        found = sockets.open_tcp(place, copies)
        for one in found:
            self.addCleanup(one.close)
        return found

    def test_copies_are_on_one_port_and_can_be_found_there(self) -> None:
        first, *others = self.opened(Place(socket.AF_INET, "127.0.0.1", 0, "", 5), 3)
        port = first.getsockname()[1]
        self.assertEqual({one.getsockname()[1] for one in others}, {port})
        there = Place(socket.AF_INET, "127.0.0.1", port, "", 5)
        at, elsewhere = f"tcp:{port}:interface=127.0.0.1", "tcp:1:interface=127.0.0.1"
        stranger = socket.socket()
        found = sockets.for_endpoints([elsewhere, "systemd:domain=INET:index=0", at], [first, stranger, *others])
        self.assertEqual(found, {at: [first, *others]})
        self.assertEqual(stranger.fileno(), -1, "what is not asked for is closed")
        more = sockets.more_tcp(there, first, 2)
        self.assertEqual([one.getsockname()[1] for one in more], [port, port])
        # Nobody may be sent to a socket that nobody accepts from, and whose end would reset them.
        self.assertEqual([self.listens(one) for one in more], [0, 0])
        for one in more:
            sockets.serve(there, one)
        self.assertEqual([self.listens(one) for one in more], [1, 1])
        for one in more:
            one.close()

    def listens(self, one: socket.socket) -> int:
        return one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)

    def test_somebody_elses_port_is_not_shared_even_if_it_could_be(self) -> None:
        (taken,) = self.opened(Place(socket.AF_INET, "127.0.0.1", 0, "", 5), 1)
        port = taken.getsockname()[1]
        self.assertTrue(taken.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT))
        with self.assertRaises(OSError):
            self.opened(Place(socket.AF_INET, "127.0.0.1", port, "", 5), 1)

    def test_a_socket_that_was_opened_to_be_alone_stays_alone(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as alone:
            self.assertEqual(sockets.more_tcp(Place(socket.AF_INET, "127.0.0.1", 1, "", 5), alone, 2), [])
