"""Every page, followed to the letter in an empty folder: each block runs, and prints what the page says.

Pages in `OTHERWISE` have tests of their own, which run their blocks.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.docs.pages import load, names
from tests.integration.docs.environments import web_apps
from tests.integration.docs.following import follow
from tests.integration.docs.reader import Reader, can_be_alone, ports_are_free
from tests.integration.running_daemon import ROOT

#: Page -> who runs its blocks.
OTHERWISE = {
    "cli.md": "tests/integration/docs/test_command_examples.py",
    "websockets.md": "tests/integration/test_websockets_page.py",
}
#: Programs of others that a page uses.
NEEDS = {"production.md": ("nginx", "haproxy", "openssl", "curl"), "deploying.md": ("curl",)}
BEFORE = Path(__file__).parent / "before"  #: what a page's reader has already, `deploying.sh` for deploying.md
#: Blocks that are not run by themselves; whoever adds one says why on the page, and here.
FRAGMENTS: dict[str, int] = {
    "architecture.md": 1,
    "calls.md": 2,
    "configuration.md": 1,
    "first-session.md": 1,
    "operating.md": 4,
    "performance.md": 1,
    "reliability.md": 1,
    "scaling.md": 2,
    "sdk.md": 1,
}


class GuideTests(SynchronousTestCase):
    """One test for each page with code."""

    def follow(self, name: str) -> None:
        alone = can_be_alone()
        if not alone and not ports_are_free():
            raise SkipTest("there are no namespaces for this user, and the pages' ports are taken")
        for program in NEEDS.get(name, ()):
            if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None:
                raise SkipTest(f"the page uses {program}, which is not installed")
        reader = Reader(alone=alone, path=(web_apps(),) if name == "web-apps.md" else ())
        try:
            before = BEFORE / name.replace(".md", ".sh")
            if before.exists():
                reader.run(f"EXAMPLES={ROOT / 'examples'}\n{before.read_text()}")
            fragments = follow(load(name), reader)
        except BaseException:
            reader.abandon()
            raise
        reader.close()
        self.assertEqual(len(fragments), FRAGMENTS.get(name, 0), fragments)

    def test_the_table_of_fragments_has_no_page_too_many(self) -> None:
        self.assertEqual(set(FRAGMENTS) - set(names()), set())
        self.assertLessEqual(sum(FRAGMENTS.values()), 15)

    def test_pages_with_tests_of_their_own_have_them(self) -> None:
        for name, test in OTHERWISE.items():
            self.assertTrue(load(name).blocks, name)
            self.assertIn(Path(name).name, Path(os.path.join(ROOT, test)).read_text())


def _add(name: str) -> None:
    def test(self: GuideTests) -> None:
        self.follow(name)

    setattr(GuideTests, f"test_{name.removesuffix('.md').replace('-', '_').replace('/', '_')}", test)


for _name in names():
    if _name not in OTHERWISE and load(_name).blocks:
        _add(_name)
