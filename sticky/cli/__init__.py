"""The `sticky` command. `main` runs one; each file beside this one owns a few commands, `problems` the exit statuses.

It speaks to a daemon through the admin API of its state directory, never to its rooms. The daemon itself is `twistd sticky`.
"""

from sticky.cli.main import main

__all__ = ["main"]
