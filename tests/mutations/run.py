"""Breaks the core on purpose, one line at a time, and fails where no test turns red.

    python tests/mutations/run.py [--jobs N] [--tests MODULE ...] [NAME ...]

Each patch beside this file is applied to a copy of sticky/ and tests/, where the tests of the core are run. NAME: only the
patches whose name holds this word. `--tests`: other tests than all of tests.core. Standard library only; needs git to
apply patches.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LIMIT = 300.0  #: seconds a run; one that does not end is as red as one that fails
IGNORED = shutil.ignore_patterns("__pycache__", "integration", "_trial_temp*", "mutations", "*.so")


def copy(to: Path) -> None:
    """What the tests of the core need."""
    for folder in ("sticky", "tests"):
        shutil.copytree(ROOT / folder, to / folder, ignore=IGNORED)


def trial(folder: Path, tests: Sequence[str]) -> tuple[str, str]:
    """("green", "red" or "broken"; the first red test, or the end of the output of what could not even be run)."""
    environment = {
        **os.environ,
        "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis"),
        "STICKY_MUTATION": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    environment.pop("STICKY_LONG_TESTS", None)
    environment.pop("PYTHONPATH", None)
    command = [sys.executable, "-m", "twisted.trial", "--exitfirst", "--temp-directory", str(folder / "trial"), *tests]
    try:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return "red", f"no end within {LIMIT:.0f} s"
    if done.returncode == 0 and re.search(r"^PASSED \(.*successes=[1-9]", done.stdout, re.MULTILINE):
        return "green", ""
    red = re.search(r"^tests\.core\.(\w+\.[A-Z]\w+\.test_\w+)$", done.stdout, re.MULTILINE)
    return ("red", red[1]) if red else ("broken", (done.stdout + done.stderr)[-600:].strip())


def rule(patch: Path) -> str:
    """What the patch breaks: its first line."""
    return patch.read_text().splitlines()[0].removeprefix("# ")


def attempt(patch: Path | None, tests: Sequence[str]) -> tuple[str, str]:
    """("green", "red", "broken" or "stale", what there is to say of it). None: nothing is changed."""
    with tempfile.TemporaryDirectory(prefix="sticky-mutation-") as name:
        folder = Path(name)
        copy(folder)
        if patch is not None:
            applied = subprocess.run(["git", "apply", str(patch)], cwd=folder, capture_output=True, text=True)
            if applied.returncode:
                return "stale", applied.stderr.strip()
        return trial(folder, tests)


def main(arguments: Sequence[str]) -> int:
    """The number of patches that no test noticed, or that do not apply any more; at most 100."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--jobs", type=int, choices=(1, 2), default=1)
    parser.add_argument("--tests", nargs="+", metavar="MODULE", default=["tests.core"])
    options = parser.parse_args(arguments)
    patches = [
        patch
        for patch in sorted(HERE.glob("*.patch"))
        if not options.names or any(name in patch.stem for name in options.names)
    ]
    if not patches:
        print("no such patch", file=sys.stderr)
        return 1
    verdict, what = attempt(None, options.tests)
    if verdict != "green":
        print(f"the tests are red although nothing is broken: {what}", file=sys.stderr)
        return 1
    bad: list[str] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for patch, (verdict, what) in zip(
            patches, pool.map(lambda patch: attempt(patch, options.tests), patches), strict=True
        ):
            line = f"{patch.stem}: {verdict}: {what}" if verdict != "green" else f"{patch.stem}: green: {rule(patch)}"
            print(line, flush=True)
            if verdict != "red":
                bad.append(line)
    print(f"{len(patches) - len(bad)} of {len(patches)} were noticed")
    for line in bad:
        print(f"NOT NOTICED: {line}", file=sys.stderr)
    return min(len(bad), 100)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
