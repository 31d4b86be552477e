"""What a program lacks to be ready, in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from sticky.containers.lacking import lacking
from sticky.containers.listeners import Listener
from sticky.core.values import ContainerId, DeploymentId, ServerName
from sticky.isticky import ContainerSpec


def spec(*command: str, **changes: Any) -> ContainerSpec:
    return ContainerSpec(
        container=ContainerId("ct-1"),
        server=ServerName("echo"),
        deployment=DeploymentId("d1"),
        app="app",
        command=command,
        directory=Path("/"),
        log=Path("/log"),
        scratch=Path("/"),
        **changes,
    )


EXPECTED = (
    "nothing of it listens on port 20001 of 127.0.0.1, which is PORT in its environment and {port} in its command"
)


class LackingTests(SynchronousTestCase):
    def said(self, *found: Listener, command: tuple[str, ...] = ("run",), **changes: Any) -> str:
        return lacking(spec(*command, **changes), "127.0.0.1", 20_001, None, found)

    def test_one_that_listens_nowhere_is_told_where_it_should(self) -> None:
        self.assertEqual(self.said(), EXPECTED)

    def test_one_that_listens_on_another_port_is_told_that_one_and_the_setting_for_it(self) -> None:
        self.assertEqual(
            self.said(Listener("127.0.0.1", 8000, 1), Listener("::1", 8000, 2)),
            f"{EXPECTED}; it listens on port 8000 of 127.0.0.1 and port 8000 of ::1: set port = 8000 if it cannot take another",
        )

    def test_of_several_ports_none_is_advised_and_three_are_told(self) -> None:
        found = [Listener("0.0.0.0", port, port) for port in (9004, 9002, 9003, 9001)]
        self.assertEqual(self.said(*found), f"{EXPECTED}; it listens on port 9001 and port 9002 and port 9003")

    def test_the_right_port_on_an_address_where_it_is_not_reached(self) -> None:
        self.assertEqual(
            self.said(Listener("10.0.0.1", 20_001, 1)),
            f"{EXPECTED}; it listens on port 20001 of 10.0.0.1, where it is not reached: "
            "let it take the address from STICKY_HOST or {host}",
        )

    def test_its_servers_port_and_its_socket_are_told_besides(self) -> None:
        self.assertEqual(self.said(port=8000), f"{EXPECTED}, nor on its Server's port 8000")
        self.assertEqual(self.said(command=("run", "{socket}")), f"{EXPECTED}, nor on {{socket}}")

    def test_where_its_servers_port_is_the_one_it_is_told_it_is_named_once(self) -> None:
        self.assertEqual(self.said(port=20_001), EXPECTED)

    def test_a_probe_that_was_refused_says_that_it_listens(self) -> None:
        said = lacking(spec("run", ready_path="/up"), "127.0.0.1", 20_001, "status 503", [Listener("::", 20_001, 1)])
        self.assertEqual(said, "GET /up is not answered with a status under 400 (status 503)")
