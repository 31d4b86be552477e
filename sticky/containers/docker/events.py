"""The Engine's event stream, opened again for as long as we care. Must not know what an event means for a container.

After each opening the listener must look for itself at what happened while nobody listened: `opened` says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from sticky.containers.docker.engine import Engine, Stream
from sticky.containers.docker.faults import EngineError
from sticky.containers.docker.frames import Lines, Torn

FIRST_PAUSE, LAST_PAUSE = 0.1, 5.0  #: seconds until another try; doubles from the first to the last


class Events:
    """Container events with a label. `heard` gets each event's action, engine id and attributes."""

    def __init__(
        self,
        clock: IReactorTime,
        engine: Engine,
        label: str,
        opened: Callable[[], object],
        heard: Callable[[str, str, Mapping[str, Any]], object],
    ) -> None:
        self._clock = clock
        self._engine = engine
        self._params = {"filters": json.dumps({"type": ["container"], "label": [label]})}
        self._opened = opened
        self._heard = heard
        self._lines = Lines()
        self._stream: Stream | None = None
        self._timer: IDelayedCall | None = None
        self._pause = FIRST_PAUSE
        self._complained = False
        self._log = Logger(namespace="sticky.containers")

    @property
    def running(self) -> bool:
        """Whether it is open, opening, or about to be."""
        return self._stream is not None or self._timer is not None

    def start(self) -> None:
        """Begin. Once it runs: nothing happens."""
        if not self.running:
            self._open()

    def stop(self) -> None:
        """Hear no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def _open(self) -> None:
        self._timer = None
        self._lines = Lines()
        self._stream = self._engine.stream(
            "/events", self._params, opened=self._is_open, received=self._received, closed=self._closed
        )

    def _is_open(self) -> None:
        self._pause = FIRST_PAUSE
        if self._complained:
            self._log.info("The container engine at {socket} is back", socket=self._engine.socket)
            self._complained = False
        self._opened()

    def _received(self, data: bytes) -> None:
        try:
            events = self._lines.feed(data)
        except Torn as error:
            self._again(f"events: {error}")
            return
        for event in events:
            actor = event.get("Actor")
            action = event.get("Action")
            if isinstance(actor, dict) and isinstance(action, str):
                attributes = actor.get("Attributes")
                self._heard(action, str(actor.get("ID")), attributes if isinstance(attributes, dict) else {})

    def _closed(self, error: EngineError | None) -> None:
        self._again("it ended its event stream" if error is None else str(error))

    def _again(self, problem: str) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()
        if not self._complained:
            self._complained = True
            self._log.warn(
                "No events from the container engine at {socket}, trying again: {problem}",
                socket=self._engine.socket,
                problem=problem,
            )
        self._engine.forget_version()
        self._timer = self._clock.callLater(self._pause, self._open)
        self._pause = min(LAST_PAUSE, self._pause * 2)
