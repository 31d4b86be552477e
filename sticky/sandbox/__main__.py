"""`python -m sticky.sandbox SOCKET [--preimport MODULE]...`: a sandbox, from its start to its end. Runs INSIDE a container."""

from __future__ import annotations

import argparse
import importlib
import os
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from sticky.sandbox import serving
from sticky.sandbox.interpreter import Interpreter
from sticky.sandbox.packages import NotInstalled, ensure


def main(arguments: Sequence[str] | None = None) -> int:
    """Never returns, but for what cannot be started: 1."""
    parser = argparse.ArgumentParser(prog="python -m sticky.sandbox")
    parser.add_argument("socket", help="where calls come in")
    parser.add_argument("--preimport", action="append", default=[], help="a module to import first")
    parser.add_argument("--package", action="append", default=[], help="a package that must be there")
    options = parser.parse_args(arguments)
    if options.package:
        try:
            folder = ensure(Path(os.environ.get("STICKY_PACKAGES") or "packages"), options.package)
        except (NotInstalled, OSError) as error:
            print(f"sticky: packages could not be installed: {error}", file=sys.stderr)
            return 1
        sys.path.insert(0, str(folder))
    for name in options.preimport:
        try:
            importlib.import_module(name)
        except Exception as error:
            print(f"sticky: preimport {name}: {type(error).__name__}: {error}", file=sys.stderr)
            return 1
    run(serving.listen(options.socket), snapshot=False)
    return 0


def run(door: socket.socket, *, snapshot: bool) -> None:
    """Take calls at this door for ever, and run them on this thread."""
    log = os.dup(2)
    interpreter = Interpreter(log, snapshot)
    threading.Thread(target=serving.serve, args=(door, interpreter), daemon=True).start()
    interpreter.run_for_ever()


if __name__ == "__main__":
    sys.exit(main())
