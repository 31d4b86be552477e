"""From a spec to a container that the Engine has started. Must not know whether the program in it is ready, nor how it ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import attrs
from twisted.logger import Logger

from sticky.containers.docker import recipe
from sticky.containers.docker.engine import Engine
from sticky.containers.docker.faults import EngineError, EngineRefused, no_image
from sticky.containers.docker.recipe import DockerOptions
from sticky.containers.docker.verdicts import not_run
from sticky.containers.ports import NoFreePort
from sticky.isticky import ContainerSpec

PORT_TRIES = 5
CREATE_TIMEOUT = 300.0  #: seconds; some storage drivers copy the image
START_TIMEOUT = 120.0

_log = Logger(namespace="sticky.containers")


class LaunchFailed(Exception):
    """It does not run; the text is for the operator. Nothing of it is left on the Engine, as far as that answered."""


class Unwanted(Exception):
    """Nobody wanted it any more before it was started."""


class Yard(Protocol):
    """What a launch needs. See `dock.Dock`."""

    @property
    def engine(self) -> Engine: ...
    @property
    def label(self) -> str: ...

    def acquire_port(self, spec: ContainerSpec, options: DockerOptions) -> int: ...
    def release_port(self, port: int) -> None: ...
    async def pull(self, image: str) -> None: ...
    def remove(self, engine_id: str) -> None: ...


@attrs.frozen
class Launched:
    """A container that the Engine has started."""

    engine_id: str
    port: int  #: on 127.0.0.1; whoever got this releases it


async def launch(spec: ContainerSpec, options: DockerOptions, yard: Yard, wanted: Callable[[], bool]) -> Launched:
    """Create and start it, on another port where one is taken. Raises `LaunchFailed` or `Unwanted`."""
    tried: list[int] = []
    try:
        while True:
            tried.append(yard.acquire_port(spec, options))
            try:
                engine_id = await _once(spec, options, yard, tried[-1], wanted)
                return Launched(engine_id, tried.pop())
            except EngineRefused as error:
                if not error.port_taken or len(tried) >= PORT_TRIES:
                    raise
                _log.info("Port {port} is taken, trying another", port=tried[-1])
    except EngineRefused as error:
        if error.no_such_command:
            raise LaunchFailed(not_run(spec, True, error.message)) from None
        raise LaunchFailed(f"cannot start a container: {error}") from None
    except (EngineError, NoFreePort, ValueError) as error:
        raise LaunchFailed(f"cannot start a container: {error}") from None
    finally:
        for port in tried:
            yard.release_port(port)


async def _once(spec: ContainerSpec, options: DockerOptions, yard: Yard, port: int, wanted: Callable[[], bool]) -> str:
    answer = await _create(recipe.creation(spec, options, yard.label, port), spec, options, yard)
    engine_id = answer.get("Id") if isinstance(answer, Mapping) else None
    if not isinstance(engine_id, str):
        raise LaunchFailed("the container engine created a container without an id")
    for warning in answer.get("Warnings") or ():
        _log.debug("The container engine warns: {text}", text=warning)
    if not wanted():
        yard.remove(engine_id)
        raise Unwanted
    try:
        await yard.engine.request("POST", f"/containers/{engine_id}/start", timeout=START_TIMEOUT)
    except EngineRefused:
        await _discard(engine_id, yard)  # waited for: the next try has the same name
        raise
    except EngineError:
        yard.remove(engine_id)
        raise
    return engine_id


async def _create(body: Mapping[str, Any], spec: ContainerSpec, options: DockerOptions, yard: Yard) -> Any:
    params = {"name": recipe.name(spec.container)}
    try:
        return await yard.engine.request("POST", "/containers/create", params, body, CREATE_TIMEOUT)
    except EngineRefused as error:
        if not error.no_such_image:
            raise
    if not options.pull:
        raise LaunchFailed(no_image(options.image))
    await yard.pull(options.image)
    return await yard.engine.request("POST", "/containers/create", params, body, CREATE_TIMEOUT)


async def _discard(engine_id: str, yard: Yard) -> None:
    try:
        await yard.engine.request("DELETE", f"/containers/{engine_id}", {"force": "1", "v": "1"})
    except EngineError as error:
        _log.warn("A container that could not be started stays behind: {problem}", problem=str(error))
