"""What a proxy must know to serve: public keys, Servers as the edge sees them, limits, names. A value; no behaviour."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from sticky.edge.limits import EdgeSettings
from sticky.edge.site import Site


@attrs.frozen(kw_only=True)
class ProxyConfig:
    """See the module. Nothing in it is secret: proxy tokens and signing keys stay with the daemon."""

    brand: str
    edge: EdgeSettings  #: limits are those of one proxy
    keys: Mapping[str, str]  #: public keys by id, in hex
    sites: tuple[Site, ...]
    serial: frozenset[str]  #: Servers whose requests take turns: the daemon is asked for each
    access_log: str  #: "-" for standard output, "off", or an absolute path
    access_log_format: str
