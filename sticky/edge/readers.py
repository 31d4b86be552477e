"""Which reader of plain heads an edge gets: the compiled one where it was built, else the one in Python. They do the same."""

from __future__ import annotations

import os
from collections.abc import Callable

from sticky.edge.grammar import HeadLimits
from sticky.edge.plain import PurePlain, Reader
from sticky.edge.wire import Names

PURE = "STICKY_PURE"  #: an environment variable that, set to 1, leaves the compiled reader out

compiled: Callable[[Names, HeadLimits], Reader] | None
try:
    from sticky.edge._plain import CompiledPlain as compiled
except ImportError:  # no compiler where Sticky was installed
    compiled = None


def reader(names: Names, limits: HeadLimits) -> Reader:
    """The fastest one there is."""
    if compiled is None or os.environ.get(PURE) == "1":
        return PurePlain(names, limits)
    return compiled(names, limits)
