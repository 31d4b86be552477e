"""One request with the standard library, blocking. Owns sockets and time-outs; must not know what a call means.

No redirect is followed and no proxy of the environment is used: a token goes where it was sent, or nowhere.
"""

from __future__ import annotations

import http.client
import socket
import ssl
from urllib.parse import urlsplit

from sticky.sdk.steps import BROKEN_OFF, LONGEST_ANSWER, Ask, Failure, Reply, dialled, failed, silent


def perform(ask: Ask) -> Reply | Failure:
    """Send it, on a connection of its own. Never raises for what the network or the peer does."""
    parts = urlsplit(ask.url)
    try:
        connection = _Connection(ask)
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


class _Connection(http.client.HTTPConnection):
    """Connects where the request says."""

    def __init__(self, ask: Ask) -> None:
        parts = urlsplit(ask.url)
        self._tls = ssl.create_default_context() if parts.scheme == "https" and ask.socket is None else None
        port = parts.port or (443 if self._tls is not None else 80)
        super().__init__(parts.hostname or "", port, timeout=ask.timeout)
        self._socket = ask.socket

    def connect(self) -> None:
        if self._socket is not None:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.settimeout(self.timeout)
            self.sock.connect(str(self._socket))
            return
        self.sock = socket.create_connection((dialled(self.host), self.port), self.timeout)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is not None:
            self.sock = self._tls.wrap_socket(self.sock, server_hostname=self.host)
