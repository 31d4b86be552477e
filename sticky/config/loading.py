"""From sticky.toml, an app's declaration and the command line to `Settings`, or one `ConfigError`.

Later sources win, setting by setting: the app's declaration, the file, the command line. One table reads all.
Must not run the app: its declaration comes in as values.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import attrs

from sticky.config import listeners, sandboxes, snapshots
from sticky.config.kinds import Place, Refused, show
from sticky.config.layers import Layer, Reading, unknown
from sticky.config.settings import DaemonSettings, ProxyTokenSettings, ServerSettings, Settings
from sticky.config.table import DAEMON, PROXY_TOKEN, SERVER, SERVER_NAME
from sticky.core.proxy_tokens import is_secret
from sticky.core.values import Policy, ServerName
from sticky.errors import ConfigError

_OF_PROCESSES = ("isolation", "memory", "cpu", "pids", "rlimits", "user")
_POLICY = frozenset(field.name for field in attrs.fields(Policy)) - {"single_use"}
_OF_STRANGERS = 100  #: starts that may wait for one client address


class Declared(Protocol):
    """One Server of an app, as a child process described it."""

    @property
    def name(self) -> str: ...
    @property
    def app(self) -> str: ...
    @property
    def settings(self) -> Mapping[str, object]:
        """Raw values of what the app itself sets, keys as in the file."""

    @property
    def command(self) -> tuple[str, ...]: ...
    @property
    def directory(self) -> Path: ...
    @property
    def port(self) -> int | None: ...
    @property
    def reports_ready(self) -> bool: ...
    @property
    def snap(self) -> bool: ...
    @property
    def zygote(self) -> tuple[str, ...]: ...


class DeclaredApp(Protocol):
    """An app, as a child process described it."""

    @property
    def source(self) -> str:
        """How errors name it."""

    @property
    def servers(self) -> Sequence[Declared]: ...


_NO_COMMAND = (
    'is missing; give what to run, such as command = ["./server", "{port}"],'
    " or name the app as well whose Server this is (game.py --config sticky.toml)"
)


def load(
    *,
    file: Path | None,
    app: DeclaredApp | None,
    flags: Mapping[str, object],
    cwd: Path,
    environ: Mapping[str, str],
    backends: Collection[str],
) -> Settings:
    """Read and check everything, once, before anything runs.

    `file` is the path as the operator gave it. `flags` are raw settings of the daemon's table from the command line;
    their paths and a relative `file` are relative to `cwd`. `backends` are the names of the installed ones.

    Raises `ConfigError`, on one line, also for what no table can foresee: numbers of thousands of digits, values nested
    without end, paths longer than the system takes.
    """
    try:
        return _load(file=file, app=app, flags=flags, cwd=cwd, environ=environ, backends=backends)
    except (OSError, RecursionError, ValueError, OverflowError) as error:
        source = "command line" if file is None else str(file)
        raise ConfigError(source, "", f"cannot be used: {type(error).__name__}: {error}") from None


def _load(
    *,
    file: Path | None,
    app: DeclaredApp | None,
    flags: Mapping[str, object],
    cwd: Path,
    environ: Mapping[str, str],
    backends: Collection[str],
) -> Settings:
    command_line = Place("command line", cwd, environ)
    document, place = ({}, command_line) if file is None else (_parse(file, cwd), _place(file, cwd, environ))
    sections = _sections(document, place)
    warnings: list[str] = []
    tokens = tuple(_token(Layer(place, f"proxy_tokens[{at}].", raw), warnings) for at, raw in sections.tokens)
    daemon = _daemon([Layer(place, "daemon.", sections.daemon), Layer(command_line, "--", flags)], tokens)
    servers = _servers(sections.servers, place, app, cwd, environ, backends)
    for endpoint in daemon.admin_listen:
        if endpoint.startswith(("tcp:", "tcp6:")) and listeners.reaches_others(endpoint):
            warnings.append(
                f"{place.source}: daemon.admin_listen: {endpoint} sends admin tokens over the network in the clear;"
                " use ssl:, or 127.0.0.1 behind a proxy that speaks TLS"
            )
    for at, token in enumerate(tokens):
        if any(token.id == earlier.id for earlier in tokens[:at]):
            raise ConfigError(place.source, f"proxy_tokens[{at}].id", f"{show(token.id)} is there twice")
        for name in token.servers:
            if name != "*" and not any(server.name == name for server in servers):
                known = ", ".join(server.name for server in servers)
                problem = f"there is no Server {show(name)} yet; there are: {known}"
                warnings.append(f"{place.source}: proxy_tokens[{at}].servers: {problem}")
    return Settings(daemon=daemon, servers=servers, warnings=tuple(warnings))


def _place(file: Path, cwd: Path, environ: Mapping[str, str]) -> Place:
    return Place(str(file), (cwd / file).absolute().parent, environ)


def _parse(file: Path, cwd: Path) -> dict[str, Any]:
    try:
        text = (cwd / file).read_bytes().decode("utf-8")
        return tomllib.loads(text)
    except OSError as error:
        raise ConfigError(str(file), "", f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(str(file), "", f"is not UTF-8 text (byte {error.start})") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(str(file), "", f"is not valid TOML: {' '.join(str(error).split())}") from None


@attrs.frozen
class _Sections:
    daemon: Mapping[str, object]
    tokens: Sequence[tuple[int, Mapping[str, object]]]
    servers: Mapping[str, Mapping[str, object]]


def _sections(document: Mapping[str, Any], place: Place) -> _Sections:
    for name in document:
        if name not in ("daemon", "proxy_tokens", "servers"):
            raise ConfigError(place.source, name, unknown(name, ("daemon", "proxy_tokens", "servers")))
    daemon, tokens, servers = document.get("daemon", {}), document.get("proxy_tokens", []), document.get("servers", {})
    if not isinstance(daemon, dict):
        raise ConfigError(place.source, "daemon", f"{show(daemon)} is not allowed; allowed: a [daemon] table")
    if not isinstance(tokens, list) or not all(isinstance(token, dict) for token in tokens):
        raise ConfigError(place.source, "proxy_tokens", "is not a list of tables; allowed: [[proxy_tokens]] tables")
    if not isinstance(servers, dict):
        raise ConfigError(place.source, "servers", f"{show(servers)} is not allowed; allowed: [servers.NAME] tables")
    for name, server in servers.items():
        if not isinstance(server, dict):
            known = unknown(name, [setting.name for setting in SERVER])
            hint = "; a setting stands in its Server's table" if "did you mean" in known or name in _POLICY else ""
            raise ConfigError(place.source, f"servers.{name}", f"is not a table; allowed: [servers.NAME] tables{hint}")
    return _Sections(daemon, tuple(enumerate(tokens)), servers)


def _token(layer: Layer, warnings: list[str]) -> ProxyTokenSettings:
    reading = Reading(PROXY_TOKEN, [layer])
    values = reading.values
    if (values["secret"] is None) == (values["secret_hash"] is None):
        raise reading.wrong("secret", "give either secret_hash or secret")
    if values["secret"] is not None:
        values["secret"] = _secret(reading, values["secret"], layer, warnings)
    return ProxyTokenSettings(**values)


def _secret(reading: Reading, secret: str, layer: Layer, warnings: list[str]) -> str:
    if not secret.startswith("env:"):
        warnings.append(
            str(reading.wrong("secret", 'a plain secret is for development; use secret_hash or "env:NAME"'))
        )
        return secret
    variable = secret.removeprefix("env:")
    found = layer.place.environ.get(variable)
    if found is None:
        raise reading.wrong("secret", f"the environment variable {variable} is not set")
    if not is_secret(found):
        raise reading.wrong("secret", f"the environment variable {variable} does not hold a secret of the form ws-…")
    return found


def _daemon(layers: Sequence[Layer], tokens: tuple[ProxyTokenSettings, ...]) -> DaemonSettings:
    reading = Reading(DAEMON, layers)
    values = reading.values
    if values["state_dir"] is None:
        values["state_dir"] = layers[0].place.base / "state"
    if values["state_dir"].exists() and not values["state_dir"].is_dir():
        raise reading.wrong(
            "state_dir", f"{str(values['state_dir'])!r} is a file; allowed: a directory, existing or not"
        )
    values["admin"] = _admin(values["admin"], values["state_dir"], reading, layers[0].place)
    return DaemonSettings(**values, proxy_tokens=tokens)


def _admin(text: str, state_dir: Path, reading: Reading, place: Place) -> str | None:
    try:
        return listeners.endpoint(text.replace("{state_dir}", listeners.quoted(str(state_dir))), place)
    except Refused as refused:
        if not reading.given("admin"):
            return None  # nobody chose this path, and a deep folder is no reason to serve nothing
        raise reading.wrong("admin", refused.problem or f"allowed: {listeners.ALLOWED}") from None


def _servers(
    tables: Mapping[str, Mapping[str, object]],
    place: Place,
    app: DeclaredApp | None,
    cwd: Path,
    environ: Mapping[str, str],
    backends: Collection[str],
) -> tuple[ServerSettings, ...]:
    declared = {server.name: server for server in app.servers} if app is not None else {}
    servers: list[ServerSettings] = []
    readings: list[Reading] = []
    for name in dict.fromkeys([*declared, *tables]):
        layers = []
        if name in declared and app is not None:
            layers.append(Layer(Place(app.source, cwd, environ), f"{name}.", declared[name].settings))
        if name in tables:
            layers.append(Layer(place, f"servers.{name}.", tables[name]))
        try:
            SERVER_NAME.read(name, place)
        except Refused:
            raise layers[-1].wrong("", f"not a Server's name; allowed: {SERVER_NAME.allowed}") from None
        reading = Reading(SERVER, layers)
        servers.append(_server(name, reading, declared.get(name), layers[-1].place.base, backends))
        readings.append(reading)
    if not servers:
        raise ConfigError(
            place.source, "servers", "there is none; add a [servers.NAME] table with a command, or give --app"
        )
    _check_hosts(servers, readings)
    return tuple(servers)


def _server(
    name: str, reading: Reading, declared: Declared | None, base: Path, backends: Collection[str]
) -> ServerSettings:
    values = reading.values
    zygote: tuple[str, ...] = ()
    if values["sandbox"] is not None:
        if declared is not None:
            raise reading.wrong("sandbox", "this Server is an app's class; allowed: a Server of the file alone")
        for key in sandboxes.DECIDED:
            if reading.given(key):
                raise reading.wrong(key, "is not for a Server with a sandbox table, which decides it")
        if values["backend"] != "process":
            raise reading.wrong("sandbox", f'is for backend = "process", and this one is {show(values["backend"])}')
        sandboxes.apply(values["sandbox"], values, {"startup_timeout": reading.given("startup_timeout")})
    if declared is None:
        if values["command"] is None and values["docker"] is None:
            raise reading.wrong("command", _NO_COMMAND)
        values["command"] = values["command"] or ()  # the image's own
        values["directory"] = values["directory"] or base
        snapshots.of_a_command(reading)
    else:
        if values["command"] is not None:
            raise reading.wrong("command", "this Server's command comes from the app; allowed: only the other settings")
        flags, zygote = snapshots.of_an_app(declared, values, reading)
        values["command"] = (*declared.command, *flags)
        values["directory"] = values["directory"] or declared.directory
        values["port"] = values["port"] or declared.port
    if values["backend"] not in backends:
        known = ", ".join(sorted(backends))
        raise reading.wrong("backend", f"{show(values['backend'])} is not installed; allowed: {known}")
    if values["backend"] == "docker" and values["docker"] is None:
        raise reading.wrong("docker", f"is missing; give [servers.{name}.docker] with an image")
    if values["backend"] != "docker" and values["docker"] is not None:
        raise reading.wrong("docker", f'is for backend = "docker", and this one is {show(values["backend"])}')
    for key in _OF_PROCESSES:
        if values[key] is not None and values["backend"] != "process":
            instead = f"; see [servers.{name}.docker]" if values["backend"] == "docker" else ""
            raise reading.wrong(key, f'is for backend = "process", and this one is {show(values["backend"])}{instead}')
    if not values["directory"].is_dir():
        raise reading.wrong("directory", f"there is no directory {str(values['directory'])!r}")
    values["env"] = {**values["env"], **values.pop("secrets")}
    if values["max_queue_per_caller"] is None and values["unauthenticated"]:
        # An owner's starts are those of all its users, an address's are not.
        values["max_queue_per_caller"] = _OF_STRANGERS
    single_use = values["sandbox"] is not None
    policy = Policy(**{key: values.pop(key) for key in _POLICY}, single_use=single_use)
    _check_policy(policy, reading)
    return ServerSettings(
        name=ServerName(name),
        app=name if declared is None else declared.app,
        reports_ready=declared is not None and declared.reports_ready,
        zygote=zygote,
        ready_path=values.pop("ready"),
        policy=policy,
        **values,
    )


def _check_policy(policy: Policy, reading: Reading) -> None:
    order = [
        ("min_containers", policy.min_containers, "max_containers", policy.max_containers),
        ("buffer_containers", policy.buffer_containers, "max_containers", policy.max_containers),
        ("target_concurrency", policy.target, "max_concurrency", policy.max_concurrency),
        ("max_containers", policy.max_containers, "max_total_containers", policy.total),
    ]
    for low, value, high, limit in order:
        if value > limit and reading.given(low):
            raise reading.wrong(low, f"{value} is above {high}, which is {limit}")
        if value > limit:
            raise reading.wrong(high, f"{limit} is below {low}, which is {value}")
    longest, age = policy.longest_idle, policy.container_max_age
    if longest >= age:
        # Placement needs an age limit farther away than the idle timeout: such a session could be placed nowhere.
        raise reading.wrong("max_idle_timeout", f"{longest:.12g} is not below container_max_age, which is {age:.12g}")
    if policy.idle_timeout > longest:
        bound = "max_idle_timeout" if reading.given("max_idle_timeout") else "half of container_max_age"
        raise reading.wrong("idle_timeout", f"{policy.idle_timeout:.12g} is above {bound}, which is {longest:.12g}")


def _check_hosts(servers: Sequence[ServerSettings], readings: Sequence[Reading]) -> None:
    owners: dict[str, str] = {}
    for server, reading in zip(servers, readings, strict=True):
        if not server.hosts and len(servers) > 1:
            example = f'hosts = ["{server.name.lower()}.localhost"]'
            raise reading.wrong("hosts", f"is missing; with several Servers each needs its own, such as {example}")
        for host in server.hosts:
            if host in owners:
                raise reading.wrong("hosts", f"{show(host)} already reaches the Server {owners[host]}")
            owners[host] = server.name
