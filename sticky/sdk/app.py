"""An App: what a user's file declares its Servers and local entrypoints on. Owns names and their uniqueness; runs nothing."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from sticky.sdk.arguments import named, refuse_bare
from sticky.sdk.declaration import AppDeclaration, ServerDeclaration
from sticky.sdk.decorators import check_class, enter_hooks, sessioned_mark
from sticky.sdk.exception import InvalidError
from sticky.sdk.limits import (
    PORT,
    check_name,
    check_number,
    check_order,
    check_setting,
    check_snapshot,
    refuse,
    strings,
)
from sticky.sdk.server import Server

_Entrypoint = TypeVar("_Entrypoint", bound=Callable[..., Any])


class App:
    """A named group of Servers, one to a file."""

    @named("sticky.App")
    def __init__(self, name: str) -> None:
        """The name has 1 to 63 letters, digits, - _ and dots; else `InvalidError`."""
        self.name = check_name("name", name)
        self.servers: dict[str, Server] = {}
        self.entrypoints: dict[str, Callable[..., Any]] = {}

    def __repr__(self) -> str:
        return f"<sticky.App {self.name!r}>"

    @named("app.server")
    def server(
        self,
        _missing_parentheses: object = None,
        /,
        *,
        name: str | None = None,
        port: int | None = 8000,
        command: Iterable[str] | None = None,
        python: str | None = None,
        max_concurrency: int | None = None,
        target_concurrency: int | None = None,
        min_containers: int | None = None,
        max_containers: int | None = None,
        buffer_containers: int | None = None,
        max_total_containers: int | None = None,
        scaleup_window: float | None = None,
        scaledown_window: float | None = None,
        startup_timeout: float | None = None,
        exit_grace_period: float | None = None,
        container_max_age: float | None = None,
        unauthenticated: bool | None = None,
        public_names: bool | None = None,
        idle_timeout: float | None = None,
        max_idle_timeout: float | None = None,
        queue_timeout: float | None = None,
        max_queue: int | None = None,
        max_queue_per_caller: int | None = None,
        max_sessions_per_caller: int | None = None,
        placement: str | None = None,
        serial: bool | None = None,
        session_wait_timeout: float | None = None,
        max_session_waiters: int | None = None,
        hosts: Iterable[str] | None = None,
        url: str | None = None,
        allowed_origins: Iterable[str] | None = None,
        half_close_timeout: float | None = None,
        response_timeout: float | None = None,
        websocket: str | None = None,
        max_message_size: int | None = None,
        ping_interval: float | None = None,
        ping_timeout: float | None = None,
        silent_timeout: float | None = None,
        websocket_refusal: str | None = None,
        ended_status: int | None = None,
        third_party_frames: bool | None = None,
        insecure_cookie: bool | None = None,
        ready: str | Mapping[str, str] | None = None,
        directory: str | None = None,
        preimport: Iterable[str] | None = None,
        snapshot: bool | None = None,
        env: Mapping[str, str] | None = None,
        secrets: Iterable[str] | Mapping[str, str] | None = None,
        backend: str | None = None,
        cpu: float | None = None,
        memory: str | None = None,
        pids: int | None = None,
        rlimits: Mapping[str, int] | None = None,
        user: str | None = None,
        isolation: Mapping[str, object] | None = None,
    ) -> Callable[[type], Server]:
        """Make a class a Server. An argument that is left out has the default of docs/configuration.md; times are seconds.

        `port`: where the program listens if it ignores PORT, in which case only one copy can run on a machine; None: it takes
        PORT for sure.
        `command`: what to run instead of enter hooks; {port} {host} {socket} {container_id} {url} in it are filled in.
        `python`: the interpreter of another virtual environment, 3.11 or newer, which need not have sticky (a path is relative
        to the app's file). The app's file is imported by the daemon's own too: what only the other has, import inside the hooks.
        `preimport`: modules that are imported, and with `@sticky.enter(snap=True)` hooks that are run, once for all containers, in a
        process that they are forked from. `snapshot=False`: each container does that itself.
        `isolation`: what containers are kept from, such as {"network": True}; see docs/isolation.md.
        `secrets`: variables that the container gets from the daemon's environment, by name or as {"NAME": "env:OTHER"}, or from
        a file, as {"NAME": "file:/run/secrets/name"} (a path is relative to the app's file).

        Raises `InvalidError` with the argument, its value and what is allowed.
        """
        given = dict(locals())
        bare = given.pop("_missing_parentheses")
        if bare is not None:
            refuse_bare("app.server", bare, "port=8000")
        declared = {
            key: check_setting(key, value)
            for key, value in given.items()
            if value is not None and key not in ("self", "name", "port", "command", "python")
        }
        own_name = None if name is None else check_name("name", name)
        if port is not None:
            check_number("port", port, PORT)
        words = None if command is None else _command(command)
        if python is not None and (not isinstance(python, str) or not python or words is not None):
            raise refuse("python", python, "the path of an interpreter, and only without command=")
        if words is not None and "preimport" in declared:
            raise refuse("preimport", declared["preimport"], "given without command=: a command is run without Python")
        if words is not None and any("{port}" in word or "{socket}" in word for word in words):
            port = None

        def decorate(cls: type) -> Server:
            check_class(cls, needs_hook=words is None)
            settings = dict(declared)
            mark = sessioned_mark(cls)
            if mark is not None:
                for key in ("max_concurrency", "target_concurrency"):
                    _add_once(settings, key, getattr(mark, key))
            check_order(settings)
            snap = words is None and bool(enter_hooks(cls)[0])
            if snap or settings.get("preimport"):
                check_snapshot(settings)
            declaration = ServerDeclaration(
                name=cls.__name__ if own_name is None else own_name,
                port=port,
                sessioned=mark is not None,
                command=words,
                python=python,
                snap=snap,
                settings=settings,
            )
            return self._add(cls, declaration)

        return decorate

    def _add(self, cls: type, declaration: ServerDeclaration) -> Server:
        name = check_name("name", declaration.name)
        if name in self.servers:
            raise refuse("name", name, f"another one: the app {self.name!r} has this Server already")
        server = Server(self.name, name, cls=cls, declaration=declaration)
        self.servers[name] = server
        return server

    @named("app.local_entrypoint")
    def local_entrypoint(self, _missing_parentheses: object = None, /) -> Callable[[_Entrypoint], _Entrypoint]:
        """Mark a function, sync or async and without required arguments, that `sticky run` runs beside the daemon."""
        if _missing_parentheses is not None:
            refuse_bare("app.local_entrypoint", _missing_parentheses)

        def decorate(function: _Entrypoint) -> _Entrypoint:
            if not inspect.isfunction(function):
                raise InvalidError(
                    f"@app.local_entrypoint() is on a {type(function).__name__}; it must be on a function"
                )
            try:
                inspect.signature(function).bind()
            except TypeError:
                raise InvalidError(
                    f"@app.local_entrypoint() is on {function.__name__}{inspect.signature(function)};"
                    " its arguments must have defaults"
                ) from None
            if function.__name__ in self.entrypoints:
                raise InvalidError(f"the app {self.name!r} has a local entrypoint {function.__name__!r} already")
            self.entrypoints[function.__name__] = function
            return function

        return decorate

    def declaration(self) -> AppDeclaration:
        """Everything that a daemon needs to know."""
        declared = (server.declaration for server in self.servers.values())
        return AppDeclaration(
            name=self.name,
            servers=tuple(declaration for declaration in declared if declaration is not None),
            entrypoints=tuple(self.entrypoints),
        )


def _command(value: Iterable[str]) -> tuple[str, ...]:
    words = tuple(strings("command", value))
    if not words or not words[0]:
        raise refuse("command", value, "a list of texts, the program first")
    return words


def _add_once(settings: dict[str, object], key: str, value: object) -> None:
    if value is None:
        return
    if key in settings and settings[key] != value:
        raise refuse(key, value, f"given once: @app.server() says {settings[key]!r} and @sticky.sessioned() this")
    settings[key] = value
