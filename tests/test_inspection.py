"""What an operator sees and does, over real Servers with containers that a test plays."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import attrs
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from sticky import errors
from sticky.config.loading import load
from sticky.containers.logs import log_path
from sticky.containers.memory import MemoryBackend, MemoryContainer
from sticky.core.fleet import Fleet, Ids
from sticky.core.tokens import Claims, SigningKey, Verifier
from sticky.core.values import ContainerId, DeploymentId, ServerName, SessionId
from sticky.daemon import Servers
from sticky.iinspection import IInspection
from sticky.inspection import Inspection, reachable
from sticky.isticky import ContainerSpec, Credentials
from sticky.minting import Minting
from sticky.service import ServerService
from sticky.witness import Endings, Witness
from tests.fakes.routing import at_once
from tests.test_service import WALL, Holder

FILE = """
[servers.game]
command = ["./game"]
hosts = ["game.localhost"]
max_concurrency = 2
max_containers = 2
exit_grace_period = 5

[servers.echo]
command = ["./echo"]
hosts = ["echo.localhost"]
url = "https://echo.example.org"
"""


class InspectionCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        file = self.folder / "sticky.toml"
        file.write_text(FILE)
        self.settings = load(file=file, app=None, flags={}, cwd=self.folder, environ={}, backends=["process"])
        self.clock = Clock()
        self.clock.advance(100)
        self.backend = MemoryBackend(self.clock)
        self.endings = Endings(self.clock)
        self.key = SigningKey("k1", bytes(32))
        self.verifier = Verifier({self.key.key_id: self.key.public})
        self.numbers = iter(range(1, 100_000))
        minting = Minting(self.key.sign, lambda: WALL + self.clock.seconds())
        self.servers = Servers([self.server(name, minting) for name in ("game", "echo")])
        self.inspection = Inspection(
            servers=self.servers,
            settings=self.settings,
            endings=self.endings,
            minting=minting,
            url=lambda settings: settings.url or "http://127.0.0.1:8080",
            listen=lambda: ["http://127.0.0.1:8080"],
            clock=self.clock,
        )

    def server(self, name: str, minting: Minting) -> ServerService:
        settings = next(one for one in self.settings.servers if one.name == name)

        def spec(container: ContainerId, deployment: DeploymentId) -> ContainerSpec:
            return ContainerSpec(
                container=container,
                server=settings.name,
                deployment=deployment,
                app=name,
                command=("x",),
                directory=self.folder,
                log=self.folder / "log",
                scratch=self.folder,
            )

        ids = Ids(
            lambda: SessionId(f"sd-{next(self.numbers):05}xyz"),
            lambda: ContainerId(f"ct-{next(self.numbers):05}"),
            lambda: 0.5,
        )
        fleet = Fleet(settings.policy, DeploymentId(f"dp-{name}"), ids)
        service = ServerService(settings.name, fleet, Witness(self.backend, self.endings), spec, minting, self.clock)
        service.startService()
        self.addCleanup(service.stopService)
        return service

    def ready(self) -> MemoryContainer:
        container = next(c for c in reversed(self.backend.spawned) if c.state.value == "starting")
        container.make_ready()
        return container

    def start(self, server: str = "game") -> Credentials:
        waiting = self.inspection.start(server, None, None)
        if not waiting.called:
            self.ready()
        return self.successResultOf(waiting)

    def claims(self, given: Credentials) -> Claims:
        return self.verifier.verify(given.token.encode(), WALL)


class LookingTests(InspectionCase):
    def test_it_is_an_inspection(self) -> None:
        self.assertTrue(verifyObject(IInspection, self.inspection))

    def test_the_daemon(self) -> None:
        self.clock.advance(7)
        found = self.inspection.daemon()
        self.assertEqual((found.pid, found.uptime, found.state_dir), (os.getpid(), 7.0, self.folder / "state"))

    def test_a_server_with_its_sessions_queue_and_totals(self) -> None:
        given = [self.start(), self.start()]
        lease = at_once(self.servers.begin(self.claims(given[0]), Holder()))
        waiting = self.inspection.start("game", None, None)
        self.clock.advance(3)
        game, echo = self.inspection.servers()
        self.assertEqual((game.active, game.draining, game.in_flight), (2, 0, 1))
        self.assertEqual((game.waiting, game.oldest_wait, game.granted, game.refused), (1, 3.0, 2, 0))
        self.assertEqual([box.state for box in game.containers], ["ready", "starting"])
        self.assertEqual((game.containers[0].sessions, game.containers[0].limit), (2, 2))
        self.assertEqual((echo.active, echo.containers, echo.url), (0, (), "https://echo.example.org"))
        waiting.cancel()
        self.failureResultOf(waiting)
        lease.release()
        self.assertEqual((self.inspection.servers()[0].in_flight, self.inspection.servers()[0].refused), (0, 0))

    def test_how_it_is_made_sure_that_nothing_of_a_container_stays(self) -> None:
        self.inspection.start("game", None, None).addErrback(lambda _: None)
        self.assertIsNone(self.inspection.containers("game")[0].descendants)  # its backend does not say
        place = {"pid": 7, "descendants": "cgroup"}
        self.patch(MemoryContainer, "place", property(lambda container: place))
        (view,) = self.inspection.containers("game")
        self.assertEqual((view.pid, view.descendants), (7, "cgroup"))

    def test_why_containers_failed_and_when_the_next_attempt_is(self) -> None:
        waiting = self.inspection.start("game", None, None)
        for _ in range(3):
            self.backend.spawned[-1].make_exit(status=1)
            self.clock.pump([0.5] * 20)
        self.failureResultOf(waiting, errors.ContainersFailing)
        game = self.inspection.servers()[0]
        self.assertGreaterEqual(game.failures, 3)
        self.assertEqual((game.hopeless, game.refused), (True, 1))
        self.assertTrue(game.ended[0].failed)
        self.assertEqual(game.ended[0].exit.status, 1)

    def test_sessions_of_all_servers_in_order_and_by_page(self) -> None:
        ids = sorted([self.start().session, self.start("echo").session, self.start().session])
        self.assertEqual([view.status.session for view in self.inspection.sessions(None, None, None, None, 9)], ids)
        first = self.inspection.sessions(None, None, None, None, 2)
        rest = self.inspection.sessions(None, None, None, first[-1].status.session, 9)
        self.assertEqual([view.status.session for view in (*first, *rest)], ids)

    def test_sessions_by_server_container_and_owner(self) -> None:
        game, echo = self.start(), self.start("echo")

        def found(**wanted: str) -> list[str]:
            args = (wanted.get("server"), wanted.get("container"), wanted.get("owner"))
            return [view.status.session for view in self.inspection.sessions(*args, None, 9)]

        self.assertEqual(found(server="echo"), [echo.session])
        self.assertEqual(found(container=self.claims(game).container), [game.session])
        self.assertEqual(len(found(owner="operator")), 2)
        self.assertEqual(found(owner="somebody"), [])
        self.assertRaises(errors.UnknownServer, found, server="gmae")
        self.assertRaises(errors.UnknownContainer, found, container="ct-none")

    def test_a_session_by_the_beginning_of_its_id(self) -> None:
        given = self.start()
        self.start()
        self.assertEqual(self.inspection.session(given.session).status.session, given.session)
        self.assertEqual(self.inspection.session(given.session[:8]).status.session, given.session)
        self.assertRaises(errors.AmbiguousId, self.inspection.session, "sd-0")
        self.assertRaises(errors.UnknownSession, self.inspection.session, "sd-")
        self.assertRaises(errors.UnknownSession, self.inspection.session, "sd-99")

    def test_an_ended_session_says_why(self) -> None:
        given = self.start()
        self.clock.advance(600)
        error = self.assertRaises(errors.SessionEnded, self.inspection.session, given.session)
        self.assertEqual(error.code, "idle_timeout")
        error = self.assertRaises(errors.SessionEnded, self.inspection.session, given.session[:8])
        self.assertEqual(error.code, "idle_timeout")
        self.assertEqual(self.inspection.session_id(given.session[:8]), given.session)
        self.assertRaises(errors.UnknownSession, self.inspection.session_id, "sd-99")

    def test_of_a_live_and_an_ended_session_the_live_one_is_meant(self) -> None:
        self.start()
        self.clock.advance(600)
        live = self.start()
        self.assertEqual(self.inspection.session("sd-0").status.session, live.session)
        self.assertEqual(self.inspection.session_id("sd-0"), live.session)

    def test_what_a_wrong_app_is_told(self) -> None:
        for app, server, said in (
            (None, "gmae", "There is no Server 'gmae'; there are: game, echo."),
            ("x", "gmae", "There is no Server 'gmae' of an app 'x'; there are: game, echo."),
            ("x", "game", "The Server 'game' is of no app: its own name stands in the app's place, not 'x'."),
        ):
            error = self.assertRaises(errors.UnknownServer, self.inspection.address, app, server)
            self.assertEqual(error.message, said)
        self.inspection.replace(
            attrs.evolve(self.settings, servers=tuple(attrs.evolve(one, app="arcade") for one in self.settings.servers))
        )
        error = self.assertRaises(errors.UnknownServer, self.inspection.address, "x", "game")
        self.assertEqual(error.message, "The Server 'game' is not of the app 'x' but of 'arcade'.")
        error = self.assertRaises(errors.UnknownServer, self.inspection.address, "arcade", "gmae")
        self.assertEqual(
            error.message, "There is no Server 'gmae' of an app 'arcade'; there are: arcade/game, arcade/echo."
        )

    def test_containers_of_earlier_deployments(self) -> None:
        given = self.start()
        service = self.servers.by_name[ServerName("game")]
        self.assertEqual([box.newest for box in self.inspection.containers("game")], [True])
        service.deploy(DeploymentId("dp-next"), service.fleet.policy, recreate=False)
        self.assertEqual([box.newest for box in self.inspection.containers("game")], [False])
        self.assertEqual(self.inspection.session(given.session).status.state, "active")


class DoingTests(InspectionCase):
    def test_a_token_is_minted_again_for_the_same_session(self) -> None:
        given = self.start()
        again = self.inspection.credentials(given.session)
        self.assertEqual(attrs.evolve(self.claims(again), issued_at=0), attrs.evolve(self.claims(given), issued_at=0))
        self.assertEqual((again.idle_timeout, again.created), (600.0, False))

    def test_the_operators_names(self) -> None:
        waiting = self.inspection.start("game", None, "lobby")
        self.ready()
        first = self.successResultOf(waiting)
        again = self.successResultOf(self.inspection.start("game", None, "lobby"))
        self.assertEqual((first.session, True, False), (again.session, first.created, again.created))
        self.assertEqual("lobby", self.inspection.session(first.session).status.name)
        self.assertEqual(first.session, self.successResultOf(self.inspection.release("game", "lobby", None)))
        with self.assertRaises(errors.SessionEnded):
            self.inspection.session(first.session)
        afresh = self.successResultOf(self.inspection.start("game", None, "lobby"))
        self.assertTrue(afresh.created)
        self.assertRaises(errors.UnknownServer, self.inspection.release, "gmae", "lobby", None)

    def test_a_plain_server_has_no_sessions_for_the_operator_either(self) -> None:
        game, echo = self.settings.servers
        plain = attrs.evolve(game, policy=attrs.evolve(game.policy, sessioned=False))
        self.inspection.replace(attrs.evolve(self.settings, servers=(plain, echo)))
        self.assertRaises(errors.NotSessioned, self.inspection.start, "game", None, None)

    def test_terminate_and_extend(self) -> None:
        given = self.start()
        self.clock.advance(300)
        self.assertEqual(self.inspection.session(given.session).status.idle_left, 300.0)
        self.assertEqual(self.inspection.extend(given.session).status.idle_left, 600.0)
        self.successResultOf(self.inspection.terminate(given.session, None))
        error = self.assertRaises(errors.SessionEnded, self.inspection.extend, given.session)
        self.assertEqual(error.code, "terminated")

    def test_until_when_a_terminated_session_may_go_on(self) -> None:
        given = self.start()
        self.servers.begin(self.claims(given), Holder())
        self.successResultOf(self.inspection.terminate(given.session, None))
        view = self.inspection.session(given.session)
        self.assertEqual((view.status.state, view.status.in_flight, view.cut_left), ("draining", 1, None))
        self.successResultOf(self.inspection.terminate(given.session, 30))
        self.clock.advance(10)
        self.assertEqual(self.inspection.session(given.session).cut_left, 20.0)

    def test_a_stopped_container_ends_when_its_work_is_done(self) -> None:
        given = self.start()
        holder = Holder()
        lease = at_once(self.servers.begin(self.claims(given), holder))
        container = self.claims(given).container
        self.assertEqual(self.inspection.stop_container(container).state, "draining")
        view = self.inspection.session(given.session)
        self.assertEqual((view.status.state, view.reason), ("draining", "server_stopped"))
        self.assertEqual(self.backend.spawned[0].signals, [])
        lease.release()
        self.assertEqual(self.backend.spawned[0].signals, ["TERM"])
        error = self.assertRaises(errors.SessionEnded, self.inspection.session, given.session)
        self.assertEqual(error.code, "server_stopped")

    def test_a_stopped_container_cuts_what_is_left_after_the_grace_period(self) -> None:
        given = self.start()
        holder = Holder()
        self.servers.begin(self.claims(given), holder)
        self.inspection.stop_container(self.claims(given).container)
        self.clock.advance(4.9)
        self.assertEqual(holder.told, [])
        self.clock.advance(0.1)
        self.assertEqual([(reason.value, detail) for reason, detail in holder.told], [("server_stopped", None)])
        self.assertEqual(self.backend.spawned[0].signals, ["TERM"])

    def test_a_stopped_container_takes_nothing_new_and_another_one_comes(self) -> None:
        given = self.start()
        self.servers.begin(self.claims(given), Holder())
        self.inspection.stop_container(self.claims(given).container)
        later = self.start()
        self.assertNotEqual(self.claims(later).container, self.claims(given).container)

    def test_an_idle_container_stops_at_once_and_a_starting_one_too(self) -> None:
        given = self.start()
        self.assertEqual(self.inspection.stop_container(self.claims(given).container).state, "stopping")
        waiting = self.inspection.start("game", None, None)
        starting = self.backend.spawned[-1]
        self.inspection.stop_container(starting.id)
        self.assertEqual(starting.signals, ["TERM"])
        self.clock.advance(1)
        self.ready()
        self.assertNotEqual(self.claims(self.successResultOf(waiting)).container, starting.id)
        self.assertEqual(self.inspection.servers()[0].failures, 0)

    def test_a_second_stop_does_nothing(self) -> None:
        container = self.claims(self.start()).container
        self.backend.spawned[0].ignores_term = True
        self.inspection.stop_container(container)
        self.assertEqual(self.inspection.stop_container(container).state, "stopping")
        self.assertEqual(self.backend.spawned[0].signals, ["TERM"])
        self.assertRaises(errors.UnknownContainer, self.inspection.stop_container, "ct-none")

    def test_an_unknown_server_starts_nothing(self) -> None:
        error = self.assertRaises(errors.UnknownServer, self.inspection.start, "gmae", None, None)
        self.assertIn("there are: echo, game", error.message)


class LogTests(InspectionCase):
    def test_logs_of_live_and_ended_containers(self) -> None:
        folder = self.folder / "state" / "logs"
        folder.mkdir(parents=True)
        live = self.claims(self.start()).container
        for server, container in (("game", live), ("game", "ct-old"), ("echo", "ct-older"), ("foreign", "ct-x")):
            log_path(folder, ServerName(server), ContainerId(container)).write_text("x")
        (folder / "notes.log").write_text("x")
        found = {log.container: log.live for log in self.inspection.logs(None, None)}
        self.assertEqual(found, {live: True, "ct-old": False, "ct-older": False})
        self.assertEqual({log.container for log in self.inspection.logs("game", None)}, {live, "ct-old"})
        (old,) = self.inspection.logs(None, "ct-olde")
        self.assertEqual((old.server, old.path), ("echo", folder / "echo.ct-older.log"))
        self.assertRaises(errors.UnknownContainer, self.inspection.logs, None, "../../etc/passwd")

    def test_a_live_container_has_a_log_before_it_wrote_one(self) -> None:
        live = self.claims(self.start()).container
        (log,) = self.inspection.logs(None, None)
        self.assertEqual((log.container, log.path.exists()), (live, False))


class UrlTests(InspectionCase):
    def test_a_server_without_a_url_is_reached_by_its_own_host_name(self) -> None:
        game, echo = self.settings.servers
        self.assertEqual(reachable("http://127.0.0.1:8080", game), "http://game.localhost:8080")
        self.assertEqual(reachable("https://127.0.0.1", game), "https://game.localhost")
        self.assertEqual(reachable("http://127.0.0.1:8080", echo), "https://echo.example.org")
        self.assertEqual(reachable("", game), "")
        anywhere = attrs.evolve(game, hosts=())
        self.assertEqual(reachable("http://127.0.0.1:8080", anywhere), "http://127.0.0.1:8080")
