"""What an app declares, asked of a child process: user code is never imported where keys and the state of others are.

Owns the question and the bounds on its answer; must not know configuration defaults, sessions or the event loop. It blocks,
so it is called before the reactor runs, or in a thread.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import attr
import attrs

from sticky.containers import bootstrap
from sticky.containers.environment import INHERITED
from sticky.errors import ConfigError
from sticky.sdk.declaration import AppDeclaration, ServerDeclaration
from sticky.sdk.exception import InvalidError
from sticky.sdk.loading import names_file, no_file, split_target

LONGEST_DOCUMENT = 1 << 20  #: bytes of JSON; an app with a hundred Servers needs a tenth of it
_STDERR_TAIL = 4096  #: bytes of the child's error output that are looked at


@attrs.frozen(kw_only=True)
class DescribedServer:
    """One Server of an app, ready to be configured and run."""

    name: str
    app: str
    #: Keys as in config.md's `[servers.x]`, only those that the app sets itself, and `sessioned` always. `command`, `port`
    #: and `python` are not among them: they are resolved into the fields below.
    settings: Mapping[str, object]
    command: tuple[str, ...]  #: what a container runs; a declared command keeps its {placeholders}
    directory: Path  #: absolute; the container's working directory
    port: int | None  #: where the program listens if it ignores PORT; None: it takes PORT (or {port}) for sure
    reports_ready: bool  #: it writes to STICKY_READY_FD when its enter hooks are done
    snap: bool = False  #: some of its hooks run once for all containers
    zygote: tuple[str, ...] = ()  #: what runs those, and forks containers; only of a class with hooks


@attrs.frozen(kw_only=True)
class Description:
    """An app, or the one Server of it that was asked for."""

    source: str  #: the app argument as given, for error texts
    app: str
    servers: tuple[DescribedServer, ...]  #: at least one, names unique, in the order of declaration
    entrypoints: tuple[str, ...] = ()  #: names of its local entrypoints


class Questions:
    """The children that one daemon asks. It need not wait for them when it ends: `abandon` may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked: set[subprocess.Popen[bytes]] = set()
        self.over = False  #: nobody waits for an answer any more

    def describe(self, app: str, python: str | None, cwd: Path) -> Description:
        """As the function."""
        return describe(app, python, cwd, questions=self)

    def abandon(self) -> None:
        """End every child that is asked now or later; whoever waits for one gets a `ConfigError`."""
        with self._lock:
            self.over = True
            for child in self._asked:
                child.kill()

    @contextmanager
    def asking(self, child: subprocess.Popen[bytes]) -> Iterator[None]:
        """This one is asked for the length of this."""
        with self._lock:
            self._asked.add(child)
            if self.over:
                child.kill()
        try:
            yield
        finally:
            with self._lock:
                self._asked.remove(child)


def describe(
    app: str, python: str | None, cwd: Path, timeout: float = 30, *, questions: Questions | None = None
) -> Description:
    """Ask a child with the Server's own Python what `app` declares: `game.py`, `game.py:Server`, `package.module:Server`.

    `python` is another interpreter, 3.11 or newer, that need not have sticky (None: the running one); `cwd` is where relative
    files and modules are looked up. Raises `errors.ConfigError` (one line, its source is `app`) for everything that can be wrong
    with the app, the interpreter included. Takes at most `timeout` seconds.
    """
    target, wanted = split_target(app)
    directory = cwd.absolute()
    if names_file(target):
        path = directory / target
        if not path.is_file():
            raise ConfigError(app, "", no_file(path))
        target = str(path)
    runtime = [sys.executable, "-m", "sticky.containers.runtime"]
    if python is not None:
        runtime = _bare(_interpreter(python, directory))
    declaration = _ask(app, [*runtime, "describe", target], directory, timeout, questions or Questions())
    servers = tuple(_describe(app, one, declaration.name, target, runtime, directory) for one in declaration.servers)
    if not servers:
        raise ConfigError(app, "", f"the app {declaration.name!r} has no Server: decorate a class with @app.server()")
    if wanted is not None:
        known = ", ".join(server.name for server in servers)
        servers = tuple(server for server in servers if server.name == wanted)
        if not servers:
            raise ConfigError(
                app, "", f"there is no Server {wanted!r} in the app {declaration.name!r}; it has: {known}"
            )
    return Description(source=app, app=declaration.name, servers=servers, entrypoints=declaration.entrypoints)


def _describe(
    source: str, server: ServerDeclaration, app: str, target: str, runtime: Sequence[str], directory: Path
) -> DescribedServer:
    command = server.command
    zygote: tuple[str, ...] = ()
    home = Path(target).parent if names_file(target) else directory
    if command is None:
        own = runtime
        if server.python is not None:
            interpreter = _interpreter(server.python, home)
            if shutil.which(interpreter) is None:
                raise ConfigError(source, f"{server.name}.python", f"there is no interpreter {interpreter}")
            own = _bare(interpreter)
        command = (*own, "serve", target, "--server", server.name)
        zygote = (*own, "zygote", target, "--server", server.name)
    return DescribedServer(
        name=server.name,
        app=app,
        settings={**_with_paths(server.settings, home), "sessioned": server.sessioned},
        command=command,
        directory=directory,
        port=server.port,
        reports_ready=server.command is None,
        snap=server.snap,
        zygote=zygote,
    )


def _bare(interpreter: str) -> list[str]:
    """The runtime in an interpreter of its own, which need not have Sticky."""
    return [interpreter, bootstrap.__file__, str(Path(attr.__file__).parents[1])]


def _with_paths(settings: Mapping[str, object], home: Path) -> Mapping[str, object]:
    """Files of secrets are relative to what names them, as interpreters are."""
    secrets = settings.get("secrets")
    if not isinstance(secrets, Mapping):
        return settings
    files = {
        name: f"file:{home / reference.removeprefix('file:')}"
        for name, reference in secrets.items()
        if isinstance(reference, str) and reference.startswith("file:")
    }
    return {**settings, "secrets": {**secrets, **files}}


def _interpreter(python: str, home: Path) -> str:
    """A bare name is looked up in PATH; a path is relative to what names it. Never resolved: a venv's python is a link."""
    return str(home / python) if os.sep in python else python


def _ask(app: str, command: Sequence[str], directory: Path, timeout: float, questions: Questions) -> AppDeclaration:
    """Run the child and read its one document."""
    # Files, not pipes: a process that the import starts may inherit them, and a pipe would then never end.
    with tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as noise:
        status = _run(app, command, directory, timeout, answer, noise, questions)
        answer.seek(0)
        document = answer.read(LONGEST_DOCUMENT + 1)
        noise.seek(max(0, noise.seek(0, os.SEEK_END) - _STDERR_TAIL))
        lines = noise.read().decode("utf-8", "replace").split("\n")
    if len(document) > LONGEST_DOCUMENT:
        raise ConfigError(app, "", f"its description is longer than {LONGEST_DOCUMENT} bytes")
    if not document and questions.over:
        raise ConfigError(app, "", "its import was given up, because the daemon ends")
    if not document:
        raise ConfigError(app, "", _silence(command[0], status, [line.strip() for line in lines if line.strip()]))
    try:
        fields = json.loads(document)
        if isinstance(fields, dict) and isinstance(fields.get("error"), str):
            raise ConfigError(app, "", fields["error"])
        return AppDeclaration.from_document(fields)
    except (ValueError, InvalidError) as error:
        raise ConfigError(app, "", f"its description cannot be read: {error}") from None


def _run(
    app: str,
    command: Sequence[str],
    directory: Path,
    timeout: float,
    answer: IO[bytes],
    noise: IO[bytes],
    questions: Questions,
) -> int:
    """The exit status of the child. Whatever it left in its process group is killed."""
    try:
        child = subprocess.Popen(
            command,
            cwd=directory,
            # By its environment: the interpreter may have another release of this package, which knows no other way.
            env={**_environment(os.environ), "STICKY_DESCRIBED_BY": str(os.getpid())},
            stdin=subprocess.DEVNULL,
            stdout=answer,
            stderr=noise,
            start_new_session=True,
        )
    except OSError as error:
        raise ConfigError(app, "", f"the interpreter {command[0]} cannot be run: {error.strerror}") from None
    try:
        with questions.asking(child):
            return child.wait(timeout)
    except subprocess.TimeoutExpired:
        raise ConfigError(app, "", f"importing it took longer than {timeout:g} seconds") from None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _silence(interpreter: str, status: int, lines: Sequence[str]) -> str:
    """Why a child said nothing."""
    last = lines[-1] if lines else ""
    if "No module named" in last and "sticky" in last:
        return f"the interpreter {interpreter} has no sticky installed: {last}"
    return f"importing it ended the interpreter (status {status}){f': {last}' if last else ''}"


def _environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """What a container inherits (semantics.md), and PYTHONPATH for checkouts: an import must not see the daemon's secrets."""
    return {
        name: value
        for name, value in inherited.items()
        if name in INHERITED or name.startswith("LC_") or name == "PYTHONPATH"
    }
