"""Who may use the admin API over TCP: holders of a proxy token with `admin`, by a known Host. Knows no call.

The Host is looked at against pages of elsewhere that a browser of this network has resolved to us (DNS rebinding); names of
this machine and IP addresses cannot be rebound, other names are the operator's to list (`daemon.admin_hosts`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from ipaddress import ip_address
from urllib.parse import urlsplit

import attrs
from twisted.internet.interfaces import IReactorTime

from sticky import errors
from sticky.core.proxy_tokens import FailureLimit, ProxyTokens, parse_bearer


@attrs.frozen
class TokenDoor:
    """`tokens` are those that count at this moment; `wall` is the Unix time, `clock` monotonic."""

    tokens: Callable[[], ProxyTokens]
    hosts: Collection[str]
    failures: FailureLimit
    clock: IReactorTime
    wall: Callable[[], float]

    def admit(self, client: str, host: str | None, authorization: str | None) -> str:
        """The id of the token that lets in. Raises `errors.UnknownHost` and what a wrong token deserves."""
        if not self._known(host):
            raise errors.UnknownHost(
                "The admin API is not known by this host name; daemon.admin_hosts lists its names."
            )
        now = self.clock.seconds()
        self.failures.check(client, now)
        scheme, _, bearer = (authorization or "").partition(" ")
        if not bearer:
            raise errors.NoCredential("The admin API needs a proxy token that may use it, as Authorization: Bearer.")
        try:
            if scheme.lower() != "bearer":
                raise errors.BadCredential
            token = self.tokens().identify(*parse_bearer(bearer.strip()), self.wall())
        except errors.BadCredential:
            self.failures.failed(client, now)
            raise
        if not token.admin:
            raise errors.OutOfScope("This proxy token may not use the admin API: it was made without admin.")
        return token.id

    def _known(self, host: str | None) -> bool:
        try:
            name = (urlsplit(f"//{host or ''}").hostname or "").rstrip(".")
        except ValueError:
            return False
        if name == "localhost" or name.endswith(".localhost") or name in self.hosts:
            return True
        try:
            ip_address(name)
        except ValueError:
            return False
        return True
