"""What a call asks of its sandbox: packages that are there, and a budget of memory. Runs INSIDE the interpreter."""

from __future__ import annotations

import importlib.metadata
import os
import re
import resource
from collections.abc import Sequence

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_UNLIMITED = resource.getrlimit(resource.RLIMIT_DATA)


class Refused(Exception):
    """The call cannot run as it was asked for, or what it gave cannot go back."""

    def __init__(self, code: str, text: str) -> None:
        self.code = code
        super().__init__(text)


def check_packages(packages: Sequence[str]) -> None:
    """Raises `Refused` for one that is not installed here. Its version is the operator's choice."""
    for package in packages:
        found = _NAME.match(package)
        try:
            importlib.metadata.version(package if found is None else found[0])
        except importlib.metadata.PackageNotFoundError:
            text = (
                f"The sandboxes of this Server lack the package {package!r}; add it to `packages` of its sandbox table."
            )
            raise Refused("invalid_request", text) from None


def limit_memory(size: int | None) -> None:
    """So many bytes of data for the process from now on; None: no limit of a call. More is a MemoryError of the function.

    Raises `Refused` where the container itself has less.
    """
    soft, hard = _UNLIMITED
    if size is None:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
        return
    container = os.environ.get("STICKY_MEMORY", "")
    if container.isdigit() and size > int(container):
        raise Refused(
            "invalid_request", f"The call asks for {size} bytes of memory; a sandbox of this Server has {container}."
        )
    resource.setrlimit(resource.RLIMIT_DATA, (size if hard == resource.RLIM_INFINITY else min(size, hard), hard))
