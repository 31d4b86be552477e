"""The one interpreter of a sandbox: runs calls one after the other on the main thread. Runs INSIDE a container; knows no sockets.

An exception of the function is a call that has finished. A call that is cut is interrupted first (as by Ctrl-C) and has GRACE
seconds to give in; only then the process ends, and the session with it. Where a time limit was set, the process ends in any case.
"""

from __future__ import annotations

import asyncio
import errno
import inspect
import json
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable
from queue import SimpleQueue
from types import FrameType
from typing import Any, NoReturn

import attrs

from sticky.sandbox.endings import DEAF, TIMED_OUT, WOULD_NOT_STOP
from sticky.sandbox.frames import LARGEST, Kind, document, frame, pieces
from sticky.sandbox.namespace import Namespaces
from sticky.sandbox.needs import Refused, check_packages, limit_memory
from sticky.sandbox.output import Printed, stream
from sticky.sandbox.watchdog import Watchdog

GRACE = 5.0  #: seconds between an interrupt and the end of the process
REMEMBERED = 64  #: finished calls whose answers are kept for a repeated request id
REMEMBERED_BYTES = 1 << 20  #: an answer longer than this is not kept
LONGEST_TEXT = 100_000  #: characters of an error's message and traceback
_OURS_IS_GONE = (errno.EBADF, errno.ENOTSOCK)  # of a descriptor that a function has closed


#: Whole, or its head and its payload.
Frame = tuple[bytes] | tuple[bytes, memoryview]


class Interrupted(KeyboardInterrupt):
    """The call is cut: its client left, or its time is over."""


@attrs.define(eq=False)
class Call:
    """One call. `send` takes a frame, or its head and its payload, and raises OSError where nobody takes it any more."""

    function: bytearray = attrs.field(repr=False)
    arguments: bytearray = attrs.field(repr=False)
    send: Callable[..., None]
    done: Callable[[], None]
    request: str | None = None  #: its id
    timeout: float | None = None  #: seconds
    plain: bool = False  #: the value goes as JSON
    memory: int | None = None  #: bytes of data that the process may have meanwhile
    packages: tuple[str, ...] = ()  #: that must be there
    cold: bool = False  #: an interpreter that came from a snapshot must not run it
    cut: str | None = None  #: why it is to be interrupted
    gone: bool = False  #: nobody listens

    def tell(self, *data: bytes | memoryview) -> None:
        """A frame to the client, if there is one: whole, or its head and its payload."""
        if not self.gone:
            try:
                self.send(*data)
            except OSError as error:
                if error.errno in _OURS_IS_GONE:
                    os._exit(DEAF)  # the client would wait for ever: its connection is open, and nobody can write to it
                self.gone = True


class Interpreter:
    """Takes calls from any thread. `log`: the descriptor of the container's output. `snapshot`: this process was forked."""

    def __init__(self, log: int = 2, snapshot: bool = False) -> None:
        self._log = log
        self._snapshot = snapshot
        self._calls: SimpleQueue[Call] = SimpleQueue()
        self._namespaces = Namespaces()
        self._running: Call | None = None
        self._lock = threading.Lock()
        self._main = threading.get_ident()
        self._watchdog = Watchdog(log)
        self._answers: OrderedDict[str, list[Frame] | None] = OrderedDict()
        self._printed = {Kind.STDOUT: Printed(log), Kind.STDERR: Printed(log)}

    def run_for_ever(self) -> NoReturn:
        """The main thread's work."""
        self._main = threading.get_ident()
        sys.stdout, sys.stderr = stream(self._printed[Kind.STDOUT]), stream(self._printed[Kind.STDERR])
        while True:
            # A handler that a function installed must not keep the next one from being interrupted.
            signal.signal(signal.SIGINT, self._on_interrupt)
            call = self._calls.get()
            with self._lock:
                wanted = call.cut is None
                self._running = call if wanted else None
            try:
                if wanted:
                    self._serve(call)
            except Interrupted:  # in the moment in which it was done all the same
                with self._lock:
                    self._running = None
                call.tell(_error(call.cut or "cancelled", "The call was interrupted."))
                if call.cut == "timeout":
                    os._exit(TIMED_OUT)
            finally:
                call.done()

    def submit(self, call: Call) -> None:
        """Run it when those before it are done."""
        self._calls.put(call)

    def interrupt(self, call: Call, why: str) -> None:
        """It is not wanted any more. A no-op for one that is done."""
        with self._lock:
            if call.cut is not None:
                return
            call.cut = why
            if self._running is not call:
                return
            signal.pthread_kill(self._main, signal.SIGINT)
        watch = threading.Timer(GRACE, self._would_not_stop, (call, time.monotonic()))
        watch.daemon = True
        watch.start()

    # --- one call

    def _serve(self, call: Call) -> None:
        if call.request is not None and call.request in self._answers:
            self._repeat(call, self._answers[call.request])
            with self._lock:
                self._running = None
            return
        if call.request is not None:
            # Until it has finished, a second one is told that the outcome is not known.
            self._answers[call.request] = None
            while len(self._answers) > REMEMBERED:
                self._answers.popitem(last=False)
        watch = None
        for kind, printed in self._printed.items():
            printed.begin(lambda data, kind=kind: call.tell(frame(kind, data)))  # type: ignore[misc]
        if call.timeout is not None:
            watch = threading.Timer(call.timeout, self.interrupt, (call, "timeout"))
            watch.daemon = True
            watch.start()
            self._watchdog.arm(call.timeout + GRACE + 1)
        answer = self._answer(call)
        with self._lock:
            self._running = None
        if watch is not None:
            watch.cancel()
            self._watchdog.disarm()
        for data in answer:
            call.tell(*data)
        if call.cut == "timeout":
            os._exit(TIMED_OUT)
        if (
            call.request is not None
            and call.cut is None
            and sum(len(part) for data in answer for part in data) <= REMEMBERED_BYTES
        ):
            self._answers[call.request] = answer

    def _repeat(self, call: Call, answer: list[Frame] | None) -> None:
        if answer is None:
            text = "This request was made before; what came of it is not known any more."
            answer = [(_error("outcome_unknown", text),)]
        for data in answer:
            call.tell(*data)

    def _answer(self, call: Call) -> list[Frame]:
        """The frames that end the call."""
        try:
            try:
                value, answer = self._run(call)
            except BaseException as error:
                # An interrupt that comes while an error is being described would go through everything.
                with self._lock:
                    self._running = None
                limit_memory(None)
                return [(self._describe(call, error),)]
            finally:
                limit_memory(None)
                self._flush()
            said = {"outcome": "value", "size": len(value), "as": "json" if call.plain else "pickle"}
            return [*answer, (document(Kind.DONE, said),)]
        except Interrupted as error:
            return [(self._describe(call, error),)]

    def _run(self, call: Call) -> tuple[bytes, list[Frame]]:
        if call.cold and self._snapshot:
            raise Refused("invalid_request", "This sandbox came from a snapshot, and the call must not run in one.")
        check_packages(call.packages)
        limit_memory(call.memory)
        try:
            spec, (arguments, named) = pickle.loads(call.function), pickle.loads(call.arguments)
            function = self._namespaces.function(spec)
        except Interrupted:
            raise
        except BaseException as error:
            raise Refused(
                "unpicklable", f"The call cannot be unpickled here: {type(error).__name__}: {error}"
            ) from error
        call.function = call.arguments = bytearray()
        value = function(*arguments, **named)
        if inspect.iscoroutine(value):
            value = asyncio.run(value)
        data = _packed(value, call.plain)
        return data, list(pieces(Kind.VALUE, data))

    def _describe(self, call: Call, error: BaseException) -> bytes:
        lines = self._printed[Kind.STDOUT].lines() + self._printed[Kind.STDERR].lines()
        if call.cut is not None and isinstance(error, KeyboardInterrupt):
            return _error(call.cut, "The call was interrupted.", output=lines)
        if isinstance(error, Refused):
            return _error(error.code, str(error), output=lines)
        kind = type(error)
        name = (
            kind.__qualname__
            if kind.__module__ in ("builtins", "__main__")
            else f"{kind.__module__}.{kind.__qualname__}"
        )
        try:
            message = str(error)
        except BaseException as nested:
            message = f"(its message cannot be shown: {type(nested).__name__})"
        inside = error.__traceback__
        while inside is not None and inside.tb_frame.f_code.co_filename == __file__:
            inside = inside.tb_next
        try:
            text = "".join(traceback.format_exception(kind, error.with_traceback(inside), inside, limit=-50))
        except BaseException:
            text = ""
        return _error("exception", message, type=name, traceback=text[-LONGEST_TEXT:], output=lines)

    def _flush(self) -> None:
        for name, kind in (("stdout", Kind.STDOUT), ("stderr", Kind.STDERR)):
            try:
                getattr(sys, name).flush()
            except Exception:
                pass  # the function closed it, or put something else there
            text = getattr(sys, name, None)
            if getattr(text, "closed", True):
                setattr(sys, name, stream(self._printed[kind]))
        for printed in self._printed.values():
            printed.send = None

    # --- interrupts

    def _on_interrupt(self, number: int, where: FrameType | None) -> None:
        running = self._running
        if running is not None and running.cut is not None:
            raise Interrupted(running.cut)

    def _would_not_stop(self, call: Call, since: float) -> None:
        """On a timer's thread: the function has had its time to give in."""
        with self._lock:
            if self._running is not call:
                return
        call.tell(
            _error(call.cut or "cancelled", "The call was interrupted and did not give in; its sandbox has ended.")
        )
        os.write(self._log, b"sticky: a call would not stop within its grace; the sandbox ends\n")
        os._exit(TIMED_OUT if call.cut == "timeout" else WOULD_NOT_STOP)


def _packed(value: Any, plain: bool) -> bytes:
    try:
        if plain:
            data = json.dumps(value, allow_nan=False).encode()
        else:
            import cloudpickle  # type: ignore[import-untyped]

            data = cloudpickle.dumps(value, protocol=5)
    except Interrupted:
        raise
    except Exception as error:
        what = "is not plain data" if plain else "cannot be pickled"
        raise Refused(
            "unpicklable_result", f"What the function returned {what}: {type(error).__name__}: {error}"
        ) from error
    if len(data) > LARGEST:
        raise Refused("too_large", f"What the function returned has {len(data)} bytes, more than {LARGEST}.")
    return bytes(data)


def _error(code: str, message: str, **more: object) -> bytes:
    said = {"outcome": "error", "code": code, "message": message[:LONGEST_TEXT], "size": 0, **more}
    return document(Kind.DONE, said)
