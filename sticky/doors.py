"""Unix sockets that containers listen on: connected to as what they are. Must not know whose they are.

A container owns the folder that its socket is in. With a link in the socket's place it would have the daemon connect, with the
daemon's rights, to whatever it names (an engine's socket, another user's service), and hand it the requests of the container's own
sessions. So what is there is opened first, without following a link (O_PATH, open(2)), and the connection goes to that.
"""

from __future__ import annotations

import errno
import os
import socket
import stat

from sticky.exhaustion import is_ours


def connect(handle: socket.socket, path: str) -> int:
    """Like `handle.connect_ex(path)`, an errno; ECONNREFUSED where there is anything but a socket.

    Raises OSError where no descriptor is left to look with.
    """
    try:
        there = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if is_ours(error):
            raise
        return error.errno or errno.EIO
    try:
        if not stat.S_ISSOCK(os.fstat(there).st_mode):
            return errno.ECONNREFUSED
        return handle.connect_ex(f"/proc/self/fd/{there}")
    finally:
        os.close(there)
