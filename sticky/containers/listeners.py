"""Which sockets of this machine listen where: asked of the kernel. Must not know whose they are.

By sock_diag(7): one question over netlink that walks only the listening sockets (0.03 ms measured). Reading /proc/net/tcp
walks the whole table of connections even when it is empty (4 ms measured), and is here for kernels without inet_diag.
"""

from __future__ import annotations

import os
import re
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import attrs

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_REQUEST_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
_ERROR, _DONE = 2, 3  # NLMSG_ERROR, NLMSG_DONE
_TCP_LISTEN = 10
_HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
_QUESTION = struct.Struct("=BBBxI48x")  # inet_diag_req_v2: family, protocol, extensions, states, socket id
_ANSWER = struct.Struct("!4xH2x16s")  # inet_diag_msg from its start: skip family..., source port, source address
_INODE = struct.Struct("=I")
_INODE_AT = 68  # in inet_diag_msg: 4 bytes, a socket id of 48, expires, rqueue, wqueue, uid
_PATIENCE = 0.5  # seconds; the kernel answers within the call

_TABLE_ROW = rb"^ *\d+: ([0-9A-F]+):(%b) [0-9A-F]+:0000 0A \S+ \S+ \S+ +\d+ +\d+ (\d+)"
_ACCEPTS = 0x10000  # __SO_ACCEPTCON in the flags column of /proc/net/unix: the socket listens


@attrs.frozen
class Listener:
    """A listening TCP socket."""

    host: str  #: the address it is bound to, as inet_ntop writes it
    port: int
    inode: int


def tcp_listeners(port: int | None = None) -> list[Listener]:
    """Every socket that listens on the port, or on any; IPv4 and IPv6."""
    try:
        return list(_by_netlink(port))
    except OSError:
        return list(_by_table(port))


def unix_listeners(path: str, process: int) -> set[int]:
    """The inodes of the sockets that listen on a path, of those in this process's network: the kernel lists no others for it."""
    try:
        table = Path(f"/proc/{process}/net/unix").read_bytes()
    except OSError:
        return set()
    rows = [line.split(None, 7) for line in table.splitlines()[1:]]
    return {int(row[6]) for row in rows if len(row) == 8 and os.fsdecode(row[7]) == path and int(row[3], 16) & _ACCEPTS}


def _by_netlink(port: int | None) -> Iterator[Listener]:
    """Raises OSError where the kernel has no inet_diag."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(_PATIENCE)
        for family in (socket.AF_INET, socket.AF_INET6):
            question = _QUESTION.pack(family, socket.IPPROTO_TCP, 0, 1 << _TCP_LISTEN)
            header = _HEADER.pack(_HEADER.size + len(question), _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, 1, 0)
            kernel.sendto(header + question, (0, 0))
            for message in _dumped(kernel):
                source, raw = _ANSWER.unpack_from(message)
                if port in (None, source):
                    host = socket.inet_ntop(family, raw[:4] if family == socket.AF_INET else raw)
                    yield Listener(host, source, *_INODE.unpack_from(message, _INODE_AT))


def _dumped(kernel: socket.socket) -> Iterator[bytes]:
    while True:
        received = kernel.recv(65_536)
        while received:
            length, kind, *_ = _HEADER.unpack_from(received)
            if kind == _DONE:
                return
            if kind == _ERROR:
                number = -struct.unpack_from("=i", received, _HEADER.size)[0]
                raise OSError(number, os.strerror(number))
            yield received[_HEADER.size : length]
            received = received[(length + 3) & ~3 :]


def _by_table(port: int | None) -> Iterator[Listener]:
    pattern = re.compile(_TABLE_ROW % (b"[0-9A-F]{4}" if port is None else b"%04X" % port), re.MULTILINE)
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = Path(table).read_bytes()
        except OSError:
            continue
        for local, where, inode in pattern.findall(rows):
            yield Listener(_address(local.decode()), int(where, 16), int(inode))


def _address(text: str) -> str:
    """An address of /proc/net/tcp: hexadecimal, in words of 32 bits in the machine's own byte order."""
    words = [int(text[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(text), 8)]
    return socket.inet_ntop(socket.AF_INET if len(words) == 1 else socket.AF_INET6, b"".join(words))
