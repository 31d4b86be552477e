"""`remote` and `bind`: what users write to have a function run in a sandbox.

Must not know how bytes travel (`client`), what of a function goes along (`capture`), nor how sessions begin and end (`session`).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import re
import sys
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar, overload

import attrs

from sticky.sandbox.frames import Kind
from sticky.sdk import arguments, limits
from sticky.sdk.calls.capture import packed_arguments, packed_function
from sticky.sdk.calls.client import Broken, CallConnection, Prepared
from sticky.sdk.calls.outcomes import Sent, broken, refused, value_of
from sticky.sdk.calls.sandboxes import place_of
from sticky.sdk.calls.session import Session
from sticky.sdk.exception import InvalidError
from sticky.sdk.steps import Reply

__all__ = ["BoundFunction", "Options", "RemoteFunction", "Session", "remote"]

P = ParamSpec("P")
R = TypeVar("R")

_REQUIREMENT = re.compile(
    r"[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?(\[[A-Za-z0-9._,-]+\])?((==|>=|<=|~=|!=|<|>)[A-Za-z0-9.*+!,<>=~]{1,80})?"
)
_MEMORY = re.compile(r"([0-9]{1,15})([KMG]i?)?")
_UNITS = {"": 1, "K": 1000, "M": 1000**2, "G": 1000**3, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}


@attrs.frozen(kw_only=True)
class Options:
    """How a function is to be called."""

    timeout: float | None = None
    memory: int | None = None
    packages: tuple[str, ...] = ()
    result: str = "pickle"
    cold: bool = False
    server: str | None = None

    def said(self) -> dict[str, Any]:
        """As a call's description."""
        said: dict[str, Any] = {"result": self.result}
        for key, value in (("timeout", self.timeout), ("memory", self.memory), ("cold", self.cold or None)):
            if value is not None:
                said[key] = value
        if self.packages:
            said["packages"] = list(self.packages)
        return said


class RemoteFunction(Generic[P, R]):
    """A function that runs in a sandbox when it is called. `local` calls it here."""

    def __init__(self, function: Callable[P, R], options: Options) -> None:
        functools.update_wrapper(self, function)
        self.__sticky_function__ = function
        self._options = options

    def __repr__(self) -> str:
        return f"<sticky.remote {_named(self.__sticky_function__)}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """In a fresh sandbox, which is destroyed afterwards."""
        value: R = _call(self.__sticky_function__, self._options, None, args, kwargs)
        return value

    async def aio(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The same, for asyncio."""
        value: R = await _call_async(self.__sticky_function__, self._options, None, args, kwargs)
        return value

    def local(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Here, as if it were not remote."""
        return self.__sticky_function__(*args, **kwargs)

    def bind(self, session: Session) -> BoundFunction[P, R]:
        """The same function, in a session."""
        if not isinstance(session, Session):
            raise InvalidError(f"bind takes a sticky.Session, not {type(session).__name__}")
        return BoundFunction(self.__sticky_function__, self._options, session)


class BoundFunction(Generic[P, R]):
    """A function that runs in a session's sandbox when it is called."""

    def __init__(self, function: Callable[P, R], options: Options, session: Session) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._options = options
        self._session = session

    def __repr__(self) -> str:
        return f"<sticky.remote {_named(self._function)} in {self._session!r}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Waits for the session's earlier calls, then runs. Never sent twice by itself."""
        value: R = _call(self._function, self._options, self._session, args, kwargs)
        return value

    async def aio(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The same, for asyncio. A task that is cancelled interrupts the call, and the session stays."""
        value: R = await _call_async(self._function, self._options, self._session, args, kwargs)
        return value


def _named(function: Callable[..., Any]) -> str:
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return f"{getattr(function, '__module__', None) or '__main__'}.{name}"


@overload
def remote(function: Callable[P, R], /) -> RemoteFunction[P, R]: ...
@overload
def remote(
    *,
    timeout: float | None = None,
    memory: str | None = None,
    packages: list[str] | tuple[str, ...] = (),
    result: str = "pickle",
    disable_optimized_execution: bool = False,
    server: str | None = None,
) -> Callable[[Callable[P, R]], RemoteFunction[P, R]]: ...
@arguments.named("sticky.remote")
def remote(
    function: Callable[..., Any] | None = None,
    /,
    *,
    timeout: float | None = None,
    memory: str | None = None,
    packages: list[str] | tuple[str, ...] = (),
    result: str = "pickle",
    disable_optimized_execution: bool = False,
    server: str | None = None,
) -> Any:
    """Have a function run in a sandbox. `timeout`: seconds, after which it is interrupted and its session ends.

    `memory` ("512Mi") and `packages`: what the sandbox must offer; a Server that does not is an `InvalidRequestError`. `result="json"`:
    only plain data comes back, and nothing is unpickled here. `disable_optimized_execution`: not in a sandbox that came from a
    snapshot. `server`: which Server's sandboxes. Raises `InvalidError` naming the argument.
    """
    if timeout is not None and (
        isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= 86_400
    ):
        raise InvalidError(f"timeout={timeout!r} is not allowed; it must be a number of seconds above 0, at most 86400")
    if result not in ("pickle", "json"):
        raise InvalidError(f'result={result!r} is not allowed; it must be "pickle" or "json"')
    if not isinstance(packages, list | tuple) or any(
        not isinstance(name, str) or _REQUIREMENT.fullmatch(re.sub(r" *([=<>~!]+|,) *", r"\1", name)) is None
        for name in packages
    ):
        raise InvalidError(
            f"packages={packages!r} is not allowed; it must be a list of names, perhaps with versions: no options, paths or URLs"
        )
    if not isinstance(disable_optimized_execution, bool):
        raise limits.refuse("disable_optimized_execution", disable_optimized_execution, "True or False")
    if server is not None:
        limits.check_name("server", server)
    options = Options(
        timeout=None if timeout is None else float(timeout),
        memory=_bytes(memory),
        packages=tuple(packages),
        result=result,
        cold=disable_optimized_execution,
        server=server,
    )

    def decorate(given: Callable[..., Any]) -> RemoteFunction[..., Any]:
        if isinstance(given, type) or not callable(given):
            what = f"the class {given.__name__}" if isinstance(given, type) else f"a {type(given).__name__}"
            raise InvalidError(f"@sticky.remote is on {what}; it must be on a function")
        return RemoteFunction(given, options)

    return decorate if function is None else decorate(function)


def _bytes(memory: str | None) -> int | None:
    if memory is None:
        return None
    found = _MEMORY.fullmatch(memory) if isinstance(memory, str) else None
    size = 0 if found is None else int(found[1]) * _UNITS[found[2] or ""]
    if not 1 << 20 <= size <= 1 << 50:
        raise InvalidError(f'memory={memory!r} is not allowed; it must be a size such as "512Mi", at least 1Mi')
    return size


# --- one call


async def _call_async(
    function: Callable[..., Any], options: Options, session: Session | None, args: Any, kwargs: Any
) -> Any:
    """On a thread of its own: in a pool's, calls of many sessions would wait for each other, and for others who use the pool."""
    connections: list[CallConnection] = []
    call: concurrent.futures.Future[Any] = concurrent.futures.Future()
    call.set_running_or_notify_cancel()  # from here on a cancel is ours to carry out

    def run() -> None:
        try:
            call.set_result(_call(function, options, session, args, kwargs, connections.append))
        except BaseException as error:
            call.set_exception(error)

    threading.Thread(target=run, name="sticky-call", daemon=True).start()
    try:
        return await asyncio.shield(asyncio.wrap_future(call))
    except asyncio.CancelledError:
        for connection in connections:
            connection.cut()
        raise


def _call(
    function: Callable[..., Any],
    options: Options,
    session: Session | None,
    args: Any,
    kwargs: Any,
    begun: Callable[[CallConnection], object] = lambda connection: None,
) -> Any:
    module = getattr(function, "__module__", None) or "__main__"
    said = {**options.said(), "request": uuid.uuid4().hex}
    prepared = Prepared(packed_function(function), packed_arguments(args, kwargs, module), said)
    server = (None if session is None else session.server) or options.server
    place = place_of(server)
    token = None if session is None else session.credential()
    if token is not None:
        headers = {place.names.authorization: f"Bearer {token}"}
    else:
        headers = {} if place.bearer is None else {"authorization": f"Bearer {place.bearer}"}
    connection = CallConnection(place) if session is None else session.borrow(place)
    sent = Sent(url=place.url, server=server, session=session, token=token)
    begun(connection)
    since = time.monotonic()
    try:
        outcome = connection.call(prepared, headers, _print)
    except BaseException as error:
        connection.cut()  # Ctrl-C here interrupts there
        connection.close()
        if not isinstance(error, Broken):
            raise
        broken(attrs.evolve(sent, token=token or error.token), str(error))
    if session is None:
        connection.close()
    else:
        session.give_back(connection)
    if isinstance(outcome, Reply):
        overdue = options.timeout is not None and time.monotonic() - since >= options.timeout
        refused(sent, outcome, overdue)
    return value_of(sent, outcome, function)


def _print(kind: Kind, data: bytes) -> None:
    stream = sys.stdout if kind is Kind.STDOUT else sys.stderr
    stream.write(data.decode("utf-8", "replace"))
    stream.flush()
