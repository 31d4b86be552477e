"""The site as `bin/docs` builds it: strict, complete, and of nobody else's parts."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.docs.pages import ROOT, load, names

ZENSICAL = Path(sys.executable).with_name("zensical")


class SiteTests(SynchronousTestCase):
    def build(self, folder: Path) -> subprocess.CompletedProcess[str]:
        command = [str(ZENSICAL), "build", "--strict", "--clean", "--config-file", "mkdocs.yml"]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)

    def copy(self) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="site-")).resolve()
        self.addCleanup(shutil.rmtree, folder)
        shutil.copy(ROOT / "mkdocs.yml", folder)
        shutil.copytree(ROOT / "docs", folder / "docs")
        (folder / "sticky").symlink_to(ROOT / "sticky")
        return folder

    def test_it_builds_without_a_warning_and_its_anchors_are_those_of_the_links(self) -> None:
        folder = self.copy()
        done = self.build(folder)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        site = folder / "build" / "site"
        pages = {name: (site / name.replace(".md", ".html")).read_text("utf-8") for name in names()}
        for name, html in pages.items():
            ids = set(re.findall(r'\sid="([^"]+)"', html))
            self.assertLessEqual(load(name).anchors, ids, f"{name}: anchors that tests/docs makes in another way")
            loaded = re.findall(r'<(?:script|link|img|iframe)[^>]*(?:src|href)="(https?://[^"]*)"', html)
            self.assertEqual(loaded, [], f"{name} loads what is elsewhere")
            self.assertNotIn("<!-- block", re.sub(r"<!--.*?-->", "", html, flags=re.DOTALL))
        for symbol in (
            "sticky.App.server",
            "sticky.sessioned",
            "sticky.Server.from_name",
            "sticky.exception.QueueTimeout",
        ):
            self.assertIn(f'id="{symbol}"', pages["api.md"])
        self.assertIn("Make a class a Server", pages["api.md"])

    def test_whoever_builds_it_is_told_where_it_is(self) -> None:
        folder = self.copy()
        (folder / "bin").mkdir()
        (folder / ".venv" / "bin").mkdir(parents=True)
        (folder / ".venv" / "bin" / "zensical").symlink_to(ZENSICAL)
        shutil.copy(ROOT / "bin" / "docs", folder / "bin")
        (folder / "bin" / "venv").write_text("#!/bin/sh\n")  # there is one
        (folder / "bin" / "venv").chmod(0o755)
        done = subprocess.run([str(folder / "bin" / "docs")], capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        last = done.stdout.splitlines()[-1]
        self.assertIn("The site is ready: ", last)
        self.assertTrue(Path(last.rpartition(": ")[2]).is_file(), last)

    def test_a_link_that_leads_nowhere_is_an_error(self) -> None:
        folder = self.copy()
        for link in ("[a](nowhere.md)", "[a](scaling.md#nowhere)"):
            with self.subTest(link):
                page = folder / "docs" / "game.md"
                page.write_text((ROOT / "docs" / "game.md").read_text() + f"\n{link}\n")
                self.assertNotEqual(self.build(folder).returncode, 0)
