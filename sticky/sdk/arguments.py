"""Arguments that a call does not take are an `InvalidError` that says which, what there is, and what was perhaps meant.

Python's own TypeError names the argument and stops there. Must not know what any argument means.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from inspect import Parameter
from typing import Any, NoReturn, ParamSpec, TypeVar

from sticky.meant import meant
from sticky.sdk.exception import InvalidError

_P = ParamSpec("_P")
_R = TypeVar("_R")


def named(name: str) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Check how a function is called, before it is. `name`: as users write it; what it is bound to is not counted."""

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        @wraps(function)
        def checked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            check_call(name, function, args, kwargs)
            return function(*args, **kwargs)

        return checked

    return decorate


def check_call(name: str, function: Callable[..., Any], args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
    """Raises `InvalidError` where these are not a function's arguments. Values are not repeated: one may be a token."""
    signature = inspect.signature(function)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        parameters = list(signature.parameters.values())
        bound = bool(parameters) and parameters[0].name in ("self", "cls")
        problem = _problem(name, parameters[bound:], len(args) - bound, kwargs)
        raise InvalidError(problem or f"{name}(): {error}") from None


def refuse_bare(name: str, given: object, example: str = "") -> NoReturn:
    """Something stands in the place of what a decorator is on. `example`: an argument as it should be."""
    if callable(given):
        raise InvalidError(f"write @{name}() with parentheses")
    if not example:
        raise InvalidError(f"{name}() takes no arguments")
    raise InvalidError(f"{name}() takes its arguments by name: {name}({example})")


def _problem(name: str, parameters: list[Parameter], positional: int, kwargs: Mapping[str, object]) -> str:
    known = [one.name for one in parameters if one.kind is not Parameter.POSITIONAL_ONLY]
    takes = f"it takes {', '.join(known)}" if known else "it takes no arguments"
    for argument in kwargs:
        if argument not in known:
            close = meant(argument, known)
            hint = f"did you mean {close}? I{takes[1:]}" if close else takes
            return f"{name}() has no argument {argument!r}; {hint}"
    in_order = [one.name for one in parameters if one.kind is Parameter.POSITIONAL_OR_KEYWORD]
    if positional > len(in_order):
        order = f"at most {len(in_order)} arguments without a name ({', '.join(in_order)})" if in_order else "none"
        by_name = f"; by name {takes}" if len(known) > len(in_order) else ""
        return f"{name}() was given {positional} arguments without a name; it takes {order}{by_name}"
    for argument in in_order[:positional]:
        if argument in kwargs:
            return f"{name}() was given {argument} twice, by its place and by its name"
    missing = [
        one.name
        for one in parameters
        if one.default is Parameter.empty and one.name not in kwargs and one.name not in in_order[:positional]
    ]
    return f"{name}() was not given {', '.join(missing)}; {takes}" if missing else ""
