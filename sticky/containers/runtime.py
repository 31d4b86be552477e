"""Runs INSIDE a container: `python -m sticky.containers.runtime serve <file or module> [--server Name]`, `zygote` and `describe`.

Imports user code, so it is only ever a process of its own. Owns the order of a Python Server's life: enter hooks, the ready
report, exit hooks on SIGTERM, the end of what the hooks started. Must not know sessions, daemons or the event loop of Twisted.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, MutableMapping, Sequence
from enum import Enum
from functools import partial
from types import FrameType
from typing import NoReturn

from sticky.containers import leftovers
from sticky.containers.hooks import HookRunner, StopRequested, log, print_failure
from sticky.containers.preparing import HookFailed, explain, prepare
from sticky.sdk.decorators import enter_hooks, hook_names
from sticky.sdk.loading import LoadError, load_app
from sticky.sdk.server import Server

READY = b"ready\n"
DESCRIBED_BY = "STICKY_DESCRIBED_BY"  #: in the environment of `describe`: the pid of the process that wants to know
STOPS = (signal.SIGTERM, signal.SIGINT)
EXIT_LIMIT = 30.0  #: seconds for all exit hooks together


class Phase(Enum):
    """Where the life of the process stands; forward only."""

    STARTING = "starting"  # importing, running enter hooks
    SERVING = "serving"  # ready, waiting for a stop signal
    STOPPING = "stopping"  # exit hooks, then the end


#: What a stop signal does in each phase: in STARTING it interrupts the hook, in SERVING it wakes the wait. A second one is the
#: listed no-op: our own SIGTERM to the group may be among them.
ON_SIGNAL = {Phase.STARTING: Phase.STOPPING, Phase.SERVING: Phase.STOPPING, Phase.STOPPING: Phase.STOPPING}


class StopSignals:
    """SIGTERM, and SIGINT for whoever runs this by hand. Of the main thread only."""

    def __init__(self) -> None:
        self.phase = Phase.STARTING
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_writer, False)
        # A fork without exec (multiprocessing) keeps Python's handlers: SIGTERM to the child would stop us, and not the child.
        # One that comes before the child has put that right waits; otherwise Python drops it (PyOS_AfterFork_Child).
        self._masks = threading.local()
        os.register_at_fork(before=self._hold, after_in_parent=self._let_go, after_in_child=self._in_child)

    def install(self) -> None:
        """Again after the enter hooks: a library that took SIGTERM over would keep the exit hooks from running."""
        for number in STOPS:
            signal.signal(number, self._received)

    def uninstall(self) -> None:
        """Signals do what they do by default."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def _hold(self) -> None:
        self._masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)

    def _let_go(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._masks.before)

    def _in_child(self) -> None:
        self.uninstall()
        self._let_go()

    def _received(self, number: int, frame: FrameType | None) -> None:
        before, self.phase = self.phase, ON_SIGNAL[self.phase]
        if before is Phase.STARTING:
            raise StopRequested
        if before is Phase.SERVING:
            os.write(self._wake_writer, b"x")

    def check(self) -> None:
        """Raises `StopRequested` where a hook swallowed it."""
        if self.phase is Phase.STOPPING:
            raise StopRequested

    def wait(self) -> None:
        """Serve until a stop signal."""
        self.check()
        self.phase = Phase.SERVING
        os.read(self._wake_reader, 1)


class ReadyReport:
    """The descriptor on which the container's parent waits for the enter hooks. Never inherited by what the hooks start.

    And a file, for a later daemon: the descriptor's other end goes with the parent.
    """

    def __init__(self, descriptor: int | None, marker: str | None = None) -> None:
        self._descriptor = descriptor
        self._marker = marker
        if descriptor is not None:
            os.set_inheritable(descriptor, False)
            os.register_at_fork(after_in_child=self.close)  # a fork without exec keeps descriptors, inheritable or not

    @classmethod
    def from_environ(cls, environ: MutableMapping[str, str]) -> ReadyReport:
        """Takes STICKY_READY_FD and STICKY_READY_FILE out. Raises ValueError if the first is not an open descriptor."""
        text = environ.pop("STICKY_READY_FD", None)
        marker = environ.pop("STICKY_READY_FILE", None)
        if text is None:
            return cls(None, marker)
        try:
            return cls(int(text), marker)
        except (ValueError, OverflowError, OSError):
            raise ValueError(f"STICKY_READY_FD={text!r} is not the number of an open descriptor") from None

    def send(self) -> None:
        """The enter hooks are done. Says it once: in the file first, so that whoever heard it can rely on that too."""
        if self._marker is not None:
            try:
                os.close(os.open(self._marker, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
            except OSError as error:
                log(f"sticky: the file that says ready was not written: {error.strerror}\n")
        if self._descriptor is not None:
            try:
                os.write(self._descriptor, READY)
            except OSError as error:
                log(f"sticky: the ready report was not taken: {error.strerror}\n")
        self.close()

    def close(self) -> None:
        """Nothing will be reported (any more)."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def serve(prepared: Callable[[], tuple[Server, object]], exit_limit: float) -> int:
    """A container's whole life, from what `prepare` gives, or gave.

    The exit status: 0 after a stop signal, 1 if a hook raised or nothing could be loaded.
    """
    try:
        ready = ReadyReport.from_environ(os.environ)
    except ValueError as error:
        log(f"sticky: {error}\n")
        return 2
    signals = StopSignals()
    signals.install()
    runner = HookRunner()
    try:
        server, instance = prepared()
        signals.check()
        for hook in enter_hooks(type(instance))[1]:
            failure = runner.run(getattr(instance, hook))
            signals.check()
            if failure is not None:
                raise HookFailed(f"the enter hook {server.name}.{hook}", failure)
        signals.install()
        ready.send()
        signals.wait()
    except StopRequested:
        return 0
    except (LoadError, HookFailed) as problem:
        explain(problem)
        return 1
    finally:
        signals.phase = Phase.STOPPING
        ready.close()
    return _leave(server.name, instance, runner, exit_limit)


def _leave(name: str, instance: object, runner: HookRunner, limit: float) -> int:
    """Run the exit hooks. One that raises does not keep the others from running."""
    watch = threading.Timer(limit, _overdue, (name, limit))
    watch.daemon = True
    watch.start()
    status = 0
    for hook in hook_names(type(instance), "exit"):
        failure = runner.run(getattr(instance, hook))
        if failure is not None:
            print_failure(f"the exit hook {name}.{hook}", failure)
            status = 1
    watch.cancel()
    return status


def _overdue(name: str, limit: float) -> None:
    """On the watch's own thread: the main one is inside a hook."""
    log(f"sticky: the exit hooks of {name} took longer than {limit:g} seconds\n")
    leftovers.end()
    os._exit(0)


def describe(target: str) -> dict[str, object]:
    """What the app declares as JSON values, or {"error": one line, "traceback": text}."""
    try:
        return load_app(target).declaration().document()
    except LoadError as error:
        return {"error": str(error), "traceback": error.trace}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m sticky.containers.runtime")
    commands = parser.add_subparsers(dest="command", required=True)
    for word, what in (
        ("serve", "run one Server of an app, as a container does"),
        ("zygote", "prepare one Server of an app, and fork its containers"),
    ):
        serving = commands.add_parser(word, help=what)
        serving.add_argument("target", help="a file or a module")
        serving.add_argument("--server", help="the Server's name; may be left out if there is only one")
        serving.add_argument("--preimport", action="append", default=[], help="a module to import first")
        serving.add_argument("--exit-limit", type=float, default=EXIT_LIMIT, help="seconds for all exit hooks together")
    describing = commands.add_parser("describe", help="print an app's declaration as one JSON document")
    describing.add_argument("target", help="a file or a module")
    options = parser.parse_args(arguments)
    if options.command == "describe":
        if parent := os.environ.pop(DESCRIBED_BY, ""):
            from sticky.containers.spawn import die_with

            die_with(int(parent))  # an import may take for ever, and nobody would wait for it
        # The document has the only way to the old stdout; what the app prints at import goes to stderr, C code included.
        with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
            os.dup2(2, 1)
            document = describe(options.target)
            json.dump(document, out)
        return 1 if "error" in document else 0
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # the log is a file, and its reader wants lines as they come
    prepared = partial(prepare, options.target, options.server, options.preimport)
    if options.command == "zygote":
        from sticky.containers import zygote

        return zygote.run(prepared, options.exit_limit)
    status = serve(prepared, options.exit_limit)
    leftovers.end()
    return status


def leave(status: int) -> NoReturn:
    """End the process, without waiting for threads that the app left behind: a server thread would keep the process for ever."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            pass
    os._exit(status)


if __name__ == "__main__":
    leave(main())
