"""Placeholders in a command's arguments: their names, checking them, and what each names. Must not run anything."""

from __future__ import annotations

from collections.abc import Iterator

from sticky.config.kinds import Refused

PLACEHOLDERS = ("port", "host", "socket", "container_id", "url")

ALLOWED = (
    "a list of texts, the program first; in them "
    + " ".join(f"{{{name}}}" for name in PLACEHOLDERS)
    + " stand for the container's own values and {{ }} for braces"
)


def placeholders(argument: str) -> Iterator[str]:
    """The names of an argument's placeholders, in order. Raises `Refused` for what cannot be expanded."""
    at = 0
    while at < len(argument):
        if argument.startswith(("{{", "}}"), at):
            at += 2
        elif argument[at] == "}":
            raise Refused(f"a single }} in {argument!r}; write }}}} for a brace")
        elif argument[at] == "{":
            end = argument.find("}", at)
            name = argument[at + 1 : end]
            if end < 0:
                raise Refused(f"a single {{ in {argument!r}; write {{{{ for a brace")
            if name not in PLACEHOLDERS:
                known = " ".join(f"{{{name}}}" for name in PLACEHOLDERS)
                raise Refused(f"unknown placeholder {{{name}}}; allowed: {known} (write {{{{ and }}}} for braces)")
            yield name
            at = end + 1
        else:
            at += 1


def check(argument: str) -> None:
    """Raises `Refused` if an argument holds anything that cannot be expanded."""
    for _ in placeholders(argument):
        pass
