"""Loading a configuration file that a test writes, as the command line would. Must not hold expectations."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
from twisted.trial.unittest import SynchronousTestCase

from sticky.config.loading import DeclaredApp, load
from sticky.config.settings import ServerSettings, Settings
from sticky.errors import ConfigError

ECHO = '[servers.echo]\ncommand = ["./echo", "{port}"]\n'


@attrs.frozen(kw_only=True)
class DeclaredServer:
    """What a description of an app says of one Server."""

    name: str
    settings: Mapping[str, object] = attrs.field(factory=dict)
    app: str = "the-app"
    command: tuple[str, ...] = ("python", "-m", "runtime")
    directory: Path = Path("/")
    port: int | None = 8000
    reports_ready: bool = True
    snap: bool = False
    zygote: tuple[str, ...] = ("python", "-m", "zygote")


@attrs.frozen
class App:
    """A description of an app."""

    source: str
    servers: tuple[DeclaredServer, ...]


class ConfigCase(SynchronousTestCase):
    """Loads `sticky.toml` of a folder of the test's own."""

    def setUp(self) -> None:
        # Not mktemp(): below trial's folders a socket's path gets longer than a kernel takes.
        self.folder = Path(tempfile.mkdtemp()).resolve()
        self.addCleanup(shutil.rmtree, self.folder)

    def load(
        self,
        text: str | None,
        *,
        app: DeclaredApp | None = None,
        flags: Mapping[str, object] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Settings:
        file = None
        if text is not None:
            file = Path("sticky.toml")
            (self.folder / file).write_text(text)
        return load(
            file=file,
            app=app,
            flags=flags or {},
            cwd=self.folder,
            environ=environ or {},
            backends={"process", "memory"},
        )

    def server(self, settings: str, **more: Any) -> ServerSettings:
        """The Server of a file that has these settings besides a command."""
        (server,) = self.load(ECHO + settings, **more).servers
        return server

    def refused(self, text: str | None, **more: Any) -> str:
        """The error, which is on one line."""
        error = self.assertRaises(ConfigError, self.load, text, **more)
        self.assertNotIn("\n", str(error))
        return str(error)

    def refused_setting(self, settings: str, **more: Any) -> str:
        """The error of one wrong setting, without the part that names file and Server."""
        error = self.refused(ECHO + settings, **more)
        place = "sticky.toml: servers.echo."
        self.assertTrue(error.startswith(place), error)
        return error.removeprefix(place)
