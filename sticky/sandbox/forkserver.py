"""A process that has imported what sandboxes need, and forks each that is asked for. Runs beside the daemon, without a call.

How it is asked: `forking.serving`. What a preimport left behind that must not be forked is said, and then no sandbox is.
"""

from __future__ import annotations

import argparse
import importlib
import os
import socket
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from sticky.forking.fitness import Unfit
from sticky.forking.serving import Control
from sticky.sandbox.frames import Kind, document, frame
from sticky.sandbox.packages import NotInstalled, ensure


def prepare(preimport: Sequence[str], packages: Sequence[str]) -> None:
    """Import everything. Raises `Unfit`."""
    if packages:
        try:
            sys.path.insert(0, str(ensure(Path(os.environ.get("STICKY_PACKAGES") or "packages"), packages)))
        except (NotInstalled, OSError) as error:
            raise Unfit(f"packages could not be installed: {error}") from None
    # What every call needs: the first one in each sandbox would import them.
    for name in ("cloudpickle", "asyncio", "sticky.sandbox.__main__", *preimport):
        try:
            importlib.import_module(name)
        except Exception as error:
            raise Unfit(f"preimport {name}: {type(error).__name__}: {error}") from None


def begin(given: Mapping[str, int]) -> NoReturn:
    """In a fork: a sandbox, for ever. `door`: its listening socket; `lifeline`: see `forking.becoming`."""
    from sticky.sandbox.__main__ import run

    _close_all_but({0, 1, 2, *(given[name] for name in ("door", "lifeline") if name in given)})
    run(socket.socket(fileno=given["door"]), snapshot=True)
    raise AssertionError("it runs for ever")


def visit(connection: socket.socket) -> None:
    """Call a function that does nothing, from the call's first byte to its answer's last. Raises OSError."""
    import cloudpickle  # type: ignore[import-untyped]

    parts: dict[str, object] = dict.fromkeys(("doc", "defaults", "kwdefaults", "closure"))
    nothing = {**parts, "code": (lambda: None).__code__, "name": "nothing", "qualname": "nothing", "attributes": {}}
    function = cloudpickle.dumps({"module": "nothing", "function": nothing, "globals": {}})
    arguments = cloudpickle.dumps(((), {}))
    sizes = {"function": len(function), "arguments": len(arguments)}
    body = document(Kind.CALL, {"sizes": sizes}) + frame(Kind.FUNCTION, function) + frame(Kind.ARGUMENTS, arguments)
    connection.sendall(b"POST /calls HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    answer = b""
    while not answer.endswith(b"\r\n0\r\n\r\n"):
        piece = connection.recv(1 << 16)
        if not piece:
            raise ConnectionResetError("the sandbox gave no answer")
        answer += piece


def _close_all_but(kept: Collection[int]) -> None:
    """What a preimport has left open is not for sandboxes: they would share its position."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            try:
                os.close(int(name))
            except OSError:
                pass  # the descriptor of the listing itself


def main(arguments: Sequence[str] | None = None) -> int:
    """Until the daemon is gone; 1 where nothing can be forked."""
    parser = argparse.ArgumentParser(prog="python -m sticky.sandbox.forkserver")
    parser.add_argument("--preimport", action="append", default=[])
    parser.add_argument("--package", action="append", default=[])
    options = parser.parse_args(arguments)
    return Control().serve(lambda: prepare(options.preimport, options.package), begin, visit)


if __name__ == "__main__":
    sys.exit(main())
