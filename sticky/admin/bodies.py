"""What the admin API answers, as JSON values. Names and units are a contract with programs: seconds, and ids in full."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

import attrs

from sticky.config.settings import Settings
from sticky.core.values import Policy
from sticky.iinspection import (
    ContainerLog,
    ContainerView,
    DaemonView,
    DeployReport,
    EndedContainer,
    RolloutView,
    ServerView,
    SessionView,
    WorkerView,
)
from sticky.ioperating import KeyView, ScalingView, TokenView
from sticky.isticky import Credentials, Snapshot

API = 1  #: raised when an answer changes in a way that a program could not survive

_LIMITS = tuple(field.name for field in attrs.fields(Policy))

Body = dict[str, Any]


def daemon(view: DaemonView) -> Body:
    """The daemon itself."""
    return {
        "version": view.version,
        "api": API,
        "pid": view.pid,
        "uptime": _time(view.uptime),
        "state_dir": str(view.state_dir),
        "brand": view.brand,
        "listen": list(view.listen),
        "admin_listen": list(view.admin_listen),
    }


def worker(view: WorkerView) -> Body:
    """A process that serves clients beside the daemon."""
    return {
        "name": view.name,
        "state": view.state,
        "pid": view.pid,
        "age": _time(view.age),
        "restarts": view.restarts,
        "clients": view.clients,
        "websockets": view.websockets,
        "in_flight": view.in_flight,
        "sessions": view.sessions,
        "answered": view.answered,
    }


def server(view: ServerView, requests: int) -> Body:
    """A Server with its containers. `requests`: in total."""
    return {
        "name": view.name,
        "app": view.app,
        "url": view.url,
        "backend": view.backend,
        "command": list(view.command),
        "deployment": view.deployment,
        "sessioned": view.sessioned,
        "unauthenticated": view.unauthenticated,
        "stopping": view.stopping,
        "limits": _limits(view.policy),
        "sessions": {"active": view.active, "draining": view.draining, "in_flight": view.in_flight},
        "queue": {"waiting": view.waiting, "oldest": _time(view.oldest_wait), "limit": view.policy.max_queue},
        "failures": {
            "in_a_row": view.failures,
            "next_attempt_in": _time(view.next_attempt_in),
            "refusing_starts": view.hopeless,
        },
        "snapshot": None if view.snapshot is None else snapshot(view.snapshot),
        "totals": {"granted": view.granted, "refused": view.refused, "requests": requests},
        "containers": [container(one) for one in view.containers],
        "ended": [ended(one) for one in view.ended],
    }


def snapshot(view: Snapshot) -> Body:
    """What containers of a Server are forked from. `memory`: bytes."""
    return {"state": view.state, "pid": view.pid, "memory": view.memory, "problem": view.problem}


def container(view: ContainerView) -> Body:
    """A container that is not gone."""
    return {
        "id": view.container,
        "server": view.server,
        "deployment": view.deployment,
        "state": view.state,
        "age": _time(view.age),
        "age_left": _time(view.age_left),
        "sessions": view.sessions,
        "asked": view.asked,
        "limit": view.limit,
        "in_flight": view.in_flight,
        "address": view.address,
        "pid": view.pid,
        "descendants": view.descendants,
        "newest": view.newest,
    }


def ended(view: EndedContainer) -> Body:
    """A container that is gone."""
    return {
        "id": view.container,
        "server": view.server,
        "ended_ago": _time(view.ended_ago),
        "failed": view.failed,
        "detail": view.exit.detail,
        "status": view.exit.status,
        "signal": view.exit.signal,
        "message": view.exit.message,
        "last_lines": list(view.exit.last_lines),
    }


def session(view: SessionView) -> Body:
    """A session."""
    status = view.status
    return {
        "id": status.session,
        "server": view.server,
        "container": status.container,
        "deployment": view.deployment,
        "owner": status.owner,
        "name": status.name,
        "state": status.state,
        "reason": view.reason,
        "in_flight": status.in_flight,
        "age": _time(status.created_ago),
        "idle_timeout": _time(status.idle_timeout),
        "idle_left": _time(status.idle_left),
        "age_left": _time(status.age_left),
        "cut_left": _time(view.cut_left),
    }


def sessions(views: Sequence[SessionView], limit: int) -> Body:
    """A page of them, from one more than fits."""
    more = len(views) > limit
    return {
        "sessions": [session(view) for view in views[:limit]],
        "next": views[limit - 1].status.session if more else None,
    }


def credentials(given: Credentials, server_name: str, url: str, brand: str) -> Body:
    """What it takes to use a session. Holds its token: for the one who asked."""
    return {
        "session_id": given.session,
        "token": given.token,
        "created": given.created,
        "server": server_name,
        "url": url,
        "brand": brand,
        "idle_timeout": _time(given.idle_timeout),
        "expires_at": given.expires_at,
    }


def log(one: ContainerLog) -> Body:
    """A container whose output is kept."""
    return {"id": one.container, "server": one.server, "live": one.live, "path": str(one.path)}


def checked(settings: Settings) -> Body:
    """What a configuration would run."""
    return {
        "listen": list(settings.daemon.listen),
        "state_dir": str(settings.daemon.state_dir),
        "servers": [
            {
                "name": one.name,
                "backend": one.backend,
                "command": list(one.command),
                "sessioned": one.sessioned,
                "unauthenticated": one.unauthenticated,
                "hosts": list(one.hosts),
                "limits": _limits(one.policy),
            }
            for one in settings.servers
        ],
        "warnings": list(settings.warnings),
    }


def deployed(report: DeployReport) -> Body:
    """What a new definition meant."""
    return {
        "servers": [
            {
                "name": one.server,
                "what": one.what,
                "deployment": one.deployment,
                "before": one.before,
                "settings": list(one.settings),
                "sessions": one.sessions,
            }
            for one in report.servers
        ],
        "proxy_tokens": report.tokens,
        "warnings": list(report.warnings),
        "cut_off": list(report.cut_off),
        "sources": report.sources,
    }


def rollout(view: RolloutView) -> Body:
    """Which deployments there are."""
    return {
        "sources": view.sources,
        "deployments": [
            {
                "server": one.server,
                "deployment": one.deployment,
                "newest": one.newest,
                "containers": list(one.containers),
                "sessions": one.sessions,
                "in_flight": one.in_flight,
            }
            for one in view.deployments
        ],
        "leaving": [
            {"server": one.server, "containers": one.containers, "sessions": one.sessions} for one in view.leaving
        ],
        "can_undo": view.can_undo,
    }


def proxy_token(view: TokenView) -> Body:
    """A proxy token, without its secret."""
    return {
        "id": view.id,
        "owner": view.owner,
        "servers": list(view.servers),
        "expires_at": view.expires_at,
        "admin": view.admin,
        "source": view.source,
    }


def keys(view: KeyView) -> Body:
    """The signing keys of session tokens."""
    return {"key": view.key, "retired": [{"id": name, "until": until} for name, until in view.retired.items()]}


def rotated(view: KeyView) -> Body:
    """The same, after a rotation."""
    return {**keys(view), "cut_off": list(view.cut_off)}


def scaling(view: ScalingView) -> Body:
    """What a Server's autoscaler goes by."""
    return {"server": view.server, **view.values, "updated": list(view.updated)}


def _limits(policy: Policy) -> Body:
    """As in the configuration, with what is left out there filled in."""
    limits = {name: getattr(policy, name) for name in _LIMITS}
    limits["target_concurrency"] = policy.target
    limits["max_total_containers"] = policy.total
    limits["max_idle_timeout"] = policy.longest_idle
    return {name: value.value if isinstance(value, Enum) else value for name, value in limits.items()}


def _time(seconds: float | None) -> float | None:
    """To the millisecond: more digits are noise to whoever reads."""
    return None if seconds is None else round(seconds, 3)
