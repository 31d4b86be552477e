"""Cuts TCP connections of other processes as a network would that loses them: both ends are reset. Must not know whose they are."""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import Iterator
from pathlib import Path

_PIDFD_GETFD = 438  # the same on every architecture (Linux 5.6)
_UNSPECIFIED = bytes(16)  # a sockaddr of AF_UNSPEC: connect(2) dissolves the association

_libc = ctypes.CDLL(None, use_errno=True)


def connections(pid: int) -> Iterator[tuple[int, int, socket.socket]]:
    """(its own port, the other's port, a copy of the socket that the caller closes) of each TCP connection of a process.

    Raises PermissionError where its descriptors may not be looked at: that takes what ptrace(2) takes.
    """
    try:
        watch = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        for name in _listed(pid):
            copied = _libc.syscall(_PIDFD_GETFD, watch, int(name), 0)
            if copied < 0:
                if (number := ctypes.get_errno()) == 1:
                    raise PermissionError(number, os.strerror(number))
                continue  # closed meanwhile
            yield from _connection(copied)
    finally:
        os.close(watch)


def cut(connection: socket.socket) -> None:
    """Reset it, at both ends."""
    _libc.connect(connection.fileno(), _UNSPECIFIED, len(_UNSPECIFIED))


def _listed(pid: int) -> list[str]:
    folder = Path(f"/proc/{pid}/fd")
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return [name for name in names if _target(folder / name).startswith("socket:")]


def _target(path: Path) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _connection(descriptor: int) -> Iterator[tuple[int, int, socket.socket]]:
    copy = socket.socket(fileno=descriptor)
    if copy.family == socket.AF_INET and copy.type == socket.SOCK_STREAM:
        try:
            own, other = copy.getsockname()[1], copy.getpeername()[1]
        except OSError:
            pass  # one that listens
        else:
            yield own, other, copy
            return
    copy.close()
