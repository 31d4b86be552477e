"""Who is at the other end of a Unix socket's connection, as the kernel says. Knows nothing of what is spoken there."""

from __future__ import annotations

import socket
import struct
from typing import Any

_CREDENTIALS = struct.Struct("3i")  # struct ucred of unix(7): pid, uid, gid


def peer(transport: Any) -> tuple[int, int]:
    """(pid, uid), by SO_PEERCRED. Raises OSError."""
    handle: socket.socket = transport.getHandle()
    pid, uid, _ = _CREDENTIALS.unpack(handle.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, uid
