"""Removes folders that programs have filled. Must not know whose they are, nor that anything of them still runs."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(folder: Path) -> None:
    """Remove a folder with all that is in it. Raises OSError where something stays; everything else has gone then.

    `shutil.rmtree` holds a descriptor for each level that it is down, and ends at Python's limit of recursion: a program that
    nests folders a thousand deep would have the daemon run out of descriptors. Here what lies two levels down is moved
    up first, so that three are enough. No link is followed.
    """
    top = os.open(folder, _FOLDER)
    try:
        _empty(top)
    finally:
        os.close(top)
    os.rmdir(folder)


def _empty(top: int) -> None:
    stuck: set[str] = set()
    new = secrets.token_hex(8)  # no name that is there already
    moved = 0
    while folders := _without_files(top) - stuck:
        for name in folders:
            try:
                inner = os.open(name, _FOLDER, dir_fd=top)
                try:
                    for below in _without_files(inner):
                        moved += 1
                        with suppress(OSError):  # it stays, and so does what it is in
                            os.rename(below, f"{new}-{moved}", src_dir_fd=inner, dst_dir_fd=top)
                finally:
                    os.close(inner)
                os.rmdir(name, dir_fd=top)
            except OSError:
                stuck.add(name)


def _without_files(folder: int) -> set[str]:
    """Remove all but folders from a folder; the names of those."""
    folders = set()
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):  # it stays, and so does what it is in
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.name, dir_fd=folder)
                    continue
                if os.geteuid():  # root needs no leave, and must not be led to change somebody's file
                    os.chmod(entry.name, 0o700, dir_fd=folder)
                folders.add(entry.name)
    return folders
