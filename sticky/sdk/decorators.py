"""The decorators inside and on a Server class, and the rules of such a class.

They only mark: `app.server` reads the marks. Must not know apps, daemons or how hooks are run.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Literal, NoReturn, TypeVar

import attrs

from sticky.sdk.arguments import named, refuse_bare
from sticky.sdk.exception import InvalidError
from sticky.sdk.limits import check_setting

Hook = Literal["enter", "exit"]
_Function = TypeVar("_Function", bound=Callable[..., Any])
_Class = TypeVar("_Class", bound=type)
_HOOK = "__sticky_hook__"
_SNAP = "__sticky_snap__"
_SESSIONED = "__sticky_sessioned__"


@attrs.frozen
class SessionedMark:
    """What `sessioned` was given; None where it was not."""

    max_concurrency: int | None
    target_concurrency: int | None


@named("sticky.enter")
def enter(_missing_parentheses: object = None, /, *, snap: bool = False) -> Callable[[_Function], _Function]:
    """Mark a method, sync or async, that the container runs before it is ready. Several run in the order of the class body.

    One that raises fails the container, with the traceback in its log. A program that it starts with `subprocess.Popen`
    keeps running; an async hook may leave tasks on its event loop, which stays alive.

    `snap`: run it once for all containers, in a process that each of them is then forked from; such hooks come before all others.
    It is for what takes long and is the same everywhere: imports, models, tables. What a fork would copy half (threads,
    connections, child processes, event loops) must not be left; an async one has an event loop of its own, which ends with it.
    `PORT` and the container's id are not known yet. See docs/sdk.md.
    """
    if type(snap) is not bool:
        raise InvalidError(f"@sticky.enter(snap={snap!r}) is not allowed; it must be True or False")
    return _hook("enter", _missing_parentheses, snap=snap)


@named("sticky.exit")
def exit(_missing_parentheses: object = None, /) -> Callable[[_Function], _Function]:
    """Mark a method, sync or async, that the container runs on SIGTERM. All of them together have 30 seconds.

    They do not run in a container whose enter hooks did not all succeed, nor in one that was killed.
    """
    return _hook("exit", _missing_parentheses)


@named("sticky.sessioned")
def sessioned(
    _missing_parentheses: object = None,
    /,
    *,
    max_concurrency: int | None = None,
    target_concurrency: int | None = None,
) -> Callable[[_Class], _Class]:
    """Make a Server sessioned; stands below `@app.server()`.

    `max_concurrency`: sessions that a container may hold, 1 to 1000, which is the default. `target_concurrency`: sessions that
    a container should hold before another one is started, 1 to `max_concurrency`, which is the default.
    """
    if _missing_parentheses is not None:
        refuse_bare("sticky.sessioned", _missing_parentheses, "max_concurrency=20")
    mark = SessionedMark(max_concurrency, target_concurrency)
    for key in ("max_concurrency", "target_concurrency"):
        if getattr(mark, key) is not None:
            check_setting(key, getattr(mark, key))

    def decorate(cls: _Class) -> _Class:
        if not isinstance(cls, type):
            _misplaced(cls)
        setattr(cls, _SESSIONED, mark)
        return cls

    return decorate


def _misplaced(value: object) -> NoReturn:
    from sticky.sdk.server import Server

    if isinstance(value, Server):
        raise InvalidError(f"@sticky.sessioned() must stand below @app.server() on {value.name}, not above it")
    raise InvalidError(
        f"@sticky.sessioned() is on {_name(value)}, a {type(value).__name__}; it must be on a class, below @app.server()"
    )


def _hook(kind: Hook, misplaced: object, *, snap: bool = False) -> Callable[[_Function], _Function]:
    if misplaced is not None:
        refuse_bare(f"sticky.{kind}", misplaced)

    def decorate(function: _Function) -> _Function:
        if not inspect.isfunction(function):
            raise InvalidError(
                f"@sticky.{kind}() is on {_name(function)}, a {type(function).__name__}; it must be on a method of a class"
            )
        where = f"@sticky.{kind}() is on {function.__qualname__}"
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise InvalidError(f"{where}, which yields; it must be a plain or an async method without yield")
        if not _takes_only_self(function):
            raise InvalidError(f"{where}{inspect.signature(function)}; it must take self and nothing else")
        if getattr(function, _HOOK, kind) != kind:
            raise InvalidError(f"{where}, which is the other kind of hook already; it must be one of them")
        if getattr(function, _HOOK, None) == "enter" and getattr(function, _SNAP) != snap:
            raise InvalidError(f"{where} twice, with and without snap; it must be one of them")
        setattr(function, _HOOK, kind)
        setattr(function, _SNAP, snap)
        return function

    return decorate


def _takes_only_self(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind(object())
    except TypeError:
        return False
    return True


def _name(value: object) -> str:
    return str(getattr(value, "__qualname__", repr(type(value).__name__)))


def sessioned_mark(cls: type) -> SessionedMark | None:
    """What `sessioned` left on this very class; a base class's mark does not count."""
    mark = vars(cls).get(_SESSIONED)
    return mark if isinstance(mark, SessionedMark) else None


def hook_names(cls: type, kind: Hook) -> tuple[str, ...]:
    """The methods marked as such hooks, base classes first, in the order of the class bodies. An override decides anew."""
    found: dict[str, bool] = {}
    for base in reversed(cls.__mro__):
        for name, value in vars(base).items():
            marked = inspect.isfunction(value) and getattr(value, _HOOK, None) == kind
            if marked or name in found:
                found[name] = marked
    return tuple(name for name, marked in found.items() if marked)


def enter_hooks(cls: type) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Those that run once before the fork, and those of each container, in the order in which they run."""
    names = hook_names(cls, "enter")
    before = tuple(name for name in names if getattr(getattr(cls, name), _SNAP))
    return before, tuple(name for name in names if name not in before)


def check_class(cls: object, *, needs_hook: bool) -> type:
    """The rules of a Server class. Raises `InvalidError`."""
    if not isinstance(cls, type):
        raise InvalidError(f"@app.server() is on {_name(cls)}, a {type(cls).__name__}; it must be on a class")
    if cls.__init__ is not object.__init__:  # type: ignore[misc]
        raise InvalidError(
            f"the class {cls.__qualname__} has an __init__; a Server must not: move it into a method with @sticky.enter()"
        )
    if needs_hook and not hook_names(cls, "enter"):
        raise InvalidError(
            f"the class {cls.__qualname__} has no enter hook; a Server must have a method with @sticky.enter() that starts"
            " its program, or command=[...] in @app.server()"
        )
    if needs_hook and not enter_hooks(cls)[1]:
        raise InvalidError(
            f"the class {cls.__qualname__} has no enter hook but with snap=True; a Server must have one without that starts its"
            " program in each container: nothing that runs is taken along into one"
        )
    if not needs_hook and (hook_names(cls, "enter") or hook_names(cls, "exit")):
        raise InvalidError(
            f"the class {cls.__qualname__} has hooks and command=; it must have one of them: a command is run without Python"
        )
    return cls
