"""Starts a child the way Twisted's reactor does, without a look at each descriptor of the daemon. Must not know what it starts.

`reactor.spawnProcess` lists /proc/self/fd and asks each descriptor whether it is close-on-exec, so that it can close those
that are not: with 5,000 connections open that held the reactor for 20 to 30 ms at each start of a container (half of it the
kernel's listing, a third the 5,000 calls of fcntl), against 3 ms without. Python opens everything close-on-exec (PEP 446), and
our launcher closes what a C library may have let through, so nothing leaks.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the built-in part of `signal`: to ask for each as an enum took 0.5 ms
import os
import signal
from collections.abc import Mapping, Sequence
from typing import Any

from twisted.internet.interfaces import IReactorFDSet
from twisted.internet.process import Process
from twisted.internet.protocol import ProcessProtocol

_SIGNALS = tuple(map(int, signal.valid_signals()))


def start(
    reactor: IReactorFDSet,
    protocol: ProcessProtocol,
    arguments: Sequence[str],
    env: Mapping[str, str],
    descriptors: Mapping[int, int | str],
) -> None:
    """Like `reactor.spawnProcess` with these `childFDs`, for a program (the first argument, a path) that closes strays itself.

    Raises OSError, and ValueError for a NUL in an argument or variable. What the child is not given is open in it until it
    is closed there only if it was made inheritable.
    """
    _LeanProcess(  # type: ignore[no-untyped-call]
        reactor,
        os.fsencode(arguments[0]),
        [os.fsencode(argument) for argument in arguments],
        {os.fsencode(name): os.fsencode(value) for name, value in env.items()},
        None,
        protocol,
        childFDs=dict(descriptors),
    )


class _LeanProcess(Process):
    """Twisted's, but for how the descriptors are handed over.

    The method is not public: should it go or change its name, Twisted's own way is taken, which is right and slower.
    """

    def _trySpawnInsteadOfFork(
        self,
        path: object,
        uid: object,
        gid: object,
        executable: bytes,
        args: list[bytes],
        environment: Mapping[bytes, bytes],
        kwargs: Mapping[str, Any],
    ) -> bool:
        given: Mapping[int, int] = kwargs["fdmap"]
        if not given.keys().isdisjoint(given.values()):
            # Only where the daemon's own stdin, stdout or stderr was closed: one of ours would be written over.
            return bool(
                super()._trySpawnInsteadOfFork(  # type: ignore[no-untyped-call]
                    path, uid, gid, executable, args, environment, kwargs
                )
            )
        ignored = [number for number in _SIGNALS if _signal.getsignal(number) == signal.SIG_IGN]
        self.pid = os.posix_spawn(
            executable,
            args,
            environment,
            file_actions=[(os.POSIX_SPAWN_DUP2, ours, theirs) for theirs, ours in sorted(given.items())],
            setsigdef=ignored,  # an ignored signal stays ignored after exec
        )
        self.status = -1
        return True
