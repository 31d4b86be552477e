"""Shows that the tests of the core notice when it is broken. Long: part of `bin/test --all` only."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from unittest import skipIf

from twisted.trial.unittest import TestCase

from tests.mutations.run import HERE, ROOT, rule

#: Every module of the core that has a rule to break.
MODULES = {
    "admission",
    "backoff",
    "capacity",
    "container",
    "fleet",
    "ledger",
    "ledgers",
    "mail",
    "memory",
    "names",
    "plain_calls",
    "recall",
    "scaling",
    "session",
    "session_calls",
    "start_calls",
    "starts",
    "tombstones",
    "turns",
}


class PatchTests(TestCase):
    def test_every_patch_says_its_rule_and_breaks_one_line(self) -> None:
        for patch in HERE.glob("*.patch"):
            lines = patch.read_text().splitlines()
            self.assertTrue(lines[0].startswith("# ") and len(rule(patch)) > 10, patch.name)
            changed = [sum(line[:1] == sign and line[:3] != 3 * sign for line in lines) for sign in "-+"]
            self.assertEqual(max(changed), 1, patch.name)

    @skipIf(shutil.which("git") is None, "needs git to apply patches")
    def test_every_patch_applies_to_the_core_as_it_is(self) -> None:
        for patch in sorted(HERE.glob("*.patch")):
            done = subprocess.run(["git", "apply", "--check", str(patch)], cwd=ROOT, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, f"{patch.name}: {done.stderr}")

    def test_every_module_and_every_invariant_is_broken_by_some_patch(self) -> None:
        texts = [patch.read_text() for patch in HERE.glob("*.patch")]
        self.assertEqual({name for name in MODULES if not any(f"b/sticky/core/{name}.py" in t for t in texts)}, set())
        for number in range(1, 11):
            self.assertTrue(any(f"nvariant {number}:" in text.splitlines()[0] for text in texts), number)


class MutationTests(TestCase):
    timeout = 3000
    if not os.environ.get("STICKY_LONG_TESTS"):
        skip = "long: set STICKY_LONG_TESTS"
    elif shutil.which("git") is None:
        skip = "needs git to apply patches"

    def test_every_breakage_of_the_core_turns_some_test_red(self) -> None:
        done = subprocess.run(
            [sys.executable, str(HERE / "run.py"), "--jobs", "2"], cwd=ROOT, capture_output=True, text=True
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
