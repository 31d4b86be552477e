"""The ranges that the SDK checks early are those of the configuration: no second truth."""

from __future__ import annotations

from enum import Enum

from twisted.trial.unittest import TestCase

from sticky.config.kinds import Flag, OneOf, Seconds, Whole
from sticky.config.subtables import Number
from sticky.config.table import ISOLATION, RLIMITS, SERVER
from sticky.sdk import limits

ROWS = {setting.name: setting.kind for setting in SERVER}


class SameAsConfigurationTests(TestCase):
    def test_numbers(self) -> None:
        compared = 0
        for key, allowed in limits.NUMBERS.items():
            kind = ROWS[key]
            assert isinstance(kind, Whole | Seconds | Number), key
            self.assertEqual((kind.low, kind.high), (allowed.low, allowed.high), key)
            self.assertEqual(isinstance(kind, Whole), allowed.whole, key)
            compared += 1
        self.assertGreater(compared, 15)

    def test_flags_and_choices(self) -> None:
        for key in limits.FLAGS:
            self.assertIsInstance(ROWS[key], Flag, key)
        for key, choices in limits.CHOICES.items():
            kind = ROWS[key]
            assert isinstance(kind, OneOf), key
            plain = [choice.value if isinstance(choice, Enum) else choice for choice in kind.choices]
            self.assertEqual(sorted(map(str, plain)), sorted(map(str, choices)), key)

    def test_tables(self) -> None:
        self.assertEqual({row.name for row in ISOLATION}, set(limits.ISOLATION))
        self.assertEqual({row.name for row in RLIMITS}, set(limits.RLIMITS))

    def test_every_setting_of_a_server_can_be_declared(self) -> None:
        import inspect

        from sticky.sdk.app import App

        arguments = set(inspect.signature(App.server).parameters)
        elsewhere = {"sessioned", "docker", "sandbox"}  # the decorator; an image is the operator's choice, in the file
        self.assertEqual(set(), set(ROWS) - arguments - elsewhere)
