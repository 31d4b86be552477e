"""A process that can open nothing: for the time of a `with` block, this one."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_descriptors_left() -> Iterator[None]:
    """Every number below the limit is taken. What is closed within can be had again."""
    taken = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.close(taken)  # the lowest that is free
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
