"""A new definition against real Servers with containers that a test plays: what changes, and what must not."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from sticky import errors
from sticky.config.changes import what_runs
from sticky.config.loading import load
from sticky.config.settings import Settings
from sticky.config.sources import Sources
from sticky.containers.memory import MemoryBackend
from sticky.core.fleet import Fleet, Ids
from sticky.core.tokens import Claims, SigningKey, Verifier
from sticky.core.values import Caller, ContainerId, DeploymentId, EndReason, ServerName, SessionId
from sticky.daemon import Servers
from sticky.deploying import Applied, Deployer, Making
from sticky.deployments import Definition, Deployments
from sticky.iinspection import DeployReport, IDeploying
from sticky.isticky import ContainerSpec, IContainerBackend, StartRequest
from sticky.minting import Minting
from sticky.service import ServerService
from tests.fakes.routing import at_once
from tests.test_service import WALL, Holder

GAME = ServerName("game")


def table(name: str, *lines: str) -> str:
    return "\n".join([f"[servers.{name}]", 'command = ["./game"]', f'hosts = ["{name}.localhost"]', *lines, ""])


class DeployingCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.clock = Clock()
        self.backend = MemoryBackend(self.clock)
        self.numbers = iter(range(1, 100_000))
        self.published: list[Settings] = []
        self.workers: Deferred[tuple[str, ...]] | None = None  #: fires when they have it; None: there are none
        self.restarting = False
        self.broken: Exception | None = None  #: what loading fails with
        self.threads: list[Deferred[Any]] | None = None  #: a list: loading takes until a test fires what is in it
        key = SigningKey("k1", bytes(32))
        self.minting = Minting(key.sign, lambda: WALL + self.clock.seconds())
        self.verifier = Verifier({key.key_id: key.public})

    def begin(self, *tables: str) -> None:
        self.write(*tables)
        sources = Sources(Path("sticky.toml"), None, {}, self.folder)
        settings = self.load(sources)
        deployments = {name: self.deployments(one) for name, one in self.definitions(settings, 0).items()}
        self.servers = Servers([self.service(one) for one in deployments.values()])
        for server in self.servers.by_name.values():
            server.startService()
        making = Making(self.load, self.definitions, self.service, self.publish, self.deployments, self.in_thread)
        self.deployer = Deployer(Applied(settings, sources), self.servers, deployments, making, self.may_change)
        self.addCleanup(self.stop)

    def publish(self, settings: Settings) -> Deferred[tuple[str, ...]]:
        self.published.append(settings)
        return self.workers or succeed(())

    def may_change(self) -> None:
        if self.restarting:
            raise errors.RestartUnderWay

    def deployments(self, definition: Definition) -> Deployments:
        return Deployments(definition, {"memory": self.backend}.get)

    def stop(self) -> None:
        self.clock.advance(0)  # containers that are about to go
        for server in self.servers.all():
            server.stopService()
        self.assertEqual([call for call in self.clock.getDelayedCalls() if call.active()], [])

    def write(self, *tables: str, to: str = "sticky.toml") -> None:
        (self.folder / to).write_text("\n".join(tables))

    def load(self, sources: Sources) -> Settings:
        if self.broken is not None:
            raise self.broken
        return load(file=sources.file, app=None, flags=sources.flags, cwd=sources.cwd, environ={}, backends=["process"])

    def in_thread(self, function: Any, *arguments: Any) -> Deferred[Any]:
        if self.threads is None:
            return maybeDeferred(function, *arguments)
        waiting: Deferred[Any] = Deferred()
        self.threads.append(waiting)
        return waiting.addCallback(lambda _: function(*arguments))

    def definitions(self, settings: Settings, edition: int) -> Mapping[ServerName, Definition]:
        found = {}
        for server in settings.servers:
            level = str(server.env.get("LEVEL", ""))
            deployment = DeploymentId(f"dp-{hash((what_runs(server).__repr__(), edition))}")

            def spec(
                container: ContainerId, deployment: DeploymentId, name: ServerName = server.name, level: str = level
            ) -> ContainerSpec:
                return ContainerSpec(
                    container=container,
                    server=name,
                    deployment=deployment,
                    app=name,
                    command=("x", level),
                    directory=self.folder,
                    log=self.folder / "log",
                    scratch=self.folder,
                )

            found[server.name] = Definition(deployment, server, self.backend, spec)
        return found

    def service(self, deployments: Deployments) -> ServerService:
        newest = deployments.newest
        ids = Ids(
            lambda: SessionId(f"sd-{next(self.numbers):05}"),
            lambda: ContainerId(f"ct-{next(self.numbers):05}"),
            lambda: 0.5,
        )
        fleet = Fleet(newest.settings.policy, newest.deployment, ids)
        return ServerService(newest.settings.name, fleet, deployments, deployments.spec, self.minting, self.clock)

    def deploy(self, *tables: str, recreate: bool = False, force: bool = False) -> dict[str, str]:
        if tables:
            self.write(*tables)
        return self.said(self.successResultOf(self.deployer.deploy(recreate=recreate, force=force)))

    def said(self, report: DeployReport) -> dict[str, str]:
        return {change.server: change.what for change in report.servers}

    def session(self, server: str = "game") -> Claims:
        waiting = self.servers.start(StartRequest(ServerName(server), Caller("dev"), "dev", None))
        for container in [c for c in self.backend.spawned if c.state.value == "starting"]:
            container.make_ready()
        return self.verifier.verify(self.successResultOf(waiting).token.encode(), WALL)

    def refusal(self, claims: Claims) -> str:
        return str(self.assertRaises(errors.SessionEnded, self.servers.begin, claims, Holder()).code)

    def lives(self, claims: Claims) -> None:
        at_once(self.servers.begin(claims, Holder())).release()


class ChangeTests(DeployingCase):
    def test_it_deploys(self) -> None:
        self.begin(table("game"))
        self.assertTrue(verifyObject(IDeploying, self.deployer))
        self.assertTrue(
            verifyObject(
                IContainerBackend,
                self.deployments(
                    self.definitions(self.load(Sources(Path("sticky.toml"), None, {}, self.folder)), 0)[GAME]
                ),
            )
        )

    def test_nothing_has_changed(self) -> None:
        self.begin(table("game"))
        claims = self.session()
        self.assertEqual(self.deploy(), {"game": "unchanged"})
        self.lives(claims)
        self.assertEqual(self.session().container, claims.container)
        self.assertFalse(self.deployer.rollout().can_undo)

    def test_a_rolling_deployment_runs_each_container_with_its_own_definition(self) -> None:
        self.begin(table("game"))
        old = self.session()
        report = self.deploy(table("game", 'env = { LEVEL = "2" }'))
        self.assertEqual(report, {"game": "rolling"})
        new = self.session()
        self.assertNotEqual(new.container, old.container)
        self.lives(old)
        self.assertEqual([c.spec.command for c in self.backend.spawned], [("x", ""), ("x", "2")])
        views = self.deployer.rollout().deployments
        self.assertEqual(
            [(view.newest, view.sessions, view.containers) for view in views],
            [(True, 1, ("ready",)), (False, 1, ("ready",))],
        )
        self.assertEqual([view.deployment for view in views], [new.deployment, old.deployment])

    def test_starts_that_wait_go_to_the_new_deployment(self) -> None:
        self.begin(table("game"))
        waiting = self.servers.start(StartRequest(GAME, Caller("dev"), "dev", None))
        self.deploy(table("game", 'env = { LEVEL = "2" }'))
        self.assertNoResult(waiting)
        self.assertEqual(self.backend.spawned[0].signals, ["TERM"])
        self.backend.spawned[1].make_ready()
        self.successResultOf(waiting)

    def test_recreate(self) -> None:
        self.begin(table("game"))
        old = self.session()
        holder = Holder()
        self.servers.begin(old, holder)
        self.assertEqual(self.deploy(table("game", "port = 9"), recreate=True), {"game": "recreated"})
        self.assertEqual(holder.told, [(EndReason.DEPLOYMENT_ENDED, None)])
        self.assertEqual(self.refusal(old), "deployment_ended")

    def test_limits_of_running_containers(self) -> None:
        self.begin(table("game", "max_concurrency = 1"))
        first = self.session()
        self.assertEqual(self.deploy(table("game", "max_concurrency = 2")), {"game": "live"})
        self.assertEqual(self.session().container, first.container)
        self.assertEqual(self.published[-1].servers[0].policy.max_concurrency, 2)

    def test_force(self) -> None:
        self.begin(table("game"))
        old = self.session()
        self.assertEqual(self.deploy(force=True), {"game": "rolling"})
        self.assertNotEqual(self.session().container, old.container)
        self.assertEqual(self.deploy(), {"game": "unchanged"})

    def test_servers_come_and_go(self) -> None:
        self.begin(table("game"), table("echo"))
        game, echo = self.session(), self.session("echo")
        box = next(c for c in self.backend.spawned if c.id == echo.container)
        box.ignores_term = True
        self.assertEqual(
            self.deploy(table("game"), table("chat")), {"game": "unchanged", "chat": "added", "echo": "removed"}
        )
        self.lives(game)
        self.assertEqual(self.refusal(echo), "deployment_ended")
        self.session("chat")
        self.assertRaises(
            errors.UnknownHost, self.servers.start, StartRequest(ServerName("echo"), Caller("a"), "a", None)
        )
        self.assertEqual([(view.server, view.containers) for view in self.deployer.rollout().leaving], [("echo", 1)])
        failed = self.deployer.undo(recreate=False)
        self.failureResultOf(failed, errors.Unavailable)
        self.assertEqual(set(self.servers.by_name), {"game", "chat"})
        box.make_exit()
        self.assertEqual(self.deployer.rollout().leaving, ())
        self.assertEqual(
            self.said(self.successResultOf(self.deployer.undo(recreate=False))),
            {"game": "unchanged", "echo": "added", "chat": "removed"},
        )
        self.session("echo")


class RefusedTests(DeployingCase):
    def unchanged(self, claims: Claims) -> None:
        self.lives(claims)
        self.assertEqual(self.session().container, claims.container)
        self.assertEqual((self.published, self.deployer.rollout().can_undo), ([], False))

    def test_a_wrong_file_changes_nothing(self) -> None:
        self.begin(table("game"))
        claims = self.session()
        self.write(table("game", "max_containers = 0"))
        self.failureResultOf(self.deployer.deploy(), errors.ConfigError)
        self.deployer.hangup()
        self.unchanged(claims)

    def test_what_nobody_foresaw_is_logged_with_its_traceback_and_changes_nothing(self) -> None:
        self.begin(table("game"))
        claims = self.session()
        self.broken = RuntimeError("a bug of ours")
        self.deployer.hangup()
        self.assertEqual(self.flushLoggedErrors(RuntimeError)[0].value, self.broken)
        self.broken = None
        self.unchanged(claims)

    def test_what_needs_a_restart_changes_nothing(self) -> None:
        self.begin(table("game"))
        claims = self.session()
        self.write('[daemon]\nbrand = "other"\n', table("game", "port = 9"))
        problem = self.failureResultOf(self.deployer.deploy(), errors.RestartNeeded).value
        self.assertEqual(problem.key, "daemon.brand")
        self.unchanged(claims)

    def test_a_daemon_that_stops_takes_nothing_new(self) -> None:
        self.begin(table("game"))
        self.session()
        self.servers.by_name[GAME].drain()
        self.failureResultOf(self.deployer.deploy(), errors.ShuttingDown)

    def test_nothing_changes_while_a_new_daemon_is_about_to_take_over(self) -> None:
        self.begin(table("game"))
        claims = self.session()
        self.threads = []
        deployed = self.deployer.deploy(force=True)
        self.restarting = True  # it has read the definition, and may have another one
        self.threads[0].callback(None)
        self.failureResultOf(deployed, errors.RestartUnderWay)
        self.threads = None
        self.unchanged(claims)

    def test_there_is_nothing_to_undo_at_first(self) -> None:
        self.begin(table("game"))
        self.failureResultOf(self.deployer.undo(recreate=False), errors.NothingBefore)


class WorkersTests(DeployingCase):
    def test_it_is_answered_when_every_worker_has_it_and_says_which_was_ended_instead(self) -> None:
        self.begin(table("game"))
        for number, again in enumerate((lambda: self.deployer.deploy(force=True), self.deployer.undo), 1):
            told: Deferred[tuple[str, ...]] = Deferred()
            self.workers = told
            done = again()
            self.assertEqual(len(self.published), number)
            self.assertNoResult(done)
            told.callback(("worker-2",))
            self.assertEqual(self.successResultOf(done).cut_off, ("worker-2",))


class TurnTests(DeployingCase):
    def test_one_after_the_other_and_requests_are_served_meanwhile(self) -> None:
        self.begin(table("game"))
        claims = self.session()
        self.threads = []
        self.write(table("game", "port = 9"))
        first, second = self.deployer.deploy(), self.deployer.deploy(force=True)
        self.assertEqual(len(self.threads), 1)
        self.lives(claims)
        self.threads[0].callback(None)
        self.assertEqual(self.said(self.successResultOf(first)), {"game": "rolling"})
        self.assertNoResult(second)
        self.threads[1].callback(None)
        self.assertEqual(self.said(self.successResultOf(second)), {"game": "rolling"})

    def test_another_file_becomes_the_one_that_is_read_again(self) -> None:
        self.begin(table("game"))
        (self.folder / "two").mkdir()
        self.write(table("game", "max_containers = 2"), to="two/sticky.toml")
        report = self.successResultOf(self.deployer.deploy(Path("sticky.toml"), None, self.folder / "two"))
        self.assertEqual(report.servers[0].settings[0], "directory")  # relative paths are the file's
        self.assertEqual(self.deployer.rollout().sources, str(self.folder / "two" / "sticky.toml"))
        self.write("broken")
        self.assertEqual(self.said(self.successResultOf(self.deployer.deploy())), {"game": "unchanged"})
        self.failureResultOf(
            self.deployer.undo(recreate=False).addCallback(lambda _: self.deployer.deploy()), errors.ConfigError
        )
