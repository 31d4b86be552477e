"""What only the garbage collector finds of something that was done: its objects by kind. For code that should leave nothing to it."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable


def kind(found: object) -> str:
    """Where this object's class comes from; of a function its own name says more."""
    named = found if callable(found) and hasattr(found, "__qualname__") else type(found)
    return f"{named.__module__}.{named.__qualname__}"


def collected() -> Counter[str]:
    """Collect, and say what was found."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        return Counter(map(kind, gc.garbage))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


def left_to_the_collector(work: Callable[[], object]) -> Counter[str]:
    """What this leaves behind in cycles that nobody else knows."""
    gc.collect()
    gc.disable()
    try:
        work()
        return collected()
    finally:
        gc.enable()
