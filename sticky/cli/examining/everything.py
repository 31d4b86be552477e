"""All checks, in the order of what is to be mended first."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from sticky.cli.client import Admin
from sticky.cli.examining import listeners, machine, programs, state
from sticky.cli.examining.findings import Check, Finding, Grade
from sticky.cli.problems import Problem
from sticky.config.loading import load
from sticky.config.settings import Settings
from sticky.containers.describe import describe
from sticky.containers.plugins import installed
from sticky.errors import ConfigError
from sticky.sdk.exception import InvalidError


def examine(admin: Admin, config: str | None, app: str | None) -> list[Finding]:
    """`config` and `app`: what is to be served, if that is known here. A check that fails itself is a finding."""
    settings, about_settings = _settings(config, app)
    status, findings = _daemon(admin)
    findings += about_settings
    state_dir = admin.local.state_dir
    checks: list[Check] = [
        lambda: state.directory(state_dir),
        lambda: state.secrets(state_dir),
        machine.user,
        machine.open_files,
        machine.processes,
        machine.ports,
        machine.backlog,
        machine.clock,
        lambda: machine.cgroup(None if status is None else int(status["daemon"]["pid"])),
    ]
    if settings is not None:
        here = settings
        checks += [
            lambda: programs.there(here.servers),
            lambda: programs.engines(here.servers),
            lambda: programs.of_settings(here.servers),
            lambda: listeners.free(here.daemon, daemon_answers=status is not None),
            lambda: listeners.certificates(here.daemon),
            lambda: listeners.open_to_others(here.daemon.listen),
            lambda: listeners.admin_api(here.daemon.admin_listen),
        ]
    elif status is not None:
        there = status
        checks += [
            lambda: programs.that_run(there["servers"], state_dir),
            lambda: listeners.open_urls(there["daemon"]["listen"]),
            lambda: listeners.admin_api(there["daemon"].get("admin_listen", ())),
        ]
    for check in checks:
        try:
            findings += check()
        except OSError as error:
            findings.append(
                Finding(Grade.WARN, "doctor", f"a check could not be made: {error}", "Run it as the daemon's user.")
            )
    return findings


def _settings(config: str | None, app: str | None) -> tuple[Settings | None, list[Finding]]:
    if config is None and app is None:
        return None, []
    try:
        settings = load(
            file=None if config is None else Path(config),
            app=None if app is None else describe(app, None, Path.cwd()),
            flags={},
            cwd=Path.cwd(),
            environ=os.environ,
            backends=installed(),
        )
    except (ConfigError, InvalidError) as error:
        said = " ".join(str(error).split())
        return None, [Finding(Grade.FAIL, "configuration", said, "Mend it, then run sticky check.")]
    names = " and ".join(one for one in (app, config) if one is not None)
    findings = [Finding(Grade.OK, "configuration", f"{names} can be served")]
    for warning in settings.warnings:
        if "daemon.admin_listen" not in warning:  # there is a row about that
            findings.append(Finding(Grade.WARN, "configuration", warning))
    return settings, findings


def _daemon(admin: Admin) -> tuple[dict[str, Any] | None, list[Finding]]:
    try:
        status = admin.status()
    except Problem as problem:
        return None, [Finding(Grade.WARN, "daemon", problem.text, problem.advice)]
    daemon = status["daemon"]
    findings = [Finding(Grade.OK, "daemon", f"sticky {daemon['version']} answers, pid {daemon['pid']}")]
    for server in status["servers"]:
        if server["failures"]["in_a_row"]:
            times = server["failures"]["in_a_row"]
            text = f"containers of {server['name']} fail to start ({times} in a row)"
            findings.append(Finding(Grade.FAIL, "containers", text, "Why: sticky status"))
    return status, findings
