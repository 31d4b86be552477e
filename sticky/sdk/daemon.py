"""Where the daemon is, and with what proxy token to speak to it: STICKY_URL first, then the admin API of a state directory.

Inside a container STICKY_URL is the public URL of the container's own Server, so there it answers for that one only. A state
directory whose path is too long for a socket has no admin API; its files say the same. Must not know what is asked of a Server.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import attrs

from sticky.admin.sockets import find
from sticky.sdk.exception import AuthError, ConnectionError, ExecutionError, InvalidError, NotFoundError
from sticky.sdk.names import Names, names_from, names_of
from sticky.sdk.steps import Ask, Failure, Reply, Steps, asking

URL_FILE = "url"  #: first line: the daemon's base URL; further lines, if any: a Server's name, a space, its URL
TOKEN_FILE = "proxy-token"  #: mode 0600; first line: the bearer, wk-….ws-…
ADMIN_TIME = 15.0  #: seconds for the admin API's answer


@attrs.frozen
class Place:
    """A Server as its clients reach it. The repr hides the token."""

    url: str  #: without a slash at its end
    names: Names = attrs.field(repr=False)
    bearer: str | None = attrs.field(repr=False)  #: of control calls; None: there is none


class Daemon:
    """Looks up anew at every call: a program may start before its daemon does."""

    def __init__(self, environ: Mapping[str, str] | None = None, cwd: Path | None = None) -> None:
        self._environ = os.environ if environ is None else environ
        self._cwd = Path() if cwd is None else cwd

    @property
    def state_dir(self) -> Path:
        """STICKY_STATE_DIR, else ./state, absolute."""
        return (self._cwd / (self._environ.get("STICKY_STATE_DIR") or "state")).absolute()

    def find(self, app: str, server: str) -> Steps[Place]:
        """A Server. Raises `NotFoundError` with the names that are known, `ConnectionError`, `AuthError`."""
        given = self._environ.get("STICKY_URL")
        inside = self._environ.get("STICKY_CONTAINER_ID") is not None
        if given and (not inside or self._environ.get("STICKY_SERVER") == server):
            return Place(_checked(given, "STICKY_URL"), names_from(self._environ), self.proxy_token())
        if not self._has_admin:
            return Place(self._url_in_files(server, given, inside), names_from(self._environ), self.proxy_token())
        where, reply = yield from self._admin("POST", "/v1/access", {"app": app, "server": server})
        found = {name: reply.fields.get(name) for name in ("url", "brand", "proxy_token")}
        url, brand, bearer = found["url"], found["brand"], found["proxy_token"]
        if not isinstance(url, str) or not isinstance(brand, str) or not isinstance(bearer, str | None):
            raise _other_version(where)
        if not url:
            raise ConnectionError(f"the daemon at {where} listens nowhere that a client could reach by a URL")
        if self._environ.get("STICKY_PROXY_TOKEN"):
            bearer = self.proxy_token()
        return Place(_checked(url, where), names_of(brand), bearer)

    def admin(self, method: str, path: str, body: Mapping[str, object] | None = None) -> Steps[Reply]:
        """A call of the admin API, which only the daemon's own user may make, or who has an admin token.

        Raises `ConnectionError`, `AuthError`, `NotFoundError`, `InvalidError`, `ExecutionError`.
        """
        if not self._has_admin:
            raise ConnectionError(
                f"no Sticky daemon found: there is no admin socket {find(self.state_dir)}."
                " Set STICKY_STATE_DIR to its state directory, or STICKY_ADMIN_URL and STICKY_ADMIN_TOKEN."
            )
        _, reply = yield from self._admin(method, path, body)
        return reply

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
        return _bearer(token, source)

    # --- the admin API

    @property
    def _has_admin(self) -> bool:
        return bool(self._environ.get("STICKY_ADMIN_URL")) or os.path.lexists(find(self.state_dir))

    def _admin(self, method: str, path: str, body: Mapping[str, object] | None) -> Steps[tuple[str, Reply]]:
        url = self._environ.get("STICKY_ADMIN_URL")
        headers = {"Content-Type": "application/json"}
        if url:
            base, socket, where = _checked(url, "STICKY_ADMIN_URL"), None, url
            token = self._environ.get("STICKY_ADMIN_TOKEN") or ""
            headers["Authorization"] = f"Bearer {_bearer(token, 'STICKY_ADMIN_TOKEN')}"
        else:
            socket = find(self.state_dir)
            base, where = "http://sticky", str(socket)
        data = b"" if body is None else json.dumps(body).encode("ascii")
        outcome = yield from asking(
            Ask(method=method, url=base + path, headers=headers, body=data, timeout=ADMIN_TIME, socket=socket)
        )
        if isinstance(outcome, Failure):
            raise ConnectionError(
                f"no answer from the daemon at {where}: {outcome.reason}. Is it running, and yours?"
                " Start one (twistd -n --pidfile= sticky --app ..., or sticky run), or set STICKY_URL and STICKY_PROXY_TOKEN."
            )
        if outcome.status != 200:
            raise _refused(where, outcome)
        return where, outcome

    # --- the files

    def _url_in_files(self, server: str, given: str | None, inside: bool) -> str:
        path = self.state_dir / URL_FILE
        lines = _lines(path)
        if lines is None:
            raise ConnectionError(
                f"no Sticky daemon found for the Server {server!r}: {self._missing(given, inside)} and there is no {path}."
                " Start one (twistd -n --pidfile= sticky --app ..., or sticky run), or set STICKY_URL and STICKY_PROXY_TOKEN."
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

    def _missing(self, given: str | None, inside: bool) -> str:
        if given and inside:
            return f"STICKY_URL of this container is that of {self._environ.get('STICKY_SERVER')!r},"
        return "STICKY_URL is not set"


def _refused(where: str, reply: Reply) -> Exception:
    """What an answer of the admin API other than success means."""
    code, what = reply.code, f"the daemon at {where} answered {reply.quoted}"
    match reply.status:
        case 401 | 403:
            return AuthError(f"{what}. Set STICKY_ADMIN_TOKEN to a proxy token that may use the admin API.")
        case 404 if code == "unknown_server":
            return NotFoundError(f"{what}. Use the names that it has, or deploy the app.")
        case 404 | 405:
            return _other_version(where)
        case status if 400 <= status < 500:
            return InvalidError(f"{what}. The request must change.")
    return ExecutionError(f"{what}. Look at the daemon's log, or try later.")


def _other_version(where: str) -> Exception:
    return ExecutionError(
        f"the daemon at {where} does not know this call: it is of another version."
        " Install the same version of sticky here and there, and restart it."
    )


def _bearer(token: str, source: str) -> str:
    key, _, secret = token.partition(".")
    if not (key.startswith("wk-") and secret.startswith("ws-") and token.isascii() and token.isprintable()):
        what = "holds a session token, not" if token.startswith("v4.public.") else "does not hold"
        raise AuthError(f"{source} {what} a proxy token; its form is wk-<id>.ws-<secret>")
    return token


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
