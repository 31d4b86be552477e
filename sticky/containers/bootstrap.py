"""Starts the runtime in an interpreter that need not have Sticky installed: `python bootstrap.py FOLDER-OF-ATTRS serve ...`.

Run as a file, never imported. The interpreter finds this very Sticky, whatever it has installed itself, and attrs if it has
none; nothing else of the daemon's environment. Standard library only, in a form that an old Python can still refuse.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

NEEDED = (3, 11)


class Beside:
    """Finds certain packages in certain folders, and nothing else there."""

    def __init__(self, folders: dict[str, str]) -> None:
        self._folders = folders

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        if path is not None or name not in self._folders:
            return None
        from importlib.machinery import PathFinder

        return PathFinder.find_spec(name, [self._folders[name]])


def main() -> int:
    """See the module."""
    if sys.version_info < NEEDED:
        sys.stderr.write(
            f"sticky: the interpreter {sys.executable} is Python {sys.version_info[0]}.{sys.version_info[1]};"
            f" an app's python= needs {NEEDED[0]}.{NEEDED[1]} or newer\n"
        )
        return 1
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != here]
    attrs = sys.argv.pop(1)
    sys.meta_path.insert(0, Beside({"sticky": os.path.dirname(os.path.dirname(here))}))
    sys.meta_path.append(Beside({"attr": attrs, "attrs": attrs}))
    from sticky.containers import runtime

    return runtime.main()


if __name__ == "__main__":
    status = main()
    if sys.version_info >= NEEDED:
        from sticky.containers.runtime import leave

        leave(status)
    sys.exit(status)
