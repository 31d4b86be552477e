"""Placeholders of a command."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from sticky.config.commands import PLACEHOLDERS, check, placeholders
from sticky.config.kinds import Refused
from sticky.config.table import CONTAINER_VARIABLES
from sticky.containers import environment
from tests.config.toml import ConfigCase


class PlaceholderTests(SynchronousTestCase):
    def test_names_are_found_in_any_place(self) -> None:
        self.assertEqual(list(placeholders("--url={url}:{port}")), ["url", "port"])
        self.assertEqual(list(placeholders('{{"a": {{}}}}{host}')), ["host"])
        self.assertEqual(list(placeholders("{{{port}}}")), ["port"])

    def test_what_cannot_be_expanded_is_refused(self) -> None:
        for argument, problem in {
            "{prt}": "unknown placeholder {prt}; allowed: {port} {host} {socket} {container_id} {url} (write {{ and }} for braces)",
            "{}": "unknown placeholder {}; allowed: {port} {host} {socket} {container_id} {url} (write {{ and }} for braces)",
            "{port": "a single { in '{port'; write {{ for a brace",
            "port}": "a single } in 'port}'; write }} for a brace",
        }.items():
            self.assertEqual(self.assertRaises(Refused, check, argument).problem, problem)

    @given(st.text())
    def test_doubled_braces_are_always_allowed(self, text: str) -> None:
        self.assertEqual(list(placeholders(text.replace("{", "{{").replace("}", "}}"))), [])

    def test_the_names_are_those_that_containers_fill_in(self) -> None:
        self.assertEqual(set(PLACEHOLDERS), environment.PLACEHOLDERS)
        self.assertEqual(set(CONTAINER_VARIABLES), environment.FIXED)


class CommandTests(ConfigCase):
    def test_a_command_is_a_list_of_texts(self) -> None:
        for command in ('"./echo"', "[]", "[1]", '[""]', '["a\\u0000"]'):
            error = self.refused(f"[servers.echo]\ncommand = {command}")
            self.assertTrue(error.startswith("sticky.toml: servers.echo.command: "), error)
            self.assertIn("allowed: a list of texts, the program first", error)

    def test_an_unknown_placeholder_is_named(self) -> None:
        error = self.refused('[servers.echo]\ncommand = ["./echo", "{prot}"]')
        self.assertIn("servers.echo.command: unknown placeholder {prot}; allowed: {port} {host}", error)
