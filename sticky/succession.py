"""What a daemon gets from the one before it at `sticky restart`: the state directory's lock, listening sockets, and a word.

The environment says which descriptors they are (`VARIABLE`); whoever reads it takes them away from everybody else. Both sides
of that, and nothing of what a daemon is.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Final

import attrs

VARIABLE: Final = "STICKY_HANDOVER"
FIRST_FD: Final = 3

#: Run by an interpreter of its own: starts what its arguments say and ends, having told its pid. So that is nobody's child but the
#: service manager's (or init's), who is to see it end: systemd does not notice the end of a main process that is another one's child.
APART: Final = """
import os, sys
told = int(sys.argv[1])
pid = os.fork()
if pid:
    os.write(told, b"%d" % pid)
    os._exit(0)
os.close(told)
os.execvp(sys.argv[2], sys.argv[2:])
"""

# What the two say to each other (`workers.frames`).
# The new one is ready: {"pid"}; answered when the old one rests: {"proxies": how many will come}.
TAKE_OVER: Final = "take_over"
UP: Final = "up"  # the new one has taken everything up: {"socket", "pid", "version"}; answered: it is in charge


@attrs.frozen
class Inheritance:
    """The descriptors, by number."""

    link: int  #: a stream socket between the two daemons
    lock: int  #: of the state directory
    stderr: int  #: what is to be descriptor 2 once the start has succeeded: until then that is read by the old daemon
    listeners: Mapping[str, Sequence[int]]  #: by endpoint string

    def descriptors(self) -> Mapping[int, int]:
        """For the child: its number -> ours, from `FIRST_FD` on. `renumbered` says what the child is told."""
        ours = [self.link, self.lock, self.stderr, *(fd for fds in self.listeners.values() for fd in fds)]
        return dict(enumerate(ours, FIRST_FD))

    def renumbered(self) -> str:
        """The variable's value: as the child has them."""
        numbers = iter(range(FIRST_FD, FIRST_FD + 1024))
        link, lock, stderr = next(numbers), next(numbers), next(numbers)
        listeners = {endpoint: [next(numbers) for _ in fds] for endpoint, fds in self.listeners.items()}
        return json.dumps({"link": link, "lock": lock, "stderr": stderr, "listeners": listeners})


def inherited(environ: MutableMapping[str, str]) -> Inheritance | None:
    """What this process was given; None: it is no daemon's successor. Nobody else finds it there afterwards."""
    text = environ.pop(VARIABLE, None)
    if text is None:
        return None
    found = Inheritance(**json.loads(text))
    for number in (found.link, found.lock, found.stderr, *(fd for fds in found.listeners.values() for fd in fds)):
        os.set_inheritable(number, False)
    return found


def sockets_of(found: Inheritance) -> Mapping[str, list[socket.socket]]:
    """The listening sockets, by endpoint string."""
    return {endpoint: [socket.socket(fileno=fd) for fd in fds] for endpoint, fds in found.listeners.items()}


# --- from systemd ----------------------------------------------------------------------------------------------------


def environment_at_start() -> dict[str, str]:
    """As this process was started with: Twisted takes systemd's variables out of `os.environ` as soon as it is imported."""
    pairs = Path("/proc/self/environ").read_bytes().decode(errors="surrogateescape").split("\0")
    return {name: value for name, equals, value in (pair.partition("=") for pair in pairs) if equals}


def activated(environ: Mapping[str, str]) -> list[socket.socket]:
    """Listening sockets that systemd holds for us (sd_listen_fds(3))."""
    count, pid = environ.get("LISTEN_FDS", "0"), environ.get("LISTEN_PID", "")
    if pid != str(os.getpid()) or not count.isdigit():
        return []
    found = []
    for number in range(FIRST_FD, FIRST_FD + int(count)):
        one = socket.socket(fileno=number)
        one.set_inheritable(False)
        one.setblocking(False)
        found.append(one)
    return found
