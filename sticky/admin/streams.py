"""Log streams: containers' output and the daemon's own events, one JSON object a line, for as long as the client wants.

Looks at files and events anew every `POLL` seconds: a log is for people. Knows no HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import attrs
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from sticky import errors
from sticky.admin.recent import LoggedEvent, Recent
from sticky.admin.tails import Tail
from sticky.core.values import ContainerId
from sticky.iinspection import ContainerLog, IInspection

POLL = 0.2  #: seconds
BURST = 16  #: chunks of one file that are sent in one go


@attrs.frozen(kw_only=True)
class Wanted:
    """What of the logs. `container` and `server` may be None: all of them."""

    server: str | None = None
    container: str | None = None
    session: str | None = None  #: also the daemon's events about this session
    output: bool = True  #: what containers write
    events: bool = False  #: what the daemon itself says
    follow: bool = False
    last: int = 100  #: lines of each container, and events


class LogStream:
    """Call `start`, then perhaps `pause` and `resume`, then `stop` when the client leaves before the end."""

    log = Logger()

    def __init__(self, inspection: IInspection, recent: Recent, wanted: Wanted, clock: IReactorTime) -> None:
        self._inspection = inspection
        self._recent = recent
        self._wanted = wanted
        self._tails: dict[ContainerId, tuple[ContainerLog, Tail]] = {}
        self._seen = 0
        self._begun = False
        self._paused = False
        self._loop = LoopingCall(self._look)
        self._loop.clock = clock
        if wanted.container is not None and wanted.output:
            # Once, here, while an answer can still be an error: later another id may begin like this one.
            (meant,) = inspection.logs(wanted.server, wanted.container)
            self._wanted = attrs.evolve(wanted, container=meant.container)
        else:
            self._logs()

    def start(self, write: Callable[[bytes], None], finish: Callable[[], None]) -> None:
        """Begin. `finish` is called once, unless `stop` comes first."""
        self._write, self._finish = write, finish
        self._loop.start(POLL).addErrback(self._failed)

    def pause(self) -> None:
        """The client does not read just now."""
        self._paused = True

    def resume(self) -> None:
        """The client reads again."""
        self._paused = False

    def stop(self) -> None:
        """The client left. A second call does nothing."""
        if self._loop.running:
            self._loop.stop()

    # --- inside

    def _failed(self, failure: Failure) -> None:
        self.log.failure("a log stream failed", failure)
        self._finish()

    def _logs(self) -> list[ContainerLog]:
        if not self._wanted.output:
            return []
        try:
            return list(self._inspection.logs(self._wanted.server, self._wanted.container))
        except errors.NotFound:
            if not self._begun:
                raise
            return []  # it ended and its log is forgotten, or its Server was removed: nothing more can come

    def _look(self) -> None:
        if self._paused:
            return
        if self._wanted.events:
            self._send_events()
        live = self._send_output()
        self._begun = True
        if not self._wanted.follow or (self._wanted.container is not None and not live):
            self._end()

    def _send_events(self) -> None:
        new = [event for event in self._recent.after(self._seen) if self._concerns(event)]
        self._seen = self._recent.number
        for event in new if self._begun else new[-self._wanted.last :] if self._wanted.last else ():
            self._line({"kind": "event", **attrs.asdict(event)})

    def _concerns(self, event: LoggedEvent) -> bool:
        wanted = self._wanted
        if wanted.session is not None:
            return event.session == wanted.session
        if wanted.container is not None:
            return event.container is not None and event.container.startswith(wanted.container)
        return wanted.server is None or event.server == wanted.server

    def _send_output(self) -> bool:
        """Send what is new; tell whether more can come from the containers that are there."""
        logs = self._logs()
        for log in logs:
            if log.container not in self._tails:
                # One that appears while the client watches is shown from its beginning.
                last = 1_000_000 if self._begun else self._wanted.last
                self._tails[log.container] = log, Tail(log.path, last)
        for log, tail in self._tails.values():
            for _ in range(BURST):  # one that is written faster than it is read must not keep the others waiting
                if self._paused or not (lines := tail.lines()):
                    break
                for line in lines:
                    self._output(log, line)
        gone = {log.container for log in logs if not log.live} | (self._tails.keys() - {log.container for log in logs})
        for container in gone & self._tails.keys():
            log, tail = self._tails[container]
            for line in tail.rest():
                self._output(log, line)
        return any(log.live for log in logs)

    def _output(self, log: ContainerLog, text: str) -> None:
        self._line({"kind": "output", "server": log.server, "container": log.container, "text": text})

    def _line(self, value: dict[str, Any]) -> None:
        self._write(json.dumps(value).encode("ascii") + b"\n")

    def _end(self) -> None:
        if not self._wanted.follow:
            for log, tail in self._tails.values():
                for line in tail.rest():
                    self._output(log, line)
        self.stop()
        self._finish()
