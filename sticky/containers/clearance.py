"""What containers that are gone have left in file systems: cgroups, and scratch folders. Must not end any process.

Folders are removed in a thread: nobody knows how much a program has put there, and sessions must not wait for that.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from sticky.containers.cgroups import Group
from sticky.containers.isolation import RUNTIME_FOLDER
from sticky.containers.removal import remove_tree
from sticky.core.values import ContainerId

_AGAIN = 0.05  # seconds; a process that was killed takes some, and until then its group stays
_TRIES = 100  # what is there after these is left to a later daemon


class Clearance:
    """Removes cgroups, as soon as they let it, and folders, as `in_thread` has time: it calls a function with arguments."""

    def __init__(self, clock: IReactorTime, in_thread: Callable[..., Deferred[Any]]) -> None:
        self._clock = clock
        self._in_thread = in_thread
        self._folders: set[Deferred[None]] = set()
        self._log = Logger(namespace="sticky.containers")
        self._left: dict[Group, int] = {}  # how often it is tried yet
        self._timer: IDelayedCall | None = None

    def remove(self, group: Group) -> None:
        """Now, or a little later."""
        if not group.remove():
            self._left[group] = _TRIES
            if self._timer is None:
                self._timer = self._clock.callLater(_AGAIN, self._again)

    def remove_folder(self, folder: Path) -> None:
        """With all that is in it, soon. What cannot be removed stays."""
        removal = self._in_thread(remove_tree, folder)
        self._folders.add(removal)

        def stays(failure: Failure) -> None:
            if failure.check(OSError) is None:
                self._log.failure("a scratch folder stays behind", failure)
            elif failure.check(FileNotFoundError) is None:
                reason = failure.getErrorMessage()
                self._log.warn("the scratch folder {folder} stays behind: {reason}", folder=str(folder), reason=reason)

        def done(_: object) -> None:
            self._folders.discard(removal)

        removal.addErrback(stays).addBoth(done)

    def clear_scratch(self, root: Path, known: Collection[ContainerId]) -> frozenset[str]:
        """Remove the folders of containers that are not known from a folder of scratch folders. Returns their names.

        Whatever has another name than a container, or is no folder, is left alone. To be called when none of their
        processes runs.
        """
        # Which they are is decided now: containers that come while the thread works are not in `known`.
        gone = set()
        try:
            with os.scandir(root) as entries:
                for entry in entries:
                    if entry.name.startswith("ct-") and entry.name not in known and entry.is_dir(follow_symlinks=False):
                        gone.add(entry.name)
        except OSError:
            pass  # there is none, or it is not ours
        for name in gone:
            self.remove_folder(root / name)
        return frozenset(gone)

    def stop(self) -> Deferred[None]:
        """Try for the last time; fires when the folders are removed that were to be."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        left, self._left = self._left, {}
        for group in left:
            group.remove()
        return DeferredList(list(self._folders)).addCallback(lambda _: None)

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
