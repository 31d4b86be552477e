"""Transition tables that note which of their rows were taken, so that a test can tell whether it saw them all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sticky.core import container, session, starts, turns

TABLES: dict[str, Any] = {"session": session, "start": starts, "container": container, "turn": turns}


class RecordingTable(dict[Any, Any]):
    """A transition table that remembers the rows that were looked up."""

    def __init__(self, table: dict[Any, Any]) -> None:
        super().__init__(table)
        self.taken: set[Any] = set()

    def __getitem__(self, key: Any) -> Any:
        row = super().__getitem__(key)
        self.taken.add(key)
        return row

    def missed(self) -> set[str]:
        """Rows that never occurred."""
        return {f"{state.name}+{what.name}" for state, what in set(self) - self.taken}


@contextmanager
def recorded_tables() -> Iterator[dict[str, RecordingTable]]:
    """While this lasts, the core's tables record."""
    recorders = {name: RecordingTable(module.TRANSITIONS) for name, module in TABLES.items()}
    for name, module in TABLES.items():
        module.TRANSITIONS = recorders[name]
    try:
        yield recorders
    finally:
        for name, module in TABLES.items():
            module.TRANSITIONS = dict(recorders[name])
