"""Whether the programs of Servers are there, as the kernel would look for them. Runs nothing and forbids nothing: they may yet come."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import attrs

from sticky.config.settings import ServerSettings, Settings

#: Interpreters whose first argument is a file, if its name ends like one.
_INTERPRETER = re.compile(r"(python|pypy|node|nodejs|bun|ruby|perl|php|lua|bash|dash|sh|zsh)[\d.]*")
_SCRIPT = re.compile(r"[^{}]*\.(py|pyz|js|mjs|cjs|ts|rb|pl|php|lua|sh|bash)")
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"  #: of containers, where the daemon itself has no PATH


def absent(server: ServerSettings, environ: Mapping[str, str]) -> str:
    """Why its program cannot be run, as far as can be seen from here; empty if it can. `environ`: the daemon's."""
    if server.backend != "process" or not server.command:
        return ""
    name = server.command[0]
    if "/" in name:
        file = Path(server.directory, name)
        if not file.is_file():
            return f"there is no program {name}" + ("" if Path(name).is_absolute() else f" in {server.directory}")
        return _no_script(server) if os.access(file, os.X_OK) else f"{file} is not executable (chmod +x)"
    path = server.env.get("PATH") or environ.get("PATH") or DEFAULT_PATH
    files = [file for folder in path.split(os.pathsep) if (file := Path(server.directory, folder, name)).is_file()]
    if any(os.access(file, os.X_OK) for file in files):
        return _no_script(server)
    return f"{files[0]} is not executable (chmod +x)" if files else f"there is no program {name} on the PATH ({path})"


def _no_script(server: ServerSettings) -> str:
    """The same of a file that an interpreter is to run."""
    program, script = server.command[0], next(iter(server.command[1:]), "")
    if _INTERPRETER.fullmatch(Path(program).name) is None or script[:1] == "-" or _SCRIPT.fullmatch(script) is None:
        return ""
    if Path(server.directory, script).exists():
        return ""
    return f"there is no file {script}" + ("" if Path(script).is_absolute() else f" in {server.directory}")


def with_absent(settings: Settings, environ: Mapping[str, str]) -> Settings:
    """The same, with a warning for each Server whose containers cannot start like this."""
    problems = [(server.name, absent(server, environ)) for server in settings.servers]
    warnings = [f"the command of {name} cannot be run: {problem}" for name, problem in problems if problem]
    return attrs.evolve(settings, warnings=(*settings.warnings, *warnings))
