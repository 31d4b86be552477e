"""Where a configuration comes from, so that it can be read again: a file, an app, the command line, a working directory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import attrs

from sticky.config.loading import DeclaredApp, load
from sticky.config.programs import with_absent
from sticky.config.settings import Settings

#: Asks a child process what an app declares: (app, interpreter or None, working directory). Blocks.
Describe = Callable[[str, str | None, Path], DeclaredApp]


@attrs.frozen
class Sources:
    """As the operator gave them. Relative paths are relative to `cwd`."""

    file: Path | None
    app: str | None
    flags: Mapping[str, object]  #: raw settings of the daemon's table, from the command line
    cwd: Path

    def read(self, describe: Describe, environ: Mapping[str, str], backends: Collection[str]) -> Settings:
        """Read and check everything. Blocks, for as long as it takes to import the app in a child. Raises `ConfigError`."""
        settings = load(
            file=self.file,
            app=None if self.app is None else describe(self.app, None, self.cwd),
            flags=self.flags,
            cwd=self.cwd,
            environ=environ,
            backends=backends,
        )
        return with_absent(settings, environ)

    def with_others(self, file: Path | None, app: str | None, cwd: Path, state_dir: Path) -> Sources:
        """These, with another file or app. What is not named stays, as an absolute path where the folder is another one.

        A state directory that nobody named is beside the file; a file elsewhere does not move it.
        """
        kept_file = None if self.file is None else self.cwd / self.file
        flags = self.flags if file is None else {"state_dir": str(state_dir), **self.flags}
        if app is None:
            return Sources(kept_file if file is None else cwd / file, self.app, flags, self.cwd)
        return Sources(kept_file if file is None else cwd / file, app, flags, cwd)

    def __str__(self) -> str:
        """For the operator."""
        return " and ".join(str(one) for one in (self.app, self.file) if one is not None)
