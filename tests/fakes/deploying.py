"""An `IDeploying` that notes what it is asked to do and answers when a test says so."""

from __future__ import annotations

from pathlib import Path

import attrs
from twisted.internet.defer import Deferred
from zope.interface import implementer

from sticky.core.values import DeploymentId, ServerName
from sticky.iinspection import DeploymentView, DeployReport, IDeploying, LeavingView, RolloutView, ServerChange

GAME, OLD, NEW = ServerName("game"), DeploymentId("dp-1"), DeploymentId("dp-2")
REPORT = DeployReport(
    (
        ServerChange(GAME, "rolling", NEW, OLD, ("env", "max_containers"), 3),
        ServerChange(ServerName("echo"), "removed", None, OLD),
    ),
    True,
    ("look twice",),
    ("worker-2",),
    "releases/41/sticky.toml",
)
ROLLOUT = RolloutView(
    "game.py",
    (
        DeploymentView(GAME, NEW, True, ("ready", "starting"), 2, 1),
        DeploymentView(GAME, OLD, False, ("ready",), 3, 0),
    ),
    (LeavingView(ServerName("echo"), 1, 4),),
    True,
)


@implementer(IDeploying)
@attrs.define(eq=False)
class FakeDeploying:
    """What it was asked is in `asked`; `answer` is what it gives."""

    asked: list[object] = attrs.field(factory=list)
    answer: Deferred[DeployReport] = attrs.field(factory=Deferred)

    def deploy(
        self, file: Path | None, app: str | None, cwd: Path | None, *, recreate: bool, force: bool
    ) -> Deferred[DeployReport]:
        self.asked.append((file, app, cwd, recreate, force))
        return self.answer

    def undo(self, *, recreate: bool) -> Deferred[DeployReport]:
        self.asked.append(("undo", recreate))
        return self.answer

    def rollout(self) -> RolloutView:
        return ROLLOUT
