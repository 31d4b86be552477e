"""What containers that are gone have left in file systems: cgroups, and scratch folders. Must not end any process."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from pathlib import Path

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from sticky.containers.cgroups import Group
from sticky.containers.isolation import RUNTIME_FOLDER
from sticky.core.values import ContainerId

_AGAIN = 0.05  # seconds; a process that was killed takes some, and until then its group stays
_TRIES = 100  # what is there after these is left to a later daemon


class Clearance:
    """Removes cgroups, as soon as they let it."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._left: dict[Group, int] = {}  # how often it is tried yet
        self._timer: IDelayedCall | None = None

    def remove(self, group: Group) -> None:
        """Now, or a little later."""
        if not group.remove():
            self._left[group] = _TRIES
            if self._timer is None:
                self._timer = self._clock.callLater(_AGAIN, self._again)

    def stop(self) -> None:
        """Try for the last time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        left, self._left = self._left, {}
        for group in left:
            group.remove()

    def _again(self) -> None:
        self._timer = None
        self._left = {group: tries - 1 for group, tries in self._left.items() if tries > 1 and not group.remove()}
        if self._left:
            self._timer = self._clock.callLater(_AGAIN, self._again)


def leave_runtime_folder(root: Path) -> None:
    """Remove a folder of scratch folders that is outside of any state directory, if it is empty."""
    if root.is_relative_to(RUNTIME_FOLDER):
        for folder in (root, RUNTIME_FOLDER):
            try:
                folder.rmdir()
            except OSError:
                return  # there is none, or somebody's is in it


def clear_scratch(root: Path, known: Collection[ContainerId]) -> frozenset[str]:
    """Remove the folders of containers that are not known from a folder of scratch folders. Returns their names.

    Whatever has another name than a container, or is no folder, is left alone. To be called when none of their processes runs.
    """
    gone = set()
    try:
        with os.scandir(root) as entries:
            for entry in entries:
                if entry.name.startswith("ct-") and entry.name not in known and entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                    gone.add(entry.name)
    except OSError:
        pass  # there is none, or it is not ours
    return frozenset(gone)
