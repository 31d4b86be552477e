"""Where the daemon is, and with what proxy token to speak to it: the environment first, then the files of a state directory.

Inside a container STICKY_URL is the public URL of the container's own Server, so there it answers for that one only.
Must not know HTTP.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from sticky.sdk.exception import AuthError, ConnectionError, NotFoundError

URL_FILE = "url"  #: first line: the daemon's base URL; further lines, if any: a Server's name, a space, its URL
TOKEN_FILE = "proxy-token"  #: mode 0600; first line: the bearer, wk-….ws-…


class Daemon:
    """Looks up anew at every call: a program may start before its daemon does."""

    def __init__(self, environ: Mapping[str, str] | None = None, cwd: Path | None = None) -> None:
        self._environ = os.environ if environ is None else environ
        self._cwd = Path() if cwd is None else cwd

    @property
    def state_dir(self) -> Path:
        """STICKY_STATE_DIR, else ./state, absolute."""
        return (self._cwd / (self._environ.get("STICKY_STATE_DIR") or "state")).absolute()

    def url(self, server: str) -> str:
        """A Server's URL, without a slash at its end. Raises `NotFoundError`, `ConnectionError`."""
        given = self._environ.get("STICKY_URL")
        inside = self._environ.get("STICKY_CONTAINER_ID") is not None
        if given and (not inside or self._environ.get("STICKY_SERVER") == server):
            return _checked(given, "STICKY_URL")
        path = self.state_dir / URL_FILE
        lines = _lines(path)
        if lines is None:
            raise ConnectionError(
                f"no Sticky daemon found for the Server {server!r}: {self._missing(given, inside)} and there is no {path}."
                " Start one (twistd -n sticky --app ..., or sticky run), or set STICKY_URL and STICKY_PROXY_TOKEN."
            )
        if not lines:
            raise ConnectionError(f"the file {path} is empty: is the daemon still starting?")
        urls = dict(line.split(maxsplit=1) for line in lines[1:] if len(line.split()) == 2)
        if urls and server not in urls:
            raise NotFoundError(
                f"the daemon at {lines[0]} has no Server {server!r}; it has: {', '.join(sorted(urls))}."
                " Use one of these names, or deploy the app."
            )
        return _checked(urls.get(server, lines[0]), str(path))

    def proxy_token(self) -> str | None:
        """The bearer for control calls; None if there is none, which an unauthenticated Server accepts.

        Raises `AuthError` if it is malformed; its text does not repeat it.
        """
        token = self._environ.get("STICKY_PROXY_TOKEN")
        source = "STICKY_PROXY_TOKEN"
        if not token:
            path = self.state_dir / TOKEN_FILE
            lines = _lines(path)
            if not lines:
                return None
            token, source = lines[0], str(path)
        key, _, secret = token.partition(".")
        if not (key.startswith("wk-") and secret.startswith("ws-") and token.isascii() and token.isprintable()):
            raise AuthError(f"{source} does not hold a proxy token; its form is wk-<id>.ws-<secret>")
        return token

    def _missing(self, given: str | None, inside: bool) -> str:
        if given and inside:
            return f"STICKY_URL of this container is that of {self._environ.get('STICKY_SERVER')!r},"
        return "STICKY_URL is not set"


def _lines(path: Path) -> list[str] | None:
    """The lines that hold something; None if there is no such file. Raises `ConnectionError` if it may not be read."""
    try:
        text = path.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConnectionError(f"the file {path} cannot be read: {reason}. Run as the daemon's user.") from None
    return [line.strip() for line in text.splitlines() if line.strip()]


def _checked(url: str, source: str) -> str:
    url = url.strip().rstrip("/")
    if not url.startswith(("http://", "https://")) or not url.isascii() or not url.isprintable() or " " in url:
        raise ConnectionError(f"{source} does not hold a URL; its form is http://host:port or https://host")
    if "@" in url or "?" in url or "#" in url:
        raise ConnectionError(f"{source} holds a URL with user, query or fragment; its form is http://host:port")
    try:
        usable = bool(urlsplit(url).hostname) and urlsplit(url).port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ConnectionError(f"{source} holds a URL without a usable host and port; its form is http://host:port")
    return url
