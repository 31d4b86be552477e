"""Patterns that every supported CPython matches alike."""

from __future__ import annotations

import importlib
import pkgutil
import re
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from twisted.trial.unittest import SynchronousTestCase as TestCase

import sticky


def possessive_groups(parsed: Any) -> bool:
    """Whether a possessive quantifier stands behind more than one character (or class of them)."""
    for code, value in parsed:
        if code is codes.POSSESSIVE_REPEAT:
            item = value[2]
            if len(item) != 1 or item[0][0] not in (codes.LITERAL, codes.NOT_LITERAL, codes.IN, codes.ANY):
                return True
        for part in value if isinstance(value, tuple | list) else (value,):
            for within in part if isinstance(part, list) else (part,):
                if isinstance(within, parser.SubPattern) and possessive_groups(within):
                    return True
    return False


class PatternTests(TestCase):
    def test_no_group_is_quantified_possessively(self) -> None:
        # CPython 3.11.0 to 3.11.4 (3.11.2 is Debian 12's) match such groups wrongly: a chunk that had come halfway was a fault.
        names = [found.name for found in pkgutil.walk_packages(sticky.__path__, "sticky.")]
        modules = [importlib.import_module(name) for name in names if not name.endswith(".__main__")]
        patterns = {
            pattern.pattern: pattern.flags
            for module in modules
            for pattern in vars(module).values()
            if isinstance(pattern, re.Pattern)
        }
        self.assertGreater(len(patterns), 20)
        wrong = [text for text, flags in patterns.items() if possessive_groups(parser.parse(text, flags & ~re.UNICODE))]
        self.assertEqual(wrong, [])

    def test_it_is_seen(self) -> None:
        for text in (b"(?:ab?c)?+", b"x(?:a|(?:bc)*+)", b"(?>(?:a+,){1,3}+)"):
            self.assertTrue(possessive_groups(parser.parse(text)), text)
        for text in (b"[a-z]++x?+.*+", b"(?>(?:ab)*)"):
            self.assertFalse(possessive_groups(parser.parse(text)), text)
