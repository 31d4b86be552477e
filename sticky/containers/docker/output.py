"""Copies a container's output from the Engine to its log file. Must not know whether the container lives.

The Engine keeps the output as well, bounded, so nothing is lost while we are away and the program never waits for us. A
flood is copied at a bounded rate: what we do not come to copy is dropped by the Engine's own bound.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from sticky.containers import logs
from sticky.containers.docker.engine import Engine, Stream
from sticky.containers.docker.faults import EngineError, EngineRefused
from sticky.containers.docker.frames import Output, Torn
from sticky.isticky import ContainerSpec

RATE = 8 << 20  #: bytes copied in one PERIOD at most
PERIOD = 1.0  #: seconds
PAUSE = 0.5  #: seconds until a torn copy is taken up again
REFUSALS = 3  #: times that an Engine's internal error is not believed
_ASKED_FOR = {"stdout": "1", "stderr": "1"}


class Copying:
    """One container's copy. `wall` is Unix time, which the Engine's `since` is about."""

    def __init__(
        self, clock: IReactorTime, wall: Callable[[], float], engine: Engine, spec: ContainerSpec, limit: int
    ) -> None:
        self._clock = clock
        self._wall = wall
        self._engine = engine
        self._spec = spec
        self._limit = limit
        self._path = ""
        self._since: float | None = None
        self._frames = Output()
        self._stream: Stream | None = None
        self._timer: IDelayedCall | None = None
        self._file: int | None = None
        self._period_began = 0.0
        self._in_period = 0
        self._written = 0  # since the file was last looked at
        self._refusals = 0
        self._done = False
        self._waiting: list[Deferred[None]] = []
        self._log = Logger(namespace="sticky.containers")

    def start(self, engine_id: str, since: float | None = None) -> None:
        """Begin, from the container's first output or from a moment on. The log file exists afterwards. Raises OSError."""
        self._path = f"/containers/{engine_id}/logs"
        self._since = since
        self._file = logs.open_log(self._spec.log)
        self._follow()

    def end(self, timeout: float) -> Deferred[None]:
        """The container has ended: wait for the rest of its output, at most `timeout` seconds, and close the file."""
        done: Deferred[None] = Deferred()
        if self._file is None or self._done:
            self.stop()
            done.callback(None)
            return done
        self._waiting.append(done)
        late = self._clock.callLater(timeout, self.stop)

        def finished(_: None) -> None:
            if late.active():
                late.cancel()

        return done.addCallback(finished)

    def stop(self) -> None:
        """Copy no more. Again: nothing happens."""
        self._done = True
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()
        if self._file is not None:
            os.close(self._file)
            self._file = None
            logs.bound(self._spec.log, self._limit)
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one.callback(None)

    # --- inside

    def _follow(self) -> None:
        self._timer = None
        self._frames = Output()
        params = {**_ASKED_FOR, "follow": "1"}
        if self._since is not None:
            params["since"] = f"{self._since:.6f}"
        self._stream = self._engine.stream(
            self._path, params, opened=lambda: None, received=self._received, closed=self._closed
        )

    def _received(self, data: bytes) -> None:
        try:
            self._write(self._frames.feed(data))
        except Torn as error:
            self._log.warn(
                "The output of container {container}: {problem}", container=self._spec.container, problem=error
            )
            self._again()
            return
        now = self._clock.seconds()
        if now - self._period_began >= PERIOD:
            self._period_began, self._in_period = now, 0
        self._in_period += len(data)
        if self._in_period > RATE and self._stream is not None and self._timer is None:
            self._stream.pause()
            self._timer = self._clock.callLater(PERIOD, self._go_on)

    def _go_on(self) -> None:
        self._timer = None
        self._in_period = 0
        if self._stream is not None:
            self._stream.resume()

    def _write(self, payload: bytes) -> None:
        if self._file is None or not payload:
            return
        self._since = self._wall()
        try:
            os.write(self._file, payload)
        except OSError as error:
            self._log.warn(
                "The log of container {container} cannot be written: {reason}",
                container=self._spec.container,
                reason=error.strerror,
            )
            return
        self._written += len(payload)
        if self._written > self._limit // 4:
            self._written = 0
            logs.bound(self._spec.log, self._limit)

    def _closed(self, error: EngineError | None) -> None:
        self._stream = None
        if isinstance(error, EngineRefused) and error.status == 500 and self._refusals < REFUSALS:
            self._refusals += 1  # Podman refuses everything for a moment while a container changes its state
            self._again()
            return
        if isinstance(error, EngineRefused) and not error.not_found:
            self._log.warn(
                "The output of container {container} is not copied: {problem}",
                container=self._spec.container,
                problem=str(error),
            )
        if error is None or isinstance(error, EngineRefused):
            self.stop()  # the Engine ends it when the container does
        else:
            self._again()

    def _again(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        if self._waiting or self._done:
            self.stop()
        else:
            self._timer = self._clock.callLater(PAUSE, self._follow)


def last_lines(payload: bytes) -> tuple[str, ...]:
    """The last lines of output as the Engine sends it, bounded like those of a log file; what is torn is left out."""
    frames = Output()
    try:
        text = frames.feed(payload)
    except Torn:
        return ()
    return logs.shown(text.decode("utf-8", "replace"))
