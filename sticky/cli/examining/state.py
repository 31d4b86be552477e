"""The state directory: whose it is, who else may use it or the secrets in it, and whether there is room."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sticky.cli.examining.findings import Finding, Grade, user_name
from sticky.cli.output import counted

ENOUGH_DISK: Final = 512 * 2**20  #: bytes: 10 MiB of log for each container, and the journal
#: Files whose holder can make tokens, or has one, and what to do when somebody else could read one.
SECRETS: Final = {
    "signing-key": "sticky keys rotate --revoke",
    "retired-keys": "sticky keys rotate --revoke",
    "deployment-key": "sticky keys rotate --revoke",
    "proxy-token": "sticky tokens revoke its id",
    "operator-token": "sticky tokens revoke its id",
    "token-key": "revoke its tokens: sticky tokens list",
    "tokens.json": "",
}


def directory(path: Path) -> Iterator[Finding]:
    """The directory itself."""
    what = "state directory"
    if not path.exists():
        yield Finding(Grade.OK, what, f"{path} is not there yet; the daemon makes it")
        return
    found = path.stat()
    mode = stat.S_IMODE(found.st_mode)
    if not path.is_dir():
        yield Finding(Grade.FAIL, what, f"{path} is no directory", "Choose another one with --state-dir.")
    elif mode & 0o022:
        yield Finding(Grade.FAIL, what, f"others can write to {path}", f"chmod 700 {path}")
    elif mode & 0o055:
        yield Finding(Grade.WARN, what, f"others can look into {path}", f"chmod 700 {path}")
    elif found.st_uid not in (os.geteuid(), 0):
        owner = user_name(found.st_uid)
        yield Finding(Grade.WARN, what, f"{path} belongs to {owner}", f"Run the daemon as {owner}.")
    else:
        yield Finding(Grade.OK, what, f"{path}, mode {mode:04o}")
    free = shutil.disk_usage(path).free
    grade = Grade.OK if free >= ENOUGH_DISK else Grade.WARN if free > 2**24 else Grade.FAIL
    advice = "" if grade is Grade.OK else "Make room: without it nothing new can be started or ended."
    yield Finding(grade, "disk", f"{free // 2**20} MiB free for the state directory", advice)
    longest = len(os.fsencode(path / "admin.sock"))
    if longest > 107:
        text = f"the path of the admin socket has {longest} bytes, more than the 107 that a socket may have"
        yield Finding(Grade.WARN, what, text, "Use a shorter --state-dir, or set daemon.admin.")


def secrets(path: Path) -> Iterator[Finding]:
    """Each secret is for the daemon's own user alone: the daemon refuses to start with another one."""
    good = 0
    for name, renew in SECRETS.items():
        secret = path / name
        try:
            found = secret.lstat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        if not stat.S_ISREG(found.st_mode):
            yield Finding(
                Grade.FAIL, "secrets", f"{secret} is no regular file", "Put the daemon's own back in its place."
            )
        elif found.st_mode & 0o077:
            mode = stat.S_IMODE(found.st_mode)
            new = f"; whoever has read it still has it: {renew}" if renew else ""
            yield Finding(
                Grade.FAIL, "secrets", f"others can use {secret} (mode {mode:04o})", f"chmod 600 {secret}{new}"
            )
        elif found.st_uid != path.stat().st_uid:
            owner = user_name(found.st_uid)
            yield Finding(
                Grade.FAIL, "secrets", f"{secret} belongs to {owner}", f"chown {user_name(path.stat().st_uid)} {secret}"
            )
        else:
            good += 1
    if good:
        yield Finding(Grade.OK, "secrets", f"{counted(good, 'file')}, for {user_name(path.stat().st_uid)} alone")
