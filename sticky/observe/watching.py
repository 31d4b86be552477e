"""Lets an observer of log events see requests, too, though they are no log events: it gets one that is made when it is looked at.

A dict of all fields for each request would cost more than its line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from twisted.logger import ILogObserver, LogEvent, LogLevel, LogPublisher

from sticky.observe.access import EVENT, AccessLog, AccessRecord

_FORMAT = (
    "{client} {session} {container} {method} {target} {status} in={bytes_in} out={bytes_out}"
    " queue={queue:.6f} connect={connect:.6f} first={first_byte:.6f} total={total:.6f} {reason}"
)
_FIXED = {
    "log_namespace": "sticky.access",
    "log_level": LogLevel.info,
    "log_format": _FORMAT,
    "sticky_event": EVENT,
}
_PLAIN = ("session", "container", "server", "status", "bytes_in", "bytes_out", "total", "reason")
_TIMES = ("queue", "connect", "first_byte")


class RequestEvent(Mapping[str, Any]):
    """One request, as an event of `twisted.logger` would have it."""

    __slots__ = ("_access", "_ended_at", "_event", "_record")

    def __init__(self, access: AccessLog, ended_at: float, record: AccessRecord) -> None:
        self._access = access
        self._ended_at = ended_at
        self._record = record
        self._event: dict[str, Any] | None = None

    def _whole(self) -> dict[str, Any]:
        if self._event is None:
            record = self._record
            referer, agent = self._access.senders_texts(record)
            event: dict[str, Any] = dict(_FIXED, log_time=self._ended_at, client=record.client or "-")
            event.update({name: getattr(record, name) for name in _PLAIN})
            event.update({name: getattr(record, name) or 0.0 for name in _TIMES})
            target = self._access.redacted(record.target)
            event.update(method=record.method.decode("latin-1"), target=target, referer=referer, agent=agent)
            self._event = event
        return self._event

    def __getitem__(self, name: str) -> Any:
        # What is asked of every event makes no dict.
        return self._record.server if name == "server" else self._whole()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._whole())

    def __len__(self) -> int:
        return len(self._whole())

    def __contains__(self, name: object) -> bool:
        return name in _FIXED or (name != "log_failure" and name in self._whole())

    def get(self, name: str, default: Any = None) -> Any:
        """As a dict's; what every observer asks for costs nothing."""
        if name == "server":
            return self._record.server
        return _FIXED[name] if name in _FIXED else self._whole().get(name, default)


class Teller:
    """Makes an event of each request for one observer."""

    __slots__ = ("_access", "observer")

    def __init__(self, access: AccessLog, observer: ILogObserver) -> None:
        self._access = access
        self.observer = observer

    def __call__(self, ended_at: float, record: AccessRecord) -> None:
        """A request is over."""
        self.observer(cast(LogEvent, RequestEvent(self._access, ended_at, record)))


class WithRequests(LogPublisher):
    """A publisher whose observers are told of requests as well."""

    def __init__(self, publisher: LogPublisher, access: AccessLog) -> None:
        super().__init__()
        self._publisher = publisher
        self._access = access

    def addObserver(self, observer: ILogObserver) -> None:
        """Tell it of everything from now on."""
        self._publisher.addObserver(observer)
        self._access.watchers.append(Teller(self._access, observer))

    def removeObserver(self, observer: ILogObserver) -> None:
        """Tell it no more."""
        self._publisher.removeObserver(observer)
        self._access.watchers[:] = [teller for teller in self._access.watchers if teller.observer is not observer]
