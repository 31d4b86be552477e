"""Clocks that do more than Twisted's own fake."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.task import Clock


class Turning(Clock):
    """Reads between two of its turns, as a reactor does."""

    read: Callable[[], object] = staticmethod(lambda: None)

    def callLater(self, delay: float, callable: Callable[..., object], *args: object, **kw: object) -> Any:
        if not delay:
            super().callLater(0, lambda: self.read())
        return super().callLater(delay, callable, *args, **kw)
