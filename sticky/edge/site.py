"""One Server as the edge sees it, and which one a Host reaches. Built by `sticky.parts` from the settings; reads no files."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from sticky import errors
from sticky.core.values import ServerName
from sticky.edge.handshake import RelayRules


@attrs.frozen(kw_only=True)
class Site:
    """The settings of one Server that the data plane needs (wire.md). Times are seconds."""

    name: ServerName
    hosts: frozenset[str] = frozenset()  #: lower case, without port; empty: any Host that `Sites` lets through
    url: str | None = None  #: what clients see, without trailing slash; None: from Host and listener
    sessioned: bool = True
    unauthenticated: bool = False
    public_names: bool = False  #: on an unauthenticated Server everybody may name sessions, and shares the names
    allowed_origins: frozenset[str] = frozenset()  #: serialized origins, lower case
    calls: bool = False  #: it runs function calls
    half_close_timeout: float | None = 10.0  #: None: a FIN means that the client is gone
    ended_status: int = 410  #: 410 or 401
    websocket: RelayRules = attrs.field(factory=RelayRules)
    websocket_refusal: str = "close"  #: how browsers learn that a session ended: "close" (101, then a code) or "http"
    third_party_frames: bool = False
    insecure_cookie: bool = False
    response_timeout: float | None = None  #: for the container's response head; None: no limit


class Sites:
    """The Servers of a daemon by host name."""

    def __init__(self, sites: Sequence[Site]) -> None:
        self._watchers: list[Callable[[], object]] = []
        self.replace(sites)

    def replace(self, sites: Sequence[Site]) -> None:
        """Requests that come from now on find these. Those under way, and open WebSockets, keep the site that they have."""
        self._by_host = {host: site for site in sites for host in site.hosts}
        self._only = sites[0] if len(sites) == 1 and not sites[0].hosts else None
        for forget in self._watchers:
            forget()

    def watch(self, forget: Callable[[], object]) -> None:
        """Have this called whenever the sites are replaced: by whoever remembers what `find` said."""
        self._watchers.append(forget)

    def find(self, host: str) -> Site:
        """The Server that this host name (lower case, without port) reaches. Raises `errors.UnknownHost`."""
        site = self._by_host.get(host)
        if site is not None:
            return site
        if self._only is None or (self._only.unauthenticated and not _is_local(host)):
            # A page of any site could point its own name at this machine (DNS rebinding); where no credential is
            # needed, only names that an attacker cannot own are taken.
            raise errors.UnknownHost
        return self._only


def _is_local(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost") or host.startswith("["):
        return True
    octets = host.split(".")
    return len(octets) == 4 and all(part.isascii() and part.isdigit() and int(part) < 256 for part in octets)
