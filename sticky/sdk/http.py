"""One request with the standard library, blocking. Owns sockets and time-outs; must not know what a call means.

No redirect is followed and no proxy of the environment is used: a token goes where it was sent, or nowhere.
"""

from __future__ import annotations

import http.client
import socket
import ssl
from pathlib import Path
from urllib.parse import urlsplit

from sticky.sdk.steps import BROKEN_OFF, LONGEST_ANSWER, Ask, Failure, Reply, dialled, failed, silent


def perform(ask: Ask) -> Reply | Failure:
    """Send it, on a connection of its own. Never raises for what the network or the peer does."""
    parts = urlsplit(ask.url)
    try:
        connection = Connection(ask.url, ask.timeout, ask.socket)
        try:
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request(ask.method, target, ask.body or None, {"Host": parts.netloc, **ask.headers})
            response = connection.getresponse()
            body = response.read(LONGEST_ANSWER)
            # A read of a given size is silent about a body that broke off; http.client counts what is missing.
            if response.length or (response.length is None and response.read(1)):
                return BROKEN_OFF
            return Reply(response.status, body)
        finally:
            connection.close()
    except TimeoutError:
        return silent(ask)
    except OSError as error:
        return failed(error)
    except http.client.HTTPException as error:
        return Failure(f"the answer is not HTTP or broke off ({type(error).__name__})")


class Connection(http.client.HTTPConnection):
    """Connects where a URL says, or to a Unix socket whatever it says. Raises OSError as its base class does.

    Who sends a request says its Host: what is dialled is not always what the URL names (`dialled`).
    """

    def __init__(self, url: str, timeout: float | None, path: Path | None = None) -> None:
        """`timeout`: seconds for each step, as of a socket."""
        parts = urlsplit(url)
        self._tls = ssl.create_default_context() if parts.scheme == "https" and path is None else None
        port = parts.port or (443 if self._tls is not None else 80)
        super().__init__(parts.hostname or "", port, timeout=timeout)
        self._path = path

    def connect(self) -> None:
        if self._path is not None:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.settimeout(self.timeout)
            self.sock.connect(str(self._path))
            return
        self.sock = socket.create_connection((dialled(self.host), self.port), self.timeout)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is not None:
            self.sock = self._tls.wrap_socket(self.sock, server_hostname=self.host)
