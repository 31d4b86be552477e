"""How the command reaches a daemon: by the socket of its state directory, or over the network with a token. Speaks HTTP for none."""

from __future__ import annotations

import errno
import http.client
import os
import pwd
import socket
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from sticky.admin.sockets import LONGEST, find
from sticky.cli.problems import Problem, Status
from sticky.sdk.steps import dialled

#: Seconds that the socket of a daemon that is there may not be: one starts, or another one takes over.
COMES_WITHIN = 15.0
_AGAIN = 0.1  #: seconds between two attempts


class Way(Protocol):
    """One way to one daemon."""

    @property
    def where(self) -> str:
        """For sentences: "on …"."""

    @property
    def headers(self) -> Mapping[str, str]:
        """What every request carries."""

    def connection(self, timeout: float | None) -> http.client.HTTPConnection:
        """Not connected yet. Raises OSError where that cannot be."""

    def unreachable(self, error: OSError) -> Problem:
        """Why it could not be connected, and what to do."""


class SocketWay:
    """The admin socket, for the daemon's own user and root."""

    headers: Mapping[str, str] = {}

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir.absolute()
        self.socket = find(self.state_dir)

    @property
    def where(self) -> str:
        """See `Way`."""
        return str(self.socket)

    def connection(self, timeout: float | None) -> http.client.HTTPConnection:
        """See `Way`."""
        if len(os.fsencode(self.socket)) > LONGEST:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        return _UnixConnection(self.socket, self.state_dir / "lock", timeout)

    def unreachable(self, error: OSError) -> Problem:
        """See `Way`."""
        where = f"the state directory {self.state_dir}"
        look = "Name the daemon's state directory with --state-dir or STICKY_STATE_DIR."
        if isinstance(error, PermissionError):
            return Problem(
                f"you may not use {self.socket}, which belongs to the user {_owner(self.socket, self.state_dir)}",
                Status.NO_DAEMON,
                "Run the command as that user or as root (sudo -u).",
            )
        if error.errno == errno.ENOENT:
            what = "there is no admin socket" if self.state_dir.is_dir() else "it is not there"
            return Problem(
                f"no daemon runs with {where}: {what}",
                Status.NO_DAEMON,
                f"{look} Or start one: sticky serve app.py",
            )
        if error.errno == errno.ECONNREFUSED:
            return Problem(
                f"the daemon of {where} has died: nobody listens on {self.socket}",
                Status.NO_DAEMON,
                "Start it again; its containers and sessions are taken up where they still run.",
            )
        if error.errno == errno.ENAMETOOLONG:
            return Problem(
                f"the path {self.socket} is too long for a socket",
                Status.NO_DAEMON,
                'Give the daemon a shorter one: [daemon] admin = "unix:/run/user/…/sticky.sock".',
            )
        return Problem(f"cannot reach the daemon on {self.socket}: {error.strerror or error}", Status.NO_DAEMON, look)


class NetworkWay:
    """An admin API that listens on TCP, for the holder of a token that may use it. The repr hides the token."""

    def __init__(self, url: str, token: str) -> None:
        """Raises `Problem` for what is no URL, and for a token that cannot be one."""
        parts = urlsplit(url)
        try:
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            usable = False
        if not usable or parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc:
            raise Problem("--url is no URL of a daemon", Status.USAGE, "Its form is https://host:port.")
        if not token:
            raise Problem(
                "--url needs an admin token, and STICKY_ADMIN_TOKEN is not set",
                Status.USAGE,
                "Make one where the daemon runs: sticky tokens create --owner NAME --admin.",
            )
        if not (token.isascii() and token.isprintable() and " " not in token) or token.startswith("v4.public."):
            what = "holds a session token, not" if token.startswith("v4.public.") else "does not hold"
            raise Problem(f"STICKY_ADMIN_TOKEN {what} a proxy token; its form is wk-<id>.ws-<secret>", Status.USAGE)
        self._parts = parts
        self._token = token

    @property
    def where(self) -> str:
        """See `Way`."""
        return f"{self._parts.scheme}://{self._parts.netloc}"

    @property
    def headers(self) -> Mapping[str, str]:
        """See `Way`."""
        return {"Authorization": f"Bearer {self._token}", "Host": self._parts.netloc}

    def connection(self, timeout: float | None) -> http.client.HTTPConnection:
        """See `Way`."""
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "https":
            return http.client.HTTPSConnection(host, port or 443, timeout=timeout, context=ssl.create_default_context())
        return http.client.HTTPConnection(dialled(host), port or 80, timeout=timeout)

    def unreachable(self, error: OSError) -> Problem:
        """See `Way`."""
        if isinstance(error, ssl.SSLCertVerificationError):
            return Problem(
                f"nobody vouches for the certificate of {self.where}: {error.verify_message}",
                Status.NO_DAEMON,
                "Name the authority's file in SSL_CERT_FILE, or use the name that the certificate is for.",
            )
        return Problem(
            f"cannot reach the daemon at {self.where}: {error.strerror or type(error).__name__}",
            Status.NO_DAEMON,
            "Is daemon.admin_listen set there, and the port open?",
        )


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, lock: Path, timeout: float | None) -> None:
        super().__init__("sticky", timeout=timeout)
        self._path = path
        self._lock = lock

    def connect(self) -> None:
        deadline = time.monotonic() + COMES_WITHIN
        while True:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.settimeout(self.timeout)
            try:
                self.sock.connect(str(self._path))
                return
            except (FileNotFoundError, ConnectionRefusedError):
                self.sock.close()  # not all of the connection: its request has begun
                if time.monotonic() >= deadline or not _is_held(self._lock):
                    raise
            time.sleep(_AGAIN)


def _is_held(lock: Path) -> bool:
    """Whether a daemon has this lock, as the kernel tells (proc(5), /proc/locks): to try it would be in the way of one that starts."""
    try:
        inode = str(lock.stat().st_ino)
        held = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    except OSError:
        return False
    return any("FLOCK" in words and "WRITE" in words and words[5].rpartition(":")[2] == inode for words in held)


def _owner(*paths: Path) -> str:
    for path in paths:
        try:
            return pwd.getpwuid(path.stat().st_uid).pw_name
        except (OSError, KeyError):
            continue
    return "of the daemon"
