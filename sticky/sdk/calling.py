"""The forms of a call: blocking as it stands, asyncio by `.aio`, and its bare steps for whoever has another loop.

A method of steps becomes all of them by `@call`. Must not know what a call means; imports an event loop for `.aio` only.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

import attrs

from sticky.sdk.arguments import named
from sticky.sdk.http import perform
from sticky.sdk.steps import Ask, Failure, Pause, Reply, Steps

_P = ParamSpec("_P")
_R = TypeVar("_R")


async def _perform(ask: Ask) -> Reply | Failure:
    from sticky.sdk.asynchronous import perform

    return await perform(ask)


async def _sleep(seconds: float) -> None:
    import asyncio

    await asyncio.sleep(seconds)


@attrs.frozen
class Carriers:
    """How requests are sent and pauses are made, in both forms; for tests to replace."""

    send: Callable[[Ask], Reply | Failure] = perform
    sleep: Callable[[float], object] = time.sleep
    send_async: Callable[[Ask], Awaitable[Reply | Failure]] = _perform
    sleep_async: Callable[[float], Awaitable[object]] = _sleep


class Caller(Protocol):
    """Whose methods are calls."""

    @property
    def carriers(self) -> Carriers:
        """What carries out the steps."""


_S_contra = TypeVar("_S_contra", bound=Caller, contravariant=True)


class Call(Generic[_P, _R]):
    """A call that is bound to its object. Call it and it blocks; `await x.aio(...)` does the same on asyncio."""

    def __init__(self, steps: Callable[_P, Steps[_R]], carriers: Carriers) -> None:
        self.steps = steps  #: what is done, for another loop to carry out
        self._carriers = carriers

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Make the call and wait for it. Not for a thread with a running event loop, which would stand still meanwhile."""
        steps = self.steps(*args, **kwargs)
        given: Reply | Failure | None = None
        while True:
            try:
                step = steps.send(given)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            if isinstance(step, Pause):
                self._carriers.sleep(step.seconds)
                given = None
            else:
                given = self._carriers.send(step)

    async def aio(self, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Make the call on asyncio's loop. A cancel ends it at once; what has been sent may have happened."""
        steps = self.steps(*args, **kwargs)
        given: Reply | Failure | None = None
        while True:
            try:
                step = steps.send(given)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            if isinstance(step, Pause):
                await self._carriers.sleep_async(step.seconds)
                given = None
            else:
                given = await self._carriers.send_async(step)


class call(Generic[_S_contra, _P, _R]):
    """Makes a method of steps a call."""

    def __init__(self, function: Callable[Concatenate[_S_contra, _P], Steps[_R]]) -> None:
        owner, _, name = function.__qualname__.rpartition(".")
        self._function = named(f"{owner.lower()}.{name}")(function)
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        self.__wrapped__ = function  # where `inspect` finds the arguments

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> call[_S_contra, _P, _R]: ...

    @overload
    def __get__(self, instance: _S_contra, owner: type[Any]) -> Call[_P, _R]: ...

    def __get__(self, instance: _S_contra | None, owner: type[Any]) -> call[_S_contra, _P, _R] | Call[_P, _R]:
        """Bound to an object, as methods are."""
        if instance is None:
            return self
        bound: Call[_P, _R] = Call(partial(self._function, instance), instance.carriers)
        bound.__doc__ = self._function.__doc__
        bound.__name__ = self._function.__name__  # type: ignore[attr-defined]
        return bound
