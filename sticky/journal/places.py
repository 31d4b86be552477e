"""Where a container is, as JSON: what its backend needs to find it again, and the address that it answered on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sticky.isticky import Address, TCPAddress, UNIXAddress


def place_of(found_by: Mapping[str, object], address: Address | None) -> Mapping[str, Any]:
    """One value for the journal."""
    match address:
        case TCPAddress(host, port, network):
            where: object = {"host": host, "port": port} | ({"network": network} if network else {})
        case UNIXAddress(path):
            where = {"path": path}
        case None:
            where = None
    return {"found_by": dict(found_by), "address": where}


def found_by(place: Mapping[str, Any]) -> Mapping[str, object]:
    """The backend's part; empty where nothing was noted."""
    part = place.get("found_by")
    return part if isinstance(part, dict) else {}


def address_in(place: Mapping[str, Any]) -> Address | None:
    """The address, if it was ready."""
    match place.get("address"):
        case {"host": str(host), "port": int(port)}:
            network = place["address"].get("network", "")
            return TCPAddress(host, port, network if isinstance(network, str) else "")
        case {"path": str(path)}:
            return UNIXAddress(path)
    return None
