"""Lets an observer of log events see requests, too, though they are no log events: their text is made when it is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol, overload

from twisted.logger import ILogObserver, LogEvent, LogLevel, LogPublisher

from sticky.observe.access import EVENT, KEPT, AccessLog, AccessRecord, Over

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
_SERVER = AccessRecord._fields.index("server")
_TIMES = ("queue", "connect", "first_byte")


class Several(Protocol):
    """An observer that takes many requests at once, and looks at them only when somebody asks."""

    def requests_over(self, requests: Requests) -> None:
        """Some more, in order."""


class Said:
    """What is to be said of one request, put together when somebody reads it."""

    __slots__ = ("_access", "_record")

    def __init__(self, access: AccessLog, record: tuple[Any, ...]) -> None:
        self._access = access
        self._record = record

    def __str__(self) -> str:
        record = AccessRecord(*self._record)
        fields: dict[str, Any] = record._asdict()
        fields.update({name: fields[name] or 0.0 for name in _TIMES})
        fields["client"] = record.client or "-"
        fields["method"] = record.method.decode("latin-1")
        fields["target"] = self._access.redacted(record.target)
        return _FORMAT.format_map(fields)


class Requests(Sequence[LogEvent]):
    """Events about requests that are over, each made when it is asked for. Keeps no field of any client."""

    __slots__ = ("_access", "_over")

    def __init__(self, access: AccessLog, over: Sequence[Over]) -> None:
        self._access = access
        self._over: list[tuple[float, tuple[Any, ...]]] = [(ended_at, record[:KEPT]) for ended_at, record in over]

    def __len__(self) -> int:
        return len(self._over)

    @overload
    def __getitem__(self, nth: int) -> LogEvent: ...

    @overload
    def __getitem__(self, nth: slice) -> Sequence[LogEvent]: ...

    def __getitem__(self, nth: int | slice) -> LogEvent | Sequence[LogEvent]:
        if isinstance(nth, slice):
            return [self[one] for one in range(*nth.indices(len(self)))]
        ended_at, kept = self._over[nth]
        record = AccessRecord(*kept)
        return {
            **_FIXED,
            "log_time": ended_at,
            "server": record.server,
            "session": record.session,
            "container": record.container,
            "status": record.status,
            "said": Said(self._access, kept),
        }

    def servers(self) -> dict[str, int]:
        """How many of them went to which Server."""
        return Counter([kept[_SERVER] for _, kept in self._over])


class Teller:
    """Makes events of requests for one observer: all of them at once for a `Several`."""

    __slots__ = ("_access", "_several", "observer")

    def __init__(self, access: AccessLog, observer: ILogObserver) -> None:
        self._access = access
        self._several: Callable[[Requests], None] | None = getattr(observer, "requests_over", None)
        self.observer = observer

    def __call__(self, over: Sequence[Over]) -> None:
        """These are over."""
        requests = Requests(self._access, over)
        if self._several is not None:
            self._several(requests)
            return
        for event in requests:
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
