"""The daemon's own latest log events, kept in memory for whoever asks, and counts of requests. Formats only when asked."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Protocol

import attrs
from twisted.logger import ILogObserver, LogLevel, formatEvent
from zope.interface import implementer

from sticky.observe.access import COUNTED, EVENT

KEPT = 2000  #: events; about 2 kB each at most


@attrs.frozen
class LoggedEvent:
    """One event, fit to be shown. No field of ours ever holds a secret."""

    number: int  #: counts up; later is higher
    time: float  #: Unix time
    level: str
    text: str
    server: str | None
    container: str | None
    session: str | None


class Requests(Collection[Mapping[str, Any]], Protocol):
    """Events about requests that are over, made when somebody looks at them (`observe.watching`)."""

    def servers(self) -> Mapping[str, int]:
        """How many of them went to which Server."""


@implementer(ILogObserver)
class Recent:
    """A log observer, and an `observe.watching.Several`. Being in the path of every request, it only stores."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._events: deque[tuple[int, Collection[Mapping[str, Any]]]] = deque()  # with the number of the last of each
        self._size = 0
        self.number = 0  #: of the newest
        self.requests = Counter[str]()  #: that are over, by Server

    def __call__(self, event: Mapping[str, Any]) -> None:
        """See `ILogObserver`."""
        namespace = event.get("log_namespace")
        if namespace is None or not namespace.startswith("sticky"):
            return
        if event.get("sticky_event") == EVENT:
            self.requests[event["server"]] += 1
        elif event.get("sticky_event") == COUNTED:
            self.requests.update(event["counts"])
            return
        elif "log_failure" in event:
            # A failure holds its frames, and these hold connections: it is shown now and let go.
            event = {**event, "log_format": "{shown}", "shown": formatEvent(event), "log_failure": None}  # type: ignore[arg-type]
        self._keep((event,))

    def requests_over(self, requests: Requests) -> None:
        """See `observe.watching.Several`."""
        self.requests.update(requests.servers())
        self._keep(requests)

    def _keep(self, events: Collection[Mapping[str, Any]]) -> None:
        self.number += len(events)
        self._events.append((self.number, events))
        self._size += len(events)
        while self._size - len(self._events[0][1]) >= self._kept:
            self._size -= len(self._events.popleft()[1])

    def after(self, number: int) -> Iterator[LoggedEvent]:
        """Those that came after the one with this number, as far as they are kept; oldest first."""
        oldest = self.number - self._kept
        for last, events in list(self._events):
            if last > number:
                for own, event in enumerate(events, last - len(events) + 1):
                    if own > number and own > oldest:
                        yield _shown(own, event)


def _shown(number: int, event: Mapping[str, Any]) -> LoggedEvent:
    level = event.get("log_level", LogLevel.info)
    return LoggedEvent(
        number,
        float(event.get("log_time", 0.0)),
        level.name,
        formatEvent(event),  # type: ignore[arg-type]
        _named(event, "server"),
        _named(event, "container"),
        _named(event, "session"),
    )


def _named(event: Mapping[str, Any], field: str) -> str | None:
    value = event.get(field)
    return value if isinstance(value, str) and value != "-" else None
