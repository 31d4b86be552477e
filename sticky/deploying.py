"""Brings a new definition to a daemon that runs: reads it aside, compares, and applies it in one step, or not at all.

Decides what changed and whom to tell. Runs nothing, moves no bytes, and must not know where a definition's parts are made.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from twisted.internet.defer import Deferred, DeferredLock
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from sticky import errors
from sticky.config.changes import changed, needs_restart
from sticky.config.settings import ServerSettings, Settings
from sticky.config.sources import Sources
from sticky.core.container import Container, ContainerState
from sticky.core.values import DeploymentId, ServerName
from sticky.daemon import Servers
from sticky.deployments import Definition, Deployments
from sticky.errors import ConfigError
from sticky.iinspection import DeploymentView, DeployReport, IDeploying, LeavingView, RolloutView, ServerChange
from sticky.sdk.exception import InvalidError
from sticky.service import ServerService

#: What can be wrong with a definition, or with the moment; everything else is a fault of ours.
FORESEEN = (ConfigError, InvalidError, errors.Refusal)
_ASKED = "no setting differs, new containers were asked for"


@attrs.frozen
class Applied:
    """A whole definition. `edition` tells deployments apart that were asked for although nothing had changed."""

    settings: Settings = attrs.field(repr=False)
    sources: Sources
    edition: int = 0


@attrs.frozen
class Making:
    """How the parts of a daemon are made of settings.

    `load` reads sources and blocks, so it is called in a thread; the others are called by the reactor and open nothing.
    `definitions` raises `ConfigError`; so does `publish`, which tells edge, control calls, listeners and workers, or changes
    nothing. What that gives fires when every worker has it, with the names of those that were cut off instead.
    """

    load: Callable[[Sources], Settings]
    definitions: Callable[[Settings, int], Mapping[ServerName, Definition]]
    service: Callable[[Deployments], ServerService]
    publish: Callable[[Settings], Deferred[tuple[str, ...]]]
    deployments: Callable[[Definition], Deployments]
    in_thread: Callable[..., Deferred[Any]]


@implementer(IDeploying)
class Deployer:
    """See the module. `deployments` has those of each Server; one change at a time, others wait for their turn."""

    log = Logger()

    def __init__(
        self,
        applied: Applied,
        servers: Servers,
        deployments: dict[ServerName, Deployments],
        making: Making,
        may_change: Callable[[], None] = lambda: None,
    ) -> None:
        """`may_change` raises a Refusal while nothing may be changed that the next daemon has read already."""
        self._applied = applied
        self._previous: Applied | None = None
        self._servers = servers
        self._deployments = deployments
        self._making = making
        self._may_change = may_change
        self._turn = DeferredLock()

    @property
    def settings(self) -> Settings:
        """The definition that holds."""
        return self._applied.settings

    # --- the ways in

    def deploy(
        self,
        file: Path | None = None,
        app: str | None = None,
        cwd: Path | None = None,
        *,
        recreate: bool = False,
        force: bool = False,
    ) -> Deferred[DeployReport]:
        """See `IDeploying`."""
        return self._in_turn(lambda: self._deploy(file, app, cwd, recreate, force))

    def undo(self, *, recreate: bool = False) -> Deferred[DeployReport]:
        """See `IDeploying`."""
        return self._in_turn(lambda: self._undo(recreate))

    def hangup(self) -> None:
        """For SIGHUP: the same sources again. The log says what came of it."""
        self.deploy().addErrback(self._said)

    def _said(self, failure: Failure) -> None:
        """What can be foreseen is in the log already, in one line; the rest is our own mistake and needs its traceback."""
        if failure.check(*FORESEEN) is None:
            self.log.failure("the new definition could not be taken", failure)

    def _in_turn(self, work: Callable[[], Coroutine[Any, Any, DeployReport]]) -> Deferred[DeployReport]:
        turn: Deferred[DeployReport] = self._turn.run(lambda: Deferred.fromCoroutine(work()))
        return turn

    # --- what they do

    async def _deploy(
        self, file: Path | None, app: str | None, cwd: Path | None, recreate: bool, force: bool
    ) -> DeployReport:
        now = self._applied
        sources = now.sources
        if file is not None or app is not None:
            sources = sources.with_others(file, app, cwd or sources.cwd, now.settings.daemon.state_dir)
        self.log.info("a new definition is read: {sources}", sources=str(sources))
        try:
            settings = await self._making.in_thread(self._making.load, sources)
            report, told = self._apply(Applied(settings, sources, now.edition + force), recreate)
        except FORESEEN as problem:
            self.log.error("the new definition is not taken, nothing has changed: {problem}", problem=str(problem))
            raise
        return attrs.evolve(report, cut_off=await told)

    async def _undo(self, recreate: bool) -> DeployReport:
        if self._previous is None:
            raise errors.NothingBefore
        self.log.info("the definition before this one is applied again")
        try:
            report, told = self._apply(self._previous, recreate)
        except FORESEEN as problem:
            self.log.error("the earlier definition is not taken, nothing has changed: {problem}", problem=str(problem))
            raise
        return attrs.evolve(report, cut_off=await told)

    def _apply(self, new: Applied, recreate: bool) -> tuple[DeployReport, Deferred[tuple[str, ...]]]:
        """What it meant, and when every worker has it."""
        old = self._applied
        self._check(old, new)
        before = {server.name: server for server in old.settings.servers}
        after = {server.name: server for server in new.settings.servers}
        definitions = self._making.definitions(new.settings, new.edition)
        fresh = {name: self._making.deployments(definitions[name]) for name in after if name not in before}
        services = [self._making.service(deployments) for deployments in fresh.values()]
        told = self._making.publish(new.settings)
        # From here on nothing can fail.
        changes = []
        for service in services:
            self._deployments[service.server] = fresh[service.server]
            self._servers.add(service)
            service.startService()
            changes.append(ServerChange(service.server, "added", definitions[service.server].deployment))
        for name in before:
            if name in after:
                changes.append(self._change(before[name], after[name], definitions[name], recreate))
            else:
                changes.append(self._remove(name))
        if (new.settings, new.edition) != (old.settings, old.edition) or any(
            one.what != "unchanged" for one in changes
        ):
            self._previous = old
        self._applied = new
        order = {name: place for place, name in enumerate(after)}
        changes.sort(key=lambda change: order.get(change.server, len(order)))
        self._say(changes)
        tokens = old.settings.daemon.proxy_tokens != new.settings.daemon.proxy_tokens
        report = DeployReport(tuple(changes), tokens, new.settings.warnings, sources=str(new.sources))
        return report, told

    def _check(self, old: Applied, new: Applied) -> None:
        """Raises for what cannot be taken, before anything has changed."""
        self._may_change()
        names = needs_restart(old.settings, new.settings)
        if names:
            verb = "this setting needs" if len(names) == 1 else "these settings need"
            raise errors.RestartNeeded(
                str(new.sources), ", ".join(names), f"a change of {verb} a restart of the daemon: sticky restart"
            )
        leaving = {server.server for server in self._servers.leaving}
        for server in new.settings.servers:
            if server.name in leaving:
                raise errors.Unavailable(f"The Server {server.name} was removed and its containers are still ending.")
        if any(server.fleet.stopping is not None for server in self._servers.by_name.values()):
            raise errors.ShuttingDown

    def _change(self, old: ServerSettings, new: ServerSettings, definition: Definition, recreate: bool) -> ServerChange:
        service, deployments = self._servers.by_name[new.name], self._deployments[new.name]
        old = attrs.evolve(old, policy=service.fleet.policy)  # what holds now: an operator may have changed the scaling
        capacity, names = service.fleet.capacity, changed(old, new)
        boxes = list(capacity.containers.values())
        older = [box for box in boxes if box.deployment != definition.deployment]
        before = capacity.deployment
        what = "live" if names else "unchanged"
        if definition.deployment != before or (recreate and any(box.state is ContainerState.READY for box in older)):
            what = "recreated" if recreate else "rolling"
            deployments.bring(definition, {box.deployment for box in boxes})
            service.deploy(definition.deployment, new.policy, recreate)
        else:
            # Live settings of its spec, such as the URL.
            deployments.bring(definition, {box.deployment for box in boxes})
            if old.policy != new.policy:
                service.change_policy(new.policy)
        kept = sum(len(service.fleet.ledgers[box.id]) for box in older if box.id in capacity.containers)
        return ServerChange(new.name, what, definition.deployment, before, names, kept)

    def _remove(self, name: ServerName) -> ServerChange:
        service = self._servers.by_name[name]
        sessions = sum(len(ledger) for ledger in service.fleet.ledgers)
        del self._deployments[name]
        self._servers.remove(name)
        return ServerChange(name, "removed", None, service.fleet.capacity.deployment, (), sessions)

    def _say(self, changes: Sequence[ServerChange]) -> None:
        for change in changes:
            self.log.info(
                "deployed: Server {server} is {what} ({settings}); deployment {deployment}",
                server=change.server,
                what=change.what,
                settings=", ".join(change.settings) or ("no setting differs" if change.what == "unchanged" else _ASKED),
                deployment=change.deployment,
            )

    # --- looking

    def rollout(self) -> RolloutView:
        """See `IDeploying`."""
        deployments = [view for server in self._servers.by_name.values() for view in _deployments(server)]
        leaving = tuple(
            LeavingView(server.server, len(server.fleet.capacity.containers), sum(map(len, server.fleet.ledgers)))
            for server in self._servers.leaving
        )
        return RolloutView(str(self._applied.sources), tuple(deployments), leaving, self._previous is not None)


def _deployments(service: ServerService) -> list[DeploymentView]:
    """A Server's deployments of which something is left; the newest one always, and first."""
    boxes, newest = list(service.fleet.capacity.containers.values()), service.fleet.capacity.deployment
    return [
        _deployment(service, name, [box for box in boxes if box.deployment == name])
        for name in dict.fromkeys([newest, *(box.deployment for box in reversed(boxes))])
    ]


def _deployment(service: ServerService, name: DeploymentId, boxes: Sequence[Container]) -> DeploymentView:
    sessions = [session for box in boxes for session in service.fleet.ledgers[box.id]]
    states = tuple(sorted(box.state.value for box in boxes))
    in_flight = sum(service.in_flight(session) for session in sessions)
    newest = name == service.fleet.capacity.deployment
    return DeploymentView(service.server, name, newest, states, len(sessions), in_flight)
