"""Calls whose failure must not become somebody else's: one holder's, one client's or one timer entry's fault is logged, no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec

from twisted.logger import Logger

_Arguments = ParamSpec("_Arguments")


def safely(
    log: Logger, call: Callable[_Arguments, object], *args: _Arguments.args, **kwargs: _Arguments.kwargs
) -> bool:
    """Call it; what it raises is logged with its traceback and goes no further. Returns whether it raised nothing."""
    try:
        call(*args, **kwargs)
    except Exception:
        log.failure("a call failed that others must not suffer from: {call}", call=getattr(call, "__qualname__", "?"))
        return False
    return True
