"""What stands on a page of the documentation: its code blocks, headings and links. Pure text; runs nothing.

A fence's first word is its language and `title="..."` the file that it is. A comment on the line above says what else a test
must know: `<!-- block: terminal 8080 -->`. What is indented without a fence is a block too, of no language.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

import attrs

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

_FENCE = re.compile(r"^```+")
_INFO = re.compile(r'^```(?P<language>\w*)(?: title="(?P<title>[^"]+)")?$')
_DIRECTIVE = re.compile(r"^<!-- block: (?P<kind>[a-z]+)(?: (?P<argument>.*?))? -->$")
_HEADING = re.compile(r"^(#{1,6}) (.+?)(?: \{#(?P<id>[\w-]+)\})?$")
_LINK = re.compile(r"(?<!!)\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)")
_CODE = re.compile(r"`[^`]*`")
_LISTED = re.compile(r"^\s*([-*]|\d+\.) ")


class Kind(Enum):
    """What a test does with a block."""

    PLAIN = "plain"  #: what its language asks for
    #: Goes on while the page does, like a command in another terminal; the argument: a port it opens.
    TERMINAL = "terminal"
    FRAGMENT = "fragment"  #: is not run by itself; the argument says why
    PART = "part"  #: its lines stand in that file of the source, in this order
    SAME = "same"  #: it is that file of the source, and otherwise plain
    NAME = "name"  #: is run by the page's own test, under this name


@attrs.frozen
class Block:
    """One block of code."""

    page: str  #: file name
    line: int  #: of its first line
    language: str
    title: str  #: the file that it is, or nothing
    kind: Kind
    argument: str
    text: str
    follows: bool  #: nothing but blank lines between the block before and this one

    @property
    def where(self) -> str:
        """For messages."""
        return f"{self.page}:{self.line}"


class BadPage(Exception):
    """A page that cannot be read: says where and why."""


@attrs.frozen
class Page:
    """One page."""

    name: str
    blocks: tuple[Block, ...]
    anchors: frozenset[str]
    links: tuple[tuple[int, str], ...]  #: (line, target) of every link outside code


def names() -> list[str]:
    """Every page, with `/` between folders."""
    return sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


def load(name: str) -> Page:
    """A page of docs/."""
    return parse(name, (DOCS / name).read_text("utf-8"))


def parse(name: str, text: str) -> Page:
    """Raises `BadPage`."""
    lines = text.splitlines()
    prose = list(_prose(name, lines))
    return Page(
        name,
        tuple(_blocks(name, lines)),
        frozenset(_anchors(line for _, line in prose)),
        tuple((number, link) for number, line in prose for link in _LINK.findall(_CODE.sub("", line))),
    )


def slug(heading: str) -> str:
    """The anchor of a heading, as the site and code hosts make it of plain words."""
    plain = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", plain).strip().lower().replace(" ", "-")


def _blocks(name: str, lines: list[str]) -> Iterator[Block]:
    inside: list[str] | None = None
    info = directive = ""
    began = ended = 0
    for number, line in enumerate(lines, 1):
        if inside is None:
            if _FENCE.match(line):
                inside, info, began = [], line, number + 1
                directive = lines[number - 2] if number > 1 else ""
            continue
        if line.startswith("```"):
            between = [text for text in lines[ended : began - 2] if text.strip() and not _DIRECTIVE.match(text)]
            yield _block(name, began, info, directive, inside, follows=ended > 0 and not between)
            inside, ended = None, number
            continue
        inside.append(line)
    if inside is not None:
        raise BadPage(f"{name}:{began}: a block that does not end")


def _block(name: str, line: int, info: str, directive: str, text: list[str], *, follows: bool) -> Block:
    found = _INFO.match(info)
    if found is None:
        raise BadPage(f'{name}:{line - 1}: {info!r} is not ```language title="file"')
    kind, argument = Kind.PLAIN, ""
    if "<!-- block" in directive:
        said = _DIRECTIVE.match(directive)
        if said is None or said["kind"] not in {each.value for each in Kind}:
            raise BadPage(f"{name}:{line - 2}: {directive!r} is no directive")
        kind, argument = Kind(said["kind"]), said["argument"] or ""
        if kind not in (Kind.PLAIN, Kind.TERMINAL) and not argument:
            raise BadPage(f"{name}:{line - 2}: {kind.value} takes an argument")
    body = "".join(f"{each}\n" for each in text)
    return Block(name, line, found["language"], found["title"] or "", kind, argument, body, follows)


def _prose(name: str, lines: list[str]) -> Iterator[tuple[int, str]]:
    """Lines outside fences. Raises for code that is only indented: nobody would run it."""
    fenced = False
    before, listed = "", False
    for number, line in enumerate(lines, 1):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            listed = bool(_LISTED.match(line)) or (listed and (not line.strip() or line.startswith(" ")))
            if (
                line.startswith("    ")
                and not before.strip()
                and not listed
                and not line.lstrip().startswith("options:")
            ):
                raise BadPage(f"{name}:{number}: code without a fence")
            yield number, line
        before = line


def _anchors(lines: Iterator[str]) -> Iterator[str]:
    seen: dict[str, int] = {}
    for line in lines:
        heading = _HEADING.match(line)
        if heading is None:
            continue
        anchor = heading["id"] or slug(heading[2])
        seen[anchor] = seen.get(anchor, 0) + 1
        yield anchor if seen[anchor] == 1 else f"{anchor}_{seen[anchor] - 1}"
