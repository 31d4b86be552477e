"""What the arguments of `app.server`, `sessioned` and `sessions.start` may be, checked where the user writes them.

Owns the texts of `InvalidError` and the ranges that a user's program can check without loading the daemon's configuration;
a test holds them against that configuration. Must not know what a setting does.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from sticky.core.values import MAX_SESSIONS, Policy
from sticky.sdk.exception import InvalidError

_DAY = 86_400
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}")
_SIZE = re.compile(r"[1-9][0-9]*(?:Ki|Mi|Gi)")
_USER = re.compile(r"[A-Za-z0-9_.-]{1,64}(:[A-Za-z0-9_.-]{1,64})?")
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
DEFAULTS = Policy()


@attrs.frozen
class Range:
    """Numbers that an argument may have; `whole` ones are ints. A bool is never a number."""

    low: float
    high: float
    whole: bool = False
    unit: str = ""

    def __str__(self) -> str:
        kind = "a whole number" if self.whole else "a number"
        return f"{kind}{f' of {self.unit}' if self.unit else ''} from {self.low:.12g} to {self.high:.12g}"

    def allows(self, value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, int if self.whole else int | float):
            return False
        return math.isfinite(value) and self.low <= value <= self.high


def _seconds(low: float, high: float) -> Range:
    return Range(low, high, unit="seconds")


_MONTH = 30 * _DAY
NUMBERS: Mapping[str, Range] = {
    "max_concurrency": Range(1, MAX_SESSIONS, whole=True),
    "target_concurrency": Range(1, MAX_SESSIONS, whole=True),
    "min_containers": Range(0, 10_000, whole=True),
    "max_containers": Range(1, 10_000, whole=True),
    "buffer_containers": Range(0, 10_000, whole=True),
    "max_total_containers": Range(1, 10_000, whole=True),
    "scaleup_window": _seconds(0, 3600),
    "scaledown_window": _seconds(2, 3600),
    "startup_timeout": _seconds(0.1, 3600),
    "exit_grace_period": _seconds(0, 3600),
    "container_max_age": _seconds(2, _MONTH),
    "idle_timeout": _seconds(1, _MONTH),
    "max_idle_timeout": _seconds(1, _MONTH),
    "queue_timeout": _seconds(1, 300),
    "max_queue": Range(1, 100_000, whole=True),
    "max_queue_per_caller": Range(1, 100_000, whole=True),
    "max_sessions_per_caller": Range(1, 1_000_000, whole=True),
    "half_close_timeout": _seconds(0, 3600),
    "session_wait_timeout": _seconds(1, 3600),
    "max_session_waiters": Range(1, 10_000, whole=True),
    "response_timeout": _seconds(0.1, _DAY),
    "max_message_size": Range(1, 1 << 30, whole=True),
    "ping_interval": _seconds(0, _DAY),
    "ping_timeout": _seconds(1, 3600),
    "silent_timeout": _seconds(1, _MONTH),
    "cpu": Range(0.01, 1024),
    "pids": Range(1, 1_000_000, whole=True),
}
PORT = Range(1, 65535, whole=True)
CHOICES: Mapping[str, tuple[object, ...]] = {
    "placement": ("spread", "pack"),
    "websocket": ("frames", "messages"),
    "websocket_refusal": ("close", "http"),
    "ended_status": (410, 401),
}
#: What the tables of these arguments may hold; the rest of the checking is the configuration's.
ISOLATION: Mapping[str, type] = {
    "network": bool,
    "read_only": bool,
    "private_tmp": bool,
    "writable": list,
    "descendants": str,
}
RLIMITS = ("nofile", "nproc", "core", "fsize", "data", "stack", "as", "memlock", "cpu")
#: What of it a fork cannot have: it takes a process of its own from its beginning.
UNFORKABLE = ("network", "read_only", "private_tmp")
FLAGS = frozenset({"snapshot", "unauthenticated", "public_names", "serial", "third_party_frames", "insecure_cookie"})
#: An argument, and the one that it must not be above.
_ORDER = (
    ("target_concurrency", "max_concurrency"),
    ("min_containers", "max_containers"),
    ("buffer_containers", "max_containers"),
    ("max_containers", "max_total_containers"),
    ("idle_timeout", "max_idle_timeout"),
    ("max_idle_timeout", "container_max_age"),
)
#: Where the default of a bound comes from.
_DERIVED = {"max_total_containers": "max_containers", "max_idle_timeout": "container_max_age"}


def refuse(argument: str, value: object, allowed: object) -> InvalidError:
    """The error for one wrong argument: its name, the value as written (cut at 80 characters), and what is allowed."""
    text = repr(value)
    return InvalidError(
        f"{argument}={text if len(text) <= 80 else text[:77] + '...'} is not allowed; it must be {allowed}"
    )


def check_number(argument: str, value: object, allowed: Range) -> None:
    """Raises `InvalidError` unless the value is a number in the range."""
    if not allowed.allows(value):
        raise refuse(argument, value, allowed)


def check_name(argument: str, value: object) -> str:
    """A name of an app or Server: it stands in URLs, logs and file names."""
    if not isinstance(value, str) or _NAME.fullmatch(value) is None:
        raise refuse(argument, value, "1 to 63 letters, digits, - _ . and no - or . in front")
    return value


def check_setting(key: str, value: object) -> object:
    """One setting of config.md as a JSON value. Raises `InvalidError`. Keys that are not known here pass as they are."""
    if key in NUMBERS:
        check_number(key, value, NUMBERS[key])
    elif key in FLAGS:
        if not isinstance(value, bool):
            raise refuse(key, value, "True or False")
    elif key in CHOICES:
        if not any(type(value) is type(choice) and value == choice for choice in CHOICES[key]):
            raise refuse(key, value, " or ".join(map(repr, CHOICES[key])))
    elif key in ("hosts", "allowed_origins"):
        return strings(key, value)
    elif key == "preimport":
        modules = strings(key, value)
        for module in modules:
            if len(module) > 200 or _MODULE.fullmatch(module) is None:
                raise refuse(key, module, "names of modules such as 'numpy' or 'sklearn.svm'")
        return modules
    elif key in ("url", "backend", "directory"):
        if not isinstance(value, str) or not value:
            raise refuse(key, value, "a text")
    elif key == "memory":
        if not isinstance(value, str) or _SIZE.fullmatch(value) is None:
            raise refuse(key, value, "a size such as '512Mi' or '2Gi'")
    elif key == "user":
        if not isinstance(value, str) or _USER.fullmatch(value) is None:
            raise refuse(key, value, "a user, or user:group, by name or number")
    elif key == "isolation":
        return _table(key, value, ISOLATION)
    elif key == "rlimits":
        return _table(key, value, dict.fromkeys(RLIMITS, int))
    elif key == "env":
        return _variables(value)
    elif key == "secrets":
        return _secrets(value)
    elif key == "ready":
        match value:
            case "port":
                pass
            case {"path": str(path)} if len(value) == 1 and path.startswith("/"):  # type: ignore[arg-type]
                return {"path": path}
            case _:
                raise refuse(key, value, "'port' or {'path': '/...'}")
    return value


def check_order(settings: Mapping[str, object]) -> None:
    """Raises `InvalidError` where one setting is above the one that bounds it, defaults included."""
    fields = {field.name for field in attrs.fields(Policy)}
    given: dict[str, Any] = {
        key: value for key, value in settings.items() if key in fields - {"placement", "sessioned"}
    }
    policy = attrs.evolve(DEFAULTS, **given)
    effective = {
        **attrs.asdict(policy),
        "target_concurrency": policy.target,
        "max_total_containers": policy.total,
        "max_idle_timeout": policy.longest_idle,
    }
    for lower, upper in _ORDER:
        low, high = effective[lower], effective[upper]
        if low <= high:
            continue
        if lower in settings:
            raise refuse(lower, low, f"from {NUMBERS[lower].low:.12g} to {upper}, which is {high:.12g}")
        blamed = upper if upper in settings else _DERIVED[upper]
        raise refuse(blamed, effective[blamed], f"such that {lower} ({low:.12g}) is at most {upper} ({high:.12g})")


def check_snapshot(settings: Mapping[str, object]) -> None:
    """Raises `InvalidError` where containers cannot be forked from a process that has run snap hooks or imported `preimport`."""
    if settings.get("snapshot") is False:
        return
    remedy = "; snapshot=False runs enter(snap=True) hooks and imports preimport in each container instead"
    if settings.get("backend", "process") != "process":
        raise refuse(
            "backend", settings["backend"], f"'process' for containers that are forked from a snapshot{remedy}"
        )
    isolation = settings.get("isolation")
    for name, value in isolation.items() if isinstance(isolation, Mapping) else ():
        if (name in UNFORKABLE and value) or (name, value) == ("descendants", "pid_namespace"):
            why = "left out for containers that are forked from a snapshot: it takes a process of its own from its beginning"
            raise refuse(f"isolation[{name!r}]", value, f"{why}{remedy}")


def strings(argument: str, value: object) -> list[str]:
    """A list of texts, which a single text is not. Raises `InvalidError`."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise refuse(argument, value, "a list of texts")
    items = list(value)
    if not all(isinstance(item, str) and "\0" not in item for item in items):
        raise refuse(argument, value, "a list of texts")
    return items


def _table(argument: str, value: object, allowed: Mapping[str, type]) -> dict[str, object]:
    if not isinstance(value, Mapping) or not all(name in allowed for name in value):
        raise refuse(argument, value, f"a dict with some of {', '.join(allowed)}")
    read = {
        name: strings(f"{argument}[{name!r}]", item) if allowed[name] is list else item for name, item in value.items()
    }
    for name, item in read.items():
        if type(item) is not allowed[name]:
            raise refuse(
                f"{argument}[{name!r}]",
                item,
                {bool: "True or False", int: "a whole number"}.get(allowed[name], "a text"),
            )
    return read


def _variables(value: object) -> dict[str, str]:
    # Values are not repeated in an error: this is where people put passwords.
    if not isinstance(value, Mapping):
        raise InvalidError(f"env is a {type(value).__name__}; it must be a dict of texts such as {{'LEVEL': '1'}}")
    for name, text in value.items():
        if not isinstance(name, str) or _VARIABLE.fullmatch(name) is None:
            raise InvalidError(f"env has the name {name!r}; a name must be letters, digits and _")
        if not isinstance(text, str) or "\0" in text:
            raise InvalidError(f"env[{name!r}] is a {type(text).__name__}; it must be a text")
    return dict(value)


def _secrets(value: object) -> dict[str, str]:
    """Variable in the container -> where the daemon finds its value. The secret itself never stands in a declaration."""
    allowed = (
        "names of variables in the daemon's environment, or a dict such as"
        ' {"API_KEY": "env:API_KEY", "DB": "file:/run/secrets/db"}'
    )
    if isinstance(value, Mapping):
        pairs = dict(value)
    elif isinstance(value, Iterable) and not isinstance(value, str):
        pairs = {name: f"env:{name}" for name in value}
    else:
        raise InvalidError(f"secrets is a {type(value).__name__}; it must be {allowed}")
    for name, reference in pairs.items():
        if not isinstance(name, str) or _VARIABLE.fullmatch(name) is None:
            raise InvalidError(f"secrets has the name {name!r}; it must be {allowed}")
        source, _, where = reference.partition(":") if isinstance(reference, str) else ("", "", "")
        if not (source == "env" and _VARIABLE.fullmatch(where)) and not (source == "file" and where):
            raise InvalidError(f"secrets[{name!r}] is not a reference (its value is not shown); it must be {allowed}")
    return pairs
