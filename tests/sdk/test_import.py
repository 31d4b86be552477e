"""Importing sticky is cheap, and never brings in the event loop."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import TestCase

import sticky

ROOT = Path(sticky.__file__).parents[1]

PROGRAM = """
import json, sys
before = set(sys.modules)
import sticky
bare = sorted(set(sys.modules) - before)
for name in sticky.__all__:
    getattr(sticky, name)
from sticky.sdk.names import names_from
names_from({})
print(json.dumps({"bare": bare, "all": sorted(sys.modules)}))
"""


class ImportTests(TestCase):
    def modules(self) -> dict[str, list[str]]:
        output = subprocess.run(
            [sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, timeout=30, check=True
        ).stdout
        found: dict[str, list[str]] = json.loads(output)
        return found

    def test_nothing_is_loaded_before_it_is_used(self) -> None:
        self.assertEqual(["sticky"], [name for name in self.modules()["bare"] if name.startswith(("sticky", "attr"))])

    def test_the_whole_sdk_works_without_twisted(self) -> None:
        found = self.modules()["all"]
        self.assertIn("sticky.edge.wire", found)
        self.assertEqual([], [name for name in found if name.partition(".")[0] == "twisted"])

    def test_an_unknown_name_is_an_attribute_error(self) -> None:
        with self.assertRaisesRegex(AttributeError, "no attribute 'Sever'"):
            sticky.Sever  # noqa: B018

    def test_every_exported_name_is_there(self) -> None:
        for name in sticky.__all__:
            self.assertIsNotNone(getattr(sticky, name))
            self.assertIn(name, dir(sticky))

    def test_errors_are_importable_by_their_documented_path(self) -> None:
        from sticky.exception import InvalidError
        from sticky.sdk import exception

        self.assertIs(exception.InvalidError, InvalidError)
        self.assertEqual(set(exception.__all__), set(sticky.exception.__all__))
        for name in exception.__all__:
            self.assertTrue(issubclass(getattr(exception, name), sticky.exception.Error))
