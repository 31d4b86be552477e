"""What finds a process container again after its daemon died: a value, and its form in the journal. Must not look at anything."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from sticky.containers.isolation import Descendants
from sticky.isticky import Address, TCPAddress, UNIXAddress


@attrs.frozen
class Place:
    """The identity of a main process, and what its backend held for it."""

    boot: str  #: which boot of the machine
    pid: int  #: also its session and process group, as soon as the launcher has made them
    started: int  #: clock ticks after boot
    port: int  #: the one that was handed out
    candidates: tuple[Address, ...]  #: where it may listen, the preferred one first
    scratch_is_ours: bool  #: the backend made the folder, so it removes it
    own_network: bool = False  #: the candidates are in a network namespace of its own
    wrapped: bool = False  #: the main process is bubblewrap
    descendants: str = "best_effort"  #: how it is made sure that nothing of it stays; see `isolation.Descendants`

    def document(self) -> Mapping[str, object]:
        """JSON values."""
        return {
            "boot": self.boot,
            "pid": self.pid,
            "session": self.pid,
            "started": self.started,
            "port": self.port,
            "candidates": [_written(address) for address in self.candidates],
            "scratch_is_ours": self.scratch_is_ours,
            "own_network": self.own_network,
            "wrapped": self.wrapped,
            "descendants": self.descendants,
        }

    @classmethod
    def parse(cls, document: Mapping[str, object]) -> Place:
        """The place of a document. Unknown keys are left alone. Raises ValueError for what is none."""
        candidates = document.get("candidates")
        if not isinstance(candidates, list):
            raise ValueError("candidates")
        boot = document.get("boot")
        if not isinstance(boot, str):
            raise ValueError("boot")
        return cls(
            boot,
            _number(document, "pid"),
            _number(document, "started"),
            _number(document, "port"),
            tuple(_address(written) for written in candidates),
            document.get("scratch_is_ours") is True,
            document.get("own_network") is True,
            document.get("wrapped") is True,
            _descendants(document.get("descendants", "best_effort")),
        )


def _descendants(value: object) -> str:
    if value not in [each.value for each in Descendants]:
        raise ValueError("descendants")
    return str(value)


def _number(document: Mapping[str, object], key: str) -> int:
    value = document.get(key)
    if type(value) is not int or value <= 0:
        raise ValueError(key)
    return value


def _written(address: Address) -> list[object]:
    return ["tcp", address.host, address.port] if isinstance(address, TCPAddress) else ["unix", address.path]


def _address(written: object) -> Address:
    match written:
        case ["tcp", str(host), int(port)]:
            return TCPAddress(host, port)
        case ["unix", str(path)]:
            return UNIXAddress(path)
    raise ValueError("candidates")
