"""Did the kernel kill a process for want of memory: the counters of its cgroup. Must not know what the process was.

The counter is of the cgroup, which containers may share with each other and with us. So each increment explains one death by
SIGKILL and no more, and one that came before we looked at the cgroup for the first time explains none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")

_COUNT = re.compile(rb"^oom_kill (\d+)$", re.MULTILINE)


class MemoryKills:
    """What the kernel killed in the cgroups that we have looked at."""

    def __init__(self, proc: Path = Path("/proc"), cgroups: Path = CGROUPS) -> None:
        self._proc = proc
        self._cgroups = cgroups
        self._explained: dict[Path, int] = {}

    def cgroup(self, pid: int, group: Path | None = None) -> Path | None:
        """The file that counts for a living process. None where no cgroup counts (the root of version 2 does not).

        `group`: its folder in version 2, where the process may be on its way into that.
        """
        try:
            lines = (self._proc / str(pid) / "cgroup").read_text("utf-8", "replace").splitlines()
        except OSError:
            return None
        for line in lines:
            number, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            # In a container of our own the path may be the host's, and the mount shows our cgroup as the root.
            if "memory" in controllers.split(","):  # version 1
                places = [self._cgroups / "memory" / path.lstrip("/"), self._cgroups / "memory"]
                counter = self._first(place / "memory.oom_control" for place in places)
            elif number == "0":
                counter = self._above(self._cgroups / path.lstrip("/") if group is None else group)
            else:
                continue
            if counter is not None:
                return counter
        return None

    def _above(self, group: Path) -> Path | None:
        """In version 2: the group's own file, or that of the nearest one above whose memory is accounted for."""
        above = [place for place in group.parents if place.is_relative_to(self._cgroups)]
        return self._first(place / "memory.events" for place in [group, *above])

    def _first(self, counters: Iterable[Path]) -> Path | None:
        for counter in counters:
            found = count(counter)
            if found is not None:
                self._explained.setdefault(counter, found)
                return counter
        return None

    def expect(self, counter: Path) -> None:
        """A group of one container's own: whatever was counted in it is that container's."""
        self._explained[counter] = 0

    def forget(self, counter: Path) -> None:
        """The group goes with its container."""
        self._explained.pop(counter, None)

    def explain(self, counter: Path | None) -> bool:
        """Whether a death by SIGKILL in this cgroup, by nobody's wish, was the kernel's for want of memory."""
        found = None if counter is None else count(counter)
        if counter is None or found is None or found <= self._explained.get(counter, found):
            return False
        self._explained[counter] += 1
        return True


def count(counter: Path) -> int | None:
    """How many the kernel has killed there for want of memory; None where nothing counts."""
    try:
        found = _COUNT.search(counter.read_bytes())
    except OSError:
        return None
    return None if found is None else int(found.group(1))
