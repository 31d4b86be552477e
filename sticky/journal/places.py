"""Where a container is, as JSON: what its backend needs to find it again, which one that is, and where it answered.

What a container was spawned with is kept besides, as far as its backend needs it to take it over: a later daemon may have
another definition of the Server, another backend even.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from sticky.isticky import Address, ContainerSpec, TCPAddress, UNIXAddress


def place_of(spec: ContainerSpec, found_by: Mapping[str, object], address: Address | None) -> Mapping[str, Any]:
    """One value for the journal. `found_by`: empty where nothing runs yet."""
    match address:
        case TCPAddress(host, port, network):
            where: object = {"host": host, "port": port} | ({"network": network} if network else {})
        case UNIXAddress(path):
            where = {"path": path}
        case None:
            where = None
    return {
        "found_by": dict(found_by),
        "address": where,
        "backend": spec.backend,
        "options": _plain(spec.options),
        "scratch": str(spec.scratch),
    }


def spawned_by(place: Mapping[str, Any]) -> tuple[str, Mapping[str, object]]:
    """(backend's name, its options); an empty name where nothing was noted."""
    name, options = place.get("backend"), place.get("options")
    if not isinstance(name, str) or not name or not isinstance(options, dict):
        return "", {}
    return name, options


def as_spawned(spec: ContainerSpec, place: Mapping[str, Any]) -> ContainerSpec:
    """A container's spec by the newest definition, put right by what it was really spawned with."""
    name, options = spawned_by(place)
    if not name:
        return spec
    scratch = place.get("scratch")
    where = Path(scratch) if isinstance(scratch, str) else spec.scratch
    return attrs.evolve(spec, backend=name, options=options, scratch=where)


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


def _plain(value: object) -> Any:
    """JSON values of what options hold."""
    match value:
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_plain(item) for item in value]
        case str() | int() | float() | None:
            return value
    return str(value)
