"""Does what a page says, block by block, and compares what comes out with what the page shows. Knows no page by name."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
import tomllib
from html.parser import HTMLParser

from tests.docs.pages import Block, Kind, Page
from tests.integration.docs.reader import Reader, Said, Stumble

_VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}


def follow(page: Page, reader: Reader) -> list[str]:
    """Every block of the page. Returns those that are only fragments, as `page:line why`. Raises `Stumble`."""
    fragments = []
    said: Said | None = None
    for block in page.blocks:
        try:
            if block.kind is Kind.FRAGMENT:
                fragments.append(f"{block.where} {block.argument}")
            elif block.kind in (Kind.NAME, Kind.PART):
                said = None
            elif block.language in ("text", "json") and not block.title:
                compare(block, said)
            else:
                said = _do(block, reader)
        except Stumble as stumble:
            raise Stumble(f"{block.where}: {stumble}\n{reader.terminals()}") from None
    return fragments


def compare(block: Block, said: Said | None) -> None:
    """What the block before printed is what this one shows.

    `...` stands for anything within a line, and alone on one for any lines. How wide a gap is does not count.
    """
    if said is None or not block.follows:
        raise Stumble("shows output, but of what? It must stand right behind the block that prints it")
    if block.language == "json":
        json.loads(said.out)
    pattern = "".join(
        r"(?:.*\n)*" if line.strip() == "..." else re.escape(_narrow(line)).replace(r"\.\.\.", ".*") + "\n"
        for line in block.text.splitlines()
    )
    printed = "".join(f"{_narrow(line)}\n" for line in said.out.splitlines())
    if re.fullmatch(pattern, printed) is None:
        raise Stumble(f"the page shows\n{block.text}\nand printed was\n{said.out}{said.err}")


def _narrow(line: str) -> str:
    return " ".join(line.split())


def _do(block: Block, reader: Reader) -> Said | None:
    if block.kind is Kind.TERMINAL:
        reader.terminal(block.text, int(block.argument or 8080))
        return None
    if block.language == "sh":
        return reader.run(block.text)
    if block.title:
        reader.write(block.title, block.text)
    match block.language:
        case "python" if block.title:
            compile(block.text, block.title, "exec")
            return None
        case "python":
            return reader.python(block.text)
        case "toml":
            tomllib.loads(block.text)
            if not block.title:
                reader.write("fragment.toml", block.text)
            return reader.run(f"sticky check {block.title or 'fragment.toml'}")
        case "html":
            _Balanced().check(block.text)
        case "js":
            _javascript(block.text)
        case "ini":
            configparser.ConfigParser(interpolation=None, strict=False).read_string(block.text)
        case _ if block.title:
            pass  # a file of another program's, which the page starts
        case language:
            raise Stumble(f"nobody knows how to check {language or 'a block without a language'}")
    return None


def _javascript(text: str) -> None:
    node = shutil.which("node")
    if node is not None:
        checked = subprocess.run([node, "--check", "-"], input=text, capture_output=True, text=True, timeout=60)
        if checked.returncode:
            raise Stumble(checked.stderr)


class _Balanced(HTMLParser):
    """Every element that must be closed is, in order; scripts are JavaScript."""

    def __init__(self) -> None:
        super().__init__()
        self._open: list[str] = []
        self._script = ""

    def check(self, text: str) -> None:
        """Raises `Stumble`."""
        self.feed(text)
        self.close()
        if self._open:
            raise Stumble(f"not closed: {self._open}")

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """See the base class."""
        if tag not in _VOID:
            self._open.append(tag)

    def handle_data(self, data: str) -> None:
        """See the base class."""
        if self._open and self._open[-1] == "script":
            self._script += data

    def handle_endtag(self, tag: str) -> None:
        """See the base class."""
        if not self._open or self._open.pop() != tag:
            raise Stumble(f"</{tag}> closes nothing")
        if tag == "script":
            _javascript(self._script)
            self._script = ""
