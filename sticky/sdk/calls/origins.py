"""Where the lines of a remote traceback were written. Must not know what they mean.

A code object goes to a sandbox without the name of its file (cloudpickle leaves it out, so that the same code is the same bytes). Here
that is known, of the function that was called and of what its module defines besides.
"""

from __future__ import annotations

import linecache
import re
import types
from collections.abc import Callable, Iterator
from typing import Any

_SENT = re.compile(r'^([ |]*)File "<dynamic-code>", line ([0-9]{1,9}), in (.+)$', re.MULTILINE)


def located(traceback: str, function: Callable[..., Any]) -> str:
    """The same text, with file and source line of each line of code that can be told: by the name of its function and its number.

    For people: after an edit of the file, or for what an earlier version of it has left in the session, a line may be another.
    """
    if not isinstance(function, types.FunctionType) or _SENT.search(traceback) is None:
        return traceback
    known = list(_codes(function))
    linecache.checkcache()

    def replace(match: re.Match[str]) -> str:
        indent, number, name = match[1], int(match[2]), match[3]
        code = next((code for code in known if name in (code.co_name, code.co_qualname) and _has(code, number)), None)
        if code is None:
            return match[0]
        source = linecache.getline(code.co_filename, number, function.__globals__).strip()
        return f'{indent}File "{code.co_filename}", line {number}, in {name}' + (source and f"\n{indent}  {source}")

    return _SENT.sub(replace, traceback)


def _has(code: types.CodeType, number: int) -> bool:
    return any(line == number for _, _, line in code.co_lines())


def _codes(function: types.FunctionType) -> Iterator[types.CodeType]:
    """The function's own first, then its module's."""
    yield from _nested(function.__code__)
    for cell in function.__closure__ or ():
        try:
            yield from _of(cell.cell_contents)
        except ValueError:
            pass  # a name without a value
    for value in list(function.__globals__.values()):
        # By its type, and not by what it says: a lazy object would begin to work for a mere look at it.
        if issubclass(type(value), type) and value.__module__ == function.__module__:
            for part in list(vars(value).values()):
                for one in (part.fget, part.fset, part.fdel) if isinstance(part, property) else (part,):
                    yield from _of(one)
        else:
            yield from _of(value, function.__globals__)


def _of(value: object, scope: dict[str, Any] | None = None) -> Iterator[types.CodeType]:
    """`scope`: only if its global names are these."""
    if type(value) in (staticmethod, classmethod):
        inner = value.__func__  # type: ignore[attr-defined]
    else:
        try:
            inner = object.__getattribute__(value, "__sticky_function__")
        except AttributeError:
            inner = value
    if type(inner) is types.FunctionType and (scope is None or inner.__globals__ is scope):
        yield from _nested(inner.__code__)


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested(constant)
