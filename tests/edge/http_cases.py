"""The cases of tests/cases/http: how they are read, and how a message is held against the facts of one. No outcome of our own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

FOLDER = Path(__file__).resolve().parent.parent / "cases" / "http"

Json = dict[str, Any]


@attrs.frozen
class Message:
    """A request or response as an independent parser read it. Names in lower case, everything Latin-1 text."""

    headers: list[tuple[str, str]]
    body: str
    trailers: list[tuple[str, str]] = attrs.field(factory=list)
    method: str = ""
    target: str = ""
    status: int = 0


@attrs.frozen
class Case:
    """One line of a file, with its repeats spelled out and its placeholders filled."""

    name: str
    data: bytes
    raw: Json = attrs.field(repr=False)

    @property
    def outcomes(self) -> list[int | str]:
        """What is allowed, the best first."""
        expect = self.raw["expect"]
        return expect if isinstance(expect, list) else [expect]

    @property
    def container(self) -> list[Json]:
        """The facts of the requests that a container must see."""
        facts = self.raw.get("container", {})
        return facts if isinstance(facts, list) else [facts]


def cases(file: str, token: bytes, session: bytes) -> Iterator[Case]:
    """The cases of `requests.jsonl` or `responses.jsonl`."""
    replace = {"{TOKEN}": token.decode(), "{SESSION}": session.decode()}
    for line in (FOLDER / file).read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        texts = dict(replace)
        if "repeat" in case:
            repeat = case["repeat"]
            texts[repeat["marker"]] = repeat["text"] * repeat["count"]
        case = _filled(case, texts)
        yield Case(case["name"], case["bytes"].encode("latin-1"), case)


def _filled(value: Any, texts: dict[str, str]) -> Any:
    if isinstance(value, str):
        for marker, text in texts.items():
            value = value.replace(marker, text)
        return value
    if isinstance(value, list):
        return [_filled(item, texts) for item in value]
    if isinstance(value, dict):
        return {_filled(key, texts): _filled(item, texts) for key, item in value.items() if key != "repeat"}
    return value


def contradictions(facts: Json, message: Message, token: bytes) -> list[str]:
    """Every way in which a message is not what the facts say."""
    found = []
    for name in ("method", "target", "body", "status"):
        if name in facts:
            allowed = facts[name] if isinstance(facts[name], list) else [facts[name]]
            if getattr(message, name) not in allowed:
                found.append(f"{name} is {getattr(message, name)!r}, not {allowed!r}")
    for part in ("headers", "trailers"):
        lines = getattr(message, part)
        for name, wanted in facts.get(part, {}).items():
            values = [value for key, value in lines if key == name.lower()]
            if wanted == "*":
                # Said of Via and Forwarded, which a proxy may add (Sticky does not): no second, foreign one.
                if len(values) > 1:
                    found.append(f"{name} occurs {len(values)} times")
            elif values != (wanted if isinstance(wanted, list) else [wanted]):
                found.append(f"{name} is {values!r}, not {wanted!r}")
    present = {name for name, _ in message.headers + message.trailers}
    found += [f"{name} is there" for name in facts.get("absent", []) if name.lower() in present]
    everything = repr(message)
    found += [f"{text} occurs" for text in [*facts.get("never", []), token.decode()] if text in everything]
    return found
