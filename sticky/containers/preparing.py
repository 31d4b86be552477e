"""What can be done once for all containers of a Python Server: its app's import, its instance, its `enter(snap=True)` hooks.

Imports user code, so it runs in a container, or in the process that containers are forked from. Must not know which.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from sticky.containers.hooks import log, print_failure, run_alone
from sticky.sdk.decorators import enter_hooks
from sticky.sdk.loading import LoadError, load_app, names_file
from sticky.sdk.server import Server


class HookFailed(Exception):
    """A hook raised; the text says which, and `error` is what it raised."""

    def __init__(self, what: str, error: BaseException) -> None:
        super().__init__(what)
        self.error = error


def prepare(target: str, name: str | None, preimport: Sequence[str]) -> tuple[Server, object]:
    """What can be done once for all containers of a Server: imports, the instance, `enter(snap=True)` hooks.

    Raises `LoadError`, `HookFailed`.
    """
    if preimport and names_file(target):
        sys.path.insert(0, str(Path(target).absolute().parent))  # as for the app itself, which comes afterwards
    for module in preimport:
        try:
            importlib.import_module(module)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise LoadError(f"preimport {module} failed: {type(error).__name__}: {error}") from None
    server = find_server(target, name)
    instance = server.cls() if server.cls is not None else None
    for hook in enter_hooks(type(instance))[0]:
        failure = run_alone(getattr(instance, hook))
        if failure is not None:
            raise HookFailed(f"the enter hook {server.name}.{hook}", failure)
    return server, instance


def find_server(target: str, name: str | None) -> Server:
    """Import the target and choose its Server. Raises `LoadError`."""
    app = load_app(target)
    known = ", ".join(app.servers) or "none"
    if name is None and len(app.servers) != 1:
        raise LoadError(f"the app {app.name!r} has these Servers: {known}; choose one with --server")
    server = next(iter(app.servers.values())) if name is None else app.servers.get(name)
    if server is None:
        raise LoadError(f"there is no Server {name!r} in the app {app.name!r}; it has: {known}")
    if server.declaration is None or server.declaration.command is not None:
        raise LoadError(f"the Server {server.name!r} has a command: run that")
    return server


def explain(problem: LoadError | HookFailed) -> None:
    """In the log, with the user's traceback."""
    if isinstance(problem, HookFailed):
        print_failure(str(problem), problem.error)
    else:
        log(f"{problem.trace}sticky: {problem}\n")
