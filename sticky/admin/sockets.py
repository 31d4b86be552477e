"""The admin socket as a file: its path, its mode, what may lie there already. Standard library only; the command uses it too."""

from __future__ import annotations

import errno
import os
import re
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

DEFAULT_NAME: Final = "admin.sock"  #: in the state directory
POINTER_NAME: Final = "admin"  #: in the state directory, if the socket is elsewhere: one line, its path
LONGEST: Final = 107  #: bytes of a path: sun_path without its closing zero (unix(7))
_PATIENCE = 2.0  #: seconds for whoever listens there to accept


class Taken(Exception):
    """The address cannot be used. The text says what lies there and what to do."""


def socket_path(endpoint: str) -> Path:
    """The path in a `unix:` endpoint string. Raises ValueError for any other string."""
    fields = re.findall(r"(?:^|:)((?:\\.|[^:\\])*)", endpoint, re.DOTALL)
    for field in fields[1:] if fields and fields[0] == "unix" else ():
        name, equals, value = field.partition("=") if not field.endswith("\\") else (field, "", "")
        if name.endswith("\\") or not equals:
            name, value = "address", field
        if name == "address":
            return Path(re.sub(r"\\(.)", r"\1", value, flags=re.DOTALL))
    raise ValueError("not a unix: endpoint string with a path")


def find(state_dir: Path) -> Path:
    """Where the daemon of this state directory has its admin socket, whether it is there or not."""
    with suppress(OSError, UnicodeDecodeError):
        line = (state_dir / POINTER_NAME).read_text("utf-8").strip()
        if line:
            return Path(line)
    return state_dir / DEFAULT_NAME


def make_way(path: Path) -> None:
    """See that a socket can be made here: that of a dead daemon is removed.

    Raises `Taken` if a living one answers there or something else lies there, OSError as the system does.
    """
    if len(os.fsencode(path)) > LONGEST:
        raise Taken(f"the path {path} is longer than {LONGEST} bytes; choose another one (daemon.admin)")
    try:
        found = path.lstat()
    except FileNotFoundError:
        if not os.access(path.parent, os.W_OK | os.X_OK):
            if can_only_be_read(path.parent):
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path)) from None
            raise Taken(f"{path} cannot be made: its folder is not there, or is not ours to write to") from None
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise Taken(f"{path} is there and is no socket; remove it or choose another path (daemon.admin)")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PATIENCE)
        try:
            probe.connect(str(path))
        except OSError as error:
            if error.errno not in (errno.ECONNREFUSED, errno.ENOENT):
                raise
            path.unlink(missing_ok=True)  # nobody listens there any more
            return
    raise Taken(f"another daemon answers on {path}; stop it, or choose another --state-dir")


def can_only_be_read(folder: Path) -> bool:
    """Whether it is on a file system where nobody may write, whatever the rights of its files."""
    try:
        return bool(os.statvfs(folder).f_flag & os.ST_RDONLY)
    except OSError:
        return False


@contextmanager
def private() -> Iterator[None]:
    """What is made meanwhile is for this user alone from its first moment on; a chmod afterwards would be too late."""
    before = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(before)
