"""Scaling that an operator changes: what is allowed, how long it holds, and what the next daemon makes of it."""

from __future__ import annotations

import json
from pathlib import Path

import attrs

from sticky import errors
from sticky.autoscaling import Autoscaling
from sticky.config.settings import Settings
from sticky.core.values import Policy
from tests.test_deploying import GAME, DeployingCase, table


class AutoscalingCase(DeployingCase):
    def setUp(self) -> None:
        super().setUp()
        self.path = self.folder / "autoscaler.json"
        self.begin(table("game", "max_containers = 4", "max_concurrency = 1"))
        self.autoscaling = self.next_daemon()

    def next_daemon(self, path: Path | None = None) -> Autoscaling:
        autoscaling = Autoscaling(path or self.path)
        autoscaling.recall(self.deployer.settings)
        return autoscaling

    def with_policy(self, **changes: object) -> Settings:
        (server,) = self.deployer.settings.servers
        policy = attrs.evolve(server.policy, **changes)  # type: ignore[arg-type]
        return attrs.evolve(self.deployer.settings, servers=(attrs.evolve(server, policy=policy),))

    @property
    def policy(self) -> Policy:
        return self.servers.by_name[GAME].fleet.policy

    def policy_of_next(self, settings: Settings | None = None) -> Policy:
        autoscaling = Autoscaling(self.path)
        settings = settings or self.deployer.settings
        autoscaling.recall(settings)
        return autoscaling.policy(settings.servers[0])


class UpdateTests(AutoscalingCase):
    def test_it_holds_at_once_and_containers_follow(self) -> None:
        view = self.autoscaling.update(self.servers, "game", {"min_containers": 2, "scaledown_window": 5})
        self.assertEqual(
            (2, 5.0, 4), (self.policy.min_containers, self.policy.scaledown_window, self.policy.max_containers)
        )
        self.assertEqual(("min_containers", "scaledown_window"), view.updated)
        self.assertEqual(2, view.values["min_containers"])
        self.clock.advance(0)
        self.assertEqual(2, len(self.servers.by_name[GAME].fleet.capacity.containers))

    def test_updates_add_up(self) -> None:
        self.autoscaling.update(self.servers, "game", {"min_containers": 1})
        view = self.autoscaling.update(self.servers, "game", {"buffer_containers": 1})
        self.assertEqual({"min_containers", "buffer_containers"}, set(view.updated))
        self.assertEqual((1, 1), (self.policy.min_containers, self.policy.buffer_containers))

    def test_what_is_wrong_changes_nothing(self) -> None:
        before = self.policy
        for changes, text in (
            ({}, "changes nothing"),
            ({"min_container": 1}, '"min_container" is not a setting of the autoscaler; there are: min_containers'),
            ({"max_concurrency": 1}, "is not a setting of the autoscaler"),
            ({"min_containers": True}, "min_containers = true is not allowed; allowed: a whole number from 0"),
            ({"min_containers": 1.5}, "min_containers = 1.5 is not allowed"),
            ({"scaledown_window": 1}, "scaledown_window = 1 is not allowed; allowed: seconds from 2 to 3600"),
            ({"min_containers": 5}, "min_containers = 5 is above max_containers, which is 4"),
            (
                {"max_containers": 1, "buffer_containers": 2},
                "buffer_containers = 2 is above max_containers, which is 1",
            ),
        ):
            with self.assertRaises(errors.BadRequest) as caught:
                self.autoscaling.update(self.servers, "game", changes)
            self.assertIn(text, caught.exception.message)
        self.assertIs(before, self.policy)
        self.assertFalse(self.path.exists())
        with self.assertRaisesRegex(errors.UnknownServer, "no Server 'gaem'; there are: game"):
            self.autoscaling.update(self.servers, "gaem", {"min_containers": 1})

    def test_what_cannot_be_kept_is_not_done(self) -> None:
        autoscaling = self.next_daemon(self.folder / "missing" / "autoscaler.json")
        before = self.policy
        self.assertRaises(errors.StorageFailed, autoscaling.update, self.servers, "game", {"min_containers": 1})
        self.assertIs(before, self.policy)
        self.assertEqual((), autoscaling.view(self.servers, "game").updated)


class KeptTests(AutoscalingCase):
    def test_the_next_daemon_goes_by_it(self) -> None:
        self.autoscaling.update(self.servers, "game", {"min_containers": 3})
        self.assertEqual(3, self.policy_of_next().min_containers)
        self.assertEqual(("min_containers",), self.next_daemon().view(self.servers, "game").updated)

    def test_a_definition_that_changed_meanwhile_holds(self) -> None:
        self.autoscaling.update(self.servers, "game", {"min_containers": 3})
        self.assertEqual(0, self.policy_of_next(self.with_policy(max_containers=9)).min_containers)
        self.assertEqual(3, self.policy_of_next(self.with_policy(queue_timeout=9.0)).min_containers)

    def test_a_deploy_ends_it(self) -> None:
        self.autoscaling.update(self.servers, "game", {"min_containers": 3})
        self.autoscaling.deployed(self.deployer.settings)
        self.assertFalse(self.path.exists())
        self.assertEqual((), self.autoscaling.view(self.servers, "game").updated)
        self.assertEqual(0, self.policy_of_next().min_containers)

    def test_a_deploy_of_the_same_definition_brings_its_values_back(self) -> None:
        self.autoscaling.update(self.servers, "game", {"max_containers": 3})
        report = self.successResultOf(self.deployer.deploy())
        self.assertEqual(("live", ("max_containers",)), (report.servers[0].what, report.servers[0].settings))
        self.assertEqual(4, self.policy.max_containers)

    def test_what_makes_no_sense_is_passed_over(self) -> None:
        deployed = json.loads(self.kept())["game"]["deployed"]
        for text in (
            "",
            "[]",
            "{",
            '{"game": 5}',
            json.dumps({"game": {"deployed": deployed, "updated": {"min_containers": 99}}}),
            json.dumps({"game": {"deployed": deployed, "updated": {"brand": "x"}}}),
            json.dumps({"gone": {"deployed": deployed, "updated": {"min_containers": 1}}}),
        ):
            self.path.write_text(text)
            self.assertEqual(0, self.policy_of_next().min_containers, text)

    def kept(self) -> str:
        self.autoscaling.update(self.servers, "game", {"min_containers": 1})
        return self.path.read_text()

    def test_an_ephemeral_daemon_keeps_nothing(self) -> None:
        autoscaling = Autoscaling(None)
        autoscaling.recall(self.deployer.settings)
        autoscaling.update(self.servers, "game", {"min_containers": 1})
        autoscaling.deployed(self.deployer.settings)
        self.assertEqual([], list(self.folder.glob("autoscaler*")))
