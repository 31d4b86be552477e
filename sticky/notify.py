"""Tells the service manager how the daemon stands (sd_notify(3)), where there is one that wants to know. Knows no daemon."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping


def notify(environ: Mapping[str, str], **facts: object) -> bool:
    """Send such as READY=1. False: nobody listens. What goes wrong on the way is the manager's own loss."""
    path = environ.get("NOTIFY_SOCKET")
    if not path:
        return False
    if path.startswith("@"):
        path = "\0" + path[1:]
    message = "\n".join(f"{name}={value}" for name, value in facts.items())
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to:
            to.sendto(message.encode(), path)
    except OSError:
        return False
    return True


def notify_main(**facts: object) -> bool:
    """The same for this process, with its pid as the service's main one."""
    return notify(os.environ, MAINPID=os.getpid(), **facts)
