"""Pages as text: blocks that say where they come from are true, and links and anchors lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.docs.pages import DOCS, ROOT, BadPage, Kind, load, names, parse, slug

EXAMPLE = """# One

<!-- block: terminal 8081 -->
```sh
sleep 1
```

```python title="a/b.py"
x = [1](y)
```
More [words](two.md#here) and `[no](link)`.

```text
1
```

```json
{}
```

## One
### `sticky run` and *more* {#more}
- a list

    of more than one paragraph
"""


class ParserTests(SynchronousTestCase):
    def test_blocks_know_their_language_file_kind_and_place(self) -> None:
        first, second, third, fourth = parse("x.md", EXAMPLE).blocks
        self.assertEqual((first.kind, first.argument, first.text, first.line), (Kind.TERMINAL, "8081", "sleep 1\n", 5))
        self.assertEqual((second.kind, second.language, second.title), (Kind.PLAIN, "python", "a/b.py"))
        self.assertEqual([each.follows for each in (first, second, third, fourth)], [False, True, False, True])

    def test_links_and_anchors_are_those_outside_code(self) -> None:
        page = parse("x.md", EXAMPLE)
        self.assertEqual(page.links, ((11, "two.md#here"),))
        self.assertEqual(page.anchors, {"one", "one_1", "more"})

    def test_what_would_not_be_run_is_an_error(self) -> None:
        for text, problem in (
            ("```sh\nx\n", "does not end"),
            ("```sh run.sh\nx\n```\n", "is not"),
            ("<!-- block: sometimes -->\n```sh\nx\n```\n", "no directive"),
            ("<!-- block: fragment -->\n```sh\nx\n```\n", "takes an argument"),
            ("Words:\n\n    code without a fence\n", "code without a fence"),
        ):
            with self.subTest(text):
                self.assertIn(problem, str(self.assertRaises(BadPage, parse, "x.md", text)))

    def test_anchors_are_made_as_the_site_makes_them(self) -> None:
        for heading, anchor in (
            ("`[servers.NAME]`", "serversname"),
            ("The `sticky` command", "the-sticky-command"),
            ("What's *new*, [here](x.md)?", "whats-new-here"),
        ):
            self.assertEqual(slug(heading), anchor)


class PageTests(SynchronousTestCase):
    def test_every_page_can_be_read(self) -> None:
        self.assertGreater(sum(len(load(name).blocks) for name in names()), 80)

    def test_blocks_that_are_files_of_the_source_are_these(self) -> None:
        found = 0
        for name in names():
            for block in load(name).blocks:
                if block.kind is Kind.SAME:
                    self.assertEqual(block.text, (ROOT / block.argument).read_text("utf-8"), block.where)
                    found += 1
        self.assertGreater(found, 3)

    def test_blocks_that_are_parts_of_the_source_are_in_it(self) -> None:
        for name in names():
            for block in load(name).blocks:
                if block.kind is Kind.PART:
                    left = iter((ROOT / block.argument).read_text("utf-8").splitlines())
                    for line in filter(str.strip, block.text.splitlines()):
                        self.assertIn(line, left, f"{block.where}: {block.argument} has not, or not behind the others")

    def test_links_lead_to_a_page_and_to_a_heading_of_it(self) -> None:
        pages = {name: load(name) for name in names()}
        readme = parse("README.md", (ROOT / "README.md").read_text("utf-8"))
        looked_at = 0
        for page, folder in [*((page, DOCS) for page in pages.values()), (readme, ROOT)]:
            for line, link in page.links:
                if re.match(r"[a-z]+:", link):
                    continue
                path, _, anchor = link.partition("#")
                target = (folder / path).resolve() if path else folder / page.name
                where = f"{page.name}:{line}: {link}"
                self.assertTrue(target.exists(), where)
                if target.is_relative_to(DOCS):
                    if anchor:
                        self.assertIn(anchor, pages[target.relative_to(DOCS).as_posix()].anchors, where)
                else:
                    self.assertEqual((page.name, anchor), ("README.md", ""), f"{where} is not on the site")
                looked_at += 1
        self.assertGreater(looked_at, 60)

    def test_the_environment_that_readme_makes_in_the_source_is_none_of_its_files(self) -> None:
        made = re.findall(r"-m venv (\S+)", (ROOT / "README.md").read_text("utf-8"))
        self.assertTrue(made)
        ignored = (ROOT / ".gitignore").read_text("utf-8").split()
        for folder in made:
            self.assertIn(f"/{folder}/", ignored)

    def test_every_page_is_in_the_navigation_and_on_one_other_page(self) -> None:
        navigation = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]
        self.assertEqual(sorted(re.findall(r": ([\w/-]+\.md)$", navigation, re.MULTILINE)), names())
        linked = {link.partition("#")[0] for name in names() for _, link in load(name).links}
        self.assertEqual({*names()} - linked, {"index.md"})

    def test_pages_name_files_of_the_source_that_are_there(self) -> None:
        for name in names():
            for path in re.findall(r"`((?:examples|tests|sticky|bin|benchmarks)/[\w./-]+)`", (DOCS / name).read_text()):
                self.assertTrue(Path(ROOT, path).exists(), f"{name}: {path}")
