"""What a command writes, while a test runs it in its own process."""

from __future__ import annotations

import io
import sys

from twisted.trial.unittest import SynchronousTestCase


class Captured:
    """In place of stdout and stderr, neither of which is a terminal then."""

    def __init__(self, case: SynchronousTestCase) -> None:
        self._out, self._err = io.StringIO(), io.StringIO()
        case.patch(sys, "stdout", self._out)
        case.patch(sys, "stderr", self._err)

    @property
    def out(self) -> str:
        return self._out.getvalue()

    @property
    def err(self) -> str:
        return self._err.getvalue()

    def clear(self) -> None:
        for stream in (self._out, self._err):
            stream.seek(0)
            stream.truncate()
