"""Forms of text that settings have: host names, origins, networks, tokens. Knows no setting by name and resolves nothing.

Each function returns the text as the program compares it, and raises ValueError for what has another form.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Network, IPv6Network, ip_network

from sticky.config.kinds import Place, absolute
from sticky.core.proxy_tokens import is_secret, is_secret_hash, is_token_id

_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = rf"(?:{_LABEL})(?:\.(?:{_LABEL}))*"
_HOST = rf"(?:{_NAME}|\[[0-9a-f:.]+\])"
_DEFAULT_PORTS = {"http": 80, "ws": 80, "https": 443, "wss": 443}

LOG_TARGET = 'a path, "-" for standard output, or "off"'


def log_target(text: str, place: Place) -> str:
    """Where a log goes: "-", "off", or an absolute path."""
    if not text or "\0" in text:
        raise ValueError(text)
    return text if text in ("-", "off") else str(absolute(text, place))


def host_name(text: str, place: Place) -> str:
    """A host name or IP address without port, in lower case, as the edge compares it."""
    host = text.lower()
    if len(host) > 253 or re.fullmatch(_HOST, host) is None:
        raise ValueError(text)
    return host


def origin(text: str, place: Place) -> str:
    """A serialized origin (RFC 6454 section 6.2): lower case, without a default port or a slash at its end."""
    found = re.fullmatch(rf"([a-z][a-z0-9+.-]*)://({_HOST})(?::([0-9]{{1,5}}))?/?", text.lower())
    if found is None:
        raise ValueError(text)
    scheme, host, port = found.groups()
    if port is not None and not 0 < int(port) <= 65535:
        raise ValueError(text)
    if port is None or int(port) == _DEFAULT_PORTS.get(scheme):
        return f"{scheme}://{host}"
    return f"{scheme}://{host}:{int(port)}"


def public_url(text: str, place: Place) -> str:
    """An http or https origin, which is what a Server's URL is."""
    url = origin(text, place)
    if not url.startswith(("http://", "https://")):
        raise ValueError(text)
    return url


def network(text: str, place: Place) -> IPv4Network | IPv6Network:
    """An IP address or network."""
    return ip_network(text)


def token_id(text: str, place: Place) -> str:
    """A proxy token's public half."""
    return _checked(text, is_token_id(text))


def secret_hash(text: str, place: Place) -> str:
    """The hash of a proxy token's secret half."""
    return _checked(text, is_secret_hash(text))


def secret(text: str, place: Place) -> str:
    """A proxy token's secret half, or where it is: the text "env:NAME" stays as it is."""
    return _checked(text, is_secret(text) or re.fullmatch(r"env:[A-Za-z_][A-Za-z0-9_]*", text) is not None)


def _checked(text: str, good: bool) -> str:
    if not good:
        raise ValueError("not of this form")
    return text
