"""Who a client is and what it asked for, as far as proxies before us may say: X-Forwarded-*, Host names, Origin.

Must not know credentials or what becomes of a request. `trusted_proxies` decides whose word counts; everybody else's
X-Forwarded-* is dropped.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Sequence

import attrs

from sticky.edge.grammar import HOST
from sticky.edge.parsing import RequestHead

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_FORWARDED_FOR = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([0-9.]+))(?::[0-9]{1,5})?|([0-9A-Fa-f:.]+)")
_ORIGIN = re.compile(r"(https?)://([0-9a-z._-]+|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?")
_DEFAULT_PORTS = {"http": "80", "https": "443"}


@attrs.frozen
class TrustedProxies:
    """The peers whose X-Forwarded-* are believed. `unix`: also everybody who connects through a Unix socket."""

    networks: tuple[Network, ...] = ()
    unix: bool = False

    def trusts(self, address: str) -> bool:
        """Whether this peer (an IP address; empty for a Unix socket) is one of them. No address, no trust."""
        if not address:
            return self.unix
        if not self.networks:
            return False
        try:
            parsed = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            return False
        mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
        parsed = mapped or parsed
        return any(parsed.version == network.version and parsed in network for network in self.networks)


class Peer:
    """Who is at the other end of a client's connection. Built once a connection; what it says of a request is cheap.

    `address`: the peer's IP address, empty for a Unix socket. `secure`: the listener's TLS ended here.
    """

    __slots__ = ("_lines", "_proxies", "address", "scheme", "trusted")

    def __init__(self, address: str, secure: bool, proxies: TrustedProxies) -> None:
        self.address = address
        self.scheme = b"https" if secure else b"http"
        self.trusted = proxies.trusts(address)
        self._proxies = proxies
        self._lines = _facts(address.encode("ascii", "replace"), self.scheme)

    def facts(self, head: RequestHead) -> bytes:
        """The X-Forwarded-* lines for the container, each preceded by CRLF."""
        if not self.trusted:
            return self._lines + head.host if head.host else self._lines.removesuffix(_HOST_LINE)
        chain = b", ".join(value for value in head.values(b"x-forwarded-for") if value)
        if self.address:
            chain = (chain + b", " if chain else b"") + self.address.encode("ascii", "replace")
        host = head.value(b"x-forwarded-host")
        if host is None or HOST.fullmatch(host) is None:
            host = head.host
        lines = _facts(chain, self.proto(head))
        return lines + host if host else lines.removesuffix(_HOST_LINE)

    def proto(self, head: RequestHead) -> bytes:
        """`http` or `https`: the scheme that the client used, as far as we may believe it."""
        if self.trusted:
            said = head.value(b"x-forwarded-proto")
            if said is not None and said.lower() in (b"http", b"https"):
                return said.lower()
        return self.scheme

    def client(self, head: RequestHead) -> str:
        """The client's address: the last one in the chain of proxies that is not itself a trusted proxy."""
        if not self.trusted:
            return self.address
        address = self.address
        for value in reversed(b",".join(head.values(b"x-forwarded-for")).decode("latin-1").split(",")):
            match = _FORWARDED_FOR.fullmatch(value.strip(" \t"))
            if match is None:
                break
            address = match[1] or match[2] or match[3]
            if not self._proxies.trusts(address):
                break
        return address


_HOST_LINE = b"\r\nX-Forwarded-Host: "


def _facts(chain: bytes, scheme: bytes) -> bytes:
    client = b"\r\nX-Forwarded-For: " + chain if chain else b""
    return client + b"\r\nX-Forwarded-Proto: " + scheme + _HOST_LINE


def host_name(host: bytes) -> str:
    """A Host as `Sites.find` takes it: lower case, without port and final dot; an IPv6 address keeps its brackets."""
    name = host.decode("latin-1").lower()
    end = name.find("]") + 1 if name.startswith("[") else name.find(":")
    name = name if end < 0 else name[:end]
    return name.removesuffix(".")


def origin_allowed(head: RequestHead, allowed: Collection[str]) -> bool:
    """Whether the page that makes this request may use an ambient credential: no Origin, this Host's own, or an allowed
    one (serialized origins in lower case). `null` is allowed only where it is listed.
    """
    origins: Sequence[bytes] = head.values(b"origin")
    if not origins:
        return True
    if len(origins) > 1:
        return False
    origin = origins[0].decode("latin-1").lower()
    if origin in allowed:
        return True
    match = _ORIGIN.fullmatch(origin)
    if match is None or not head.host:
        return False
    scheme, name, port = match.groups()
    own = head.host.decode("latin-1").lower()
    own_name = own[: own.find("]") + 1] if own.startswith("[") else own.partition(":")[0]
    own_port = own[len(own_name) :].removeprefix(":")
    # The scheme is not compared: TLS may end in front of us, at a proxy that is not in `trusted_proxies`.
    return name == own_name and (port or _DEFAULT_PORTS[scheme]) == (own_port or _DEFAULT_PORTS[scheme])
