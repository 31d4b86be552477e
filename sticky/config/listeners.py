"""Twisted endpoint strings as settings: their form, and the paths in them. Opens nothing and needs no reactor."""

from __future__ import annotations

import re
from ipaddress import ip_address

from twisted.internet.endpoints import serverFromString

from sticky.config.kinds import Place, Refused, absolute

ALLOWED = (
    "Twisted endpoint strings such as tcp:8080:interface=127.0.0.1, ssl:8443:privateKey=key.pem:certKey=cert.pem, "
    "unix:proxy.sock or haproxy:tcp:8080"
)
#: Longest path of a Unix socket that Linux takes: sun_path has 108 bytes, one of them is the zero (unix(7)).
LONGEST_SOCKET_PATH = 107

_FIELDS = re.compile(r"(?:^|:)((?:\\.|[^:\\])*)", re.DOTALL)
_NAMED = re.compile(r"((?:\\.|[^\\=])*)(=)(.*)", re.DOTALL)
_PATHS = {"privateKey", "certKey", "extraCertChain", "dhParameters"}  #: keyword arguments of ssl: that name files
_WRAPPERS = {"haproxy"}  #: endpoint types whose first argument is another endpoint
_PORTS = {"tcp", "tcp6", "ssl"}  #: endpoint types whose first argument is a port number


def endpoint(text: str, place: Place) -> str:
    """A listener's endpoint string with absolute paths. Raises `Refused` if Twisted would not take it.

    Success does not promise that the address is free. Certificates of `ssl:` have been read once.
    """
    fields = _FIELDS.findall(text)
    wrappers = []
    while fields and fields[0] in _WRAPPERS:
        wrappers.append(fields.pop(0))
    if not fields or not fields[0]:
        raise Refused
    kind, arguments = fields[0], [_resolved(fields[0], index, field, place) for index, field in enumerate(fields[1:])]
    resolved = ":".join([*wrappers, kind, *arguments])
    try:
        # The reactor is only stored: nothing listens here.
        serverFromString(None, resolved)
    except OSError as error:
        raise Refused(f"{text!r}: cannot read {str(error.filename)!r}: {error.strerror}") from None
    except Exception as error:
        # Parsers are plugins and raise what they like (TypeError for a missing argument, OpenSSL's own errors).
        if kind == "ssl" and not isinstance(error, TypeError):
            reason = "the certificate or key cannot be used"
        elif isinstance(error, ValueError) and kind not in _PORTS:
            reason = str(error)
        else:
            reason = "not of a form that Twisted takes"
        raise Refused(f"{text!r}: {reason}; allowed: {ALLOWED}") from None
    return resolved


def tcp_endpoint(text: str, place: Place) -> str:
    """As `endpoint`, but only what opens a port."""
    if text.partition(":")[0] not in _PORTS:
        raise ValueError("no port is opened by this")
    return endpoint(text, place)


def reaches_others(endpoint: str) -> bool:
    """Whether a port is opened for more than this machine."""
    interface = next((field[10:] for field in _FIELDS.findall(endpoint) if field.startswith("interface=")), "")
    text = _unquoted(interface)
    try:
        return not ip_address(text).is_loopback
    except ValueError:
        return text != "localhost"


def quoted(text: str) -> str:
    """A text as one argument of an endpoint string. Twisted's own function leaves `=`, which would end a keyword."""
    return re.sub(r"([\\:=])", r"\\\1", text)


def _resolved(kind: str, index: int, field: str, place: Place) -> str:
    named = _NAMED.fullmatch(field)
    key, equals, value = named.groups() if named else ("", "", field)
    if kind in _PORTS and (key == "port" or (not key and index == 0)):
        if not (value.isascii() and value.isdigit()) or int(value) > 65535:
            raise Refused(f"{value!r} is not a port; allowed: a whole number from 0 to 65535")
    elif (kind == "unix" and (key == "address" or (not key and index == 0))) or key in _PATHS:
        path = str(absolute(_unquoted(value), place))
        if kind == "unix" and len(path.encode()) > LONGEST_SOCKET_PATH:
            raise Refused(
                f"the socket's path {path!r} is too long; allowed: at most {LONGEST_SOCKET_PATH} bytes, so choose a shorter directory"
            )
        return f"{key}{equals}{quoted(path)}"
    return field


def _unquoted(value: str) -> str:
    return re.sub(r"\\(.)", r"\1", value, flags=re.DOTALL)
