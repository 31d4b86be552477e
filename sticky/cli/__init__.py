"""The `sticky` command. `main` runs one; each file beside this one owns a few commands, `problems` the exit statuses.

It speaks to a daemon through the admin API of its state directory, never to its rooms. The daemon itself is `twistd sticky`.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status. Raises SystemExit only where a signal's handler does."""
    try:
        # Here, because it takes a while: a Ctrl-C meanwhile is one like any other.
        from sticky.cli.once import once
    except KeyboardInterrupt:
        return 130
    return once(arguments)
