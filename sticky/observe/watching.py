"""Lets an observer of log events see requests, too, though they are no log events: their text is made when it is read."""

from __future__ import annotations

from typing import Any

from twisted.logger import ILogObserver, LogEvent, LogLevel, LogPublisher

from sticky.observe.access import EVENT, AccessLog, AccessRecord

_FORMAT = (
    "{client} {session} {container} {method} {target} {status} in={bytes_in} out={bytes_out}"
    " queue={queue:.6f} connect={connect:.6f} first={first_byte:.6f} total={total:.6f} {reason}"
)
_FIXED: dict[str, Any] = {
    "log_namespace": "sticky.access",
    "log_level": LogLevel.info,
    "log_format": "{said}",
    "sticky_event": EVENT,
}
_TIMES = ("queue", "connect", "first_byte")


class Said:
    """What is to be said of one request, put together when somebody reads it."""

    __slots__ = ("_access", "_record")

    def __init__(self, access: AccessLog, record: AccessRecord) -> None:
        self._access = access
        self._record = record

    def __str__(self) -> str:
        record = self._record
        fields = {name: getattr(record, name) for name in AccessRecord.__slots__ if not name.startswith("__")}
        fields.update({name: fields[name] or 0.0 for name in _TIMES})
        fields["client"] = record.client or "-"
        return _FORMAT.format_map(
            {**fields, "method": record.method.decode("latin-1"), "target": self._access.redacted(record.target)}
        )


class Teller:
    """Makes an event of each request for one observer."""

    __slots__ = ("_access", "observer")

    def __init__(self, access: AccessLog, observer: ILogObserver) -> None:
        self._access = access
        self.observer = observer

    def __call__(self, ended_at: float, record: AccessRecord) -> None:
        """A request is over."""
        event: LogEvent = {
            **_FIXED,
            "log_time": ended_at,
            "server": record.server,
            "session": record.session,
            "container": record.container,
            "status": record.status,
            "said": Said(self._access, record),
        }
        self.observer(event)


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
