from collections.abc import Callable, Collection
from typing import Any

def read_ready(
    events: list[tuple[int, int]],
    selectables: dict[int, Any],
    kinds: Collection[type],
    ended: Callable[[Any, Any, bool], object],
) -> list[tuple[int, int]] | None: ...
