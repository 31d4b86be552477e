"""What the kernel knows of a TCP connection that nobody reads (tcp(7), TCP_INFO), and how it is told to watch for dead peers.

A transport that is not read shows neither a reset nor how much its peer has taken. Linux only; elsewhere, and for anything
but plain TCP, the answers are None and 0.
"""

from __future__ import annotations

import socket
import struct
from typing import Any

_CLOSED = 7  # TCP_CLOSE: the peer has reset the connection
_ACKED_AT = 120  # tcpi_bytes_acked, 64 bits


def was_reset(transport: Any) -> bool:
    """Whether the peer has reset this connection. Costs about a microsecond."""
    info = _info(transport, 1)
    return info is not None and info[0] == _CLOSED


def bytes_taken(transport: Any) -> int:
    """How many bytes the peer's kernel has acknowledged so far; 0 where that cannot be known."""
    info = _info(transport, _ACKED_AT + 8)
    return 0 if info is None or len(info) < _ACKED_AT + 8 else int(struct.unpack_from("Q", info, _ACKED_AT)[0])


def watch_for_dead_peer(transport: Any) -> None:
    """Keepalive probes after a minute of silence, and the end after four of them (the kernel's own default is two hours)."""
    transport.setTcpKeepAlive(True)
    handle = _socket(transport)
    if handle is not None and hasattr(socket, "TCP_KEEPIDLE"):
        try:
            handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
            handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15)
            handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)
        except OSError:  # the peer is gone already: the transport will say so
            return


def tune_listener(handle: socket.socket) -> None:
    """What `watch_for_dead_peer` sets, and no delay, for all connections accepted here: Linux lets them inherit it."""
    handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    handle.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
    handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15)
    handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)


def _socket(transport: Any) -> socket.socket | None:
    handle = transport.getHandle() if hasattr(transport, "getHandle") else None
    if isinstance(handle, socket.socket) and handle.family in (socket.AF_INET, socket.AF_INET6):
        return handle
    return None


def _info(transport: Any, size: int) -> bytes | None:
    handle = _socket(transport)
    if handle is None:
        return None
    try:
        return handle.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, size)
    except OSError:
        return None
