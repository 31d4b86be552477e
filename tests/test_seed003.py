"""Each rule of the second seed (tests/cases/seed003.md) that is to have a test has one that names it."""

from __future__ import annotations

import re
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

TESTS = Path(__file__).parent
ROW = re.compile(r"^\| (\d+) \| .* \| ([^|]*) \|$", re.MULTILINE)
NAMED = re.compile(r"def test_\w*?rules?_((?:\d+|_|and|rule)+)")


class RuleTests(SynchronousTestCase):
    def test_every_rule_has_a_test_that_names_it(self) -> None:
        rows = {int(number): ours for number, ours in ROW.findall((TESTS / "cases" / "seed003.md").read_text())}
        self.assertEqual(sorted(rows), list(range(1, 23)))
        named = {
            int(number)
            for path in TESTS.rglob("test_*.py")
            for found in NAMED.findall(path.read_text())
            for number in re.findall(r"\d+", found)
        }
        self.assertEqual({number for number, ours in rows.items() if "test" in ours} - named, set())
        self.assertIn(19, named, "a departure is shown too")
