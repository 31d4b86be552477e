"""The sandbox table: what it may hold, and what follows from it."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from sticky.config.kinds import Place
from sticky.config.sandboxes import module, requirement
from sticky.errors import ConfigError
from tests.config.toml import ConfigCase

PLACE = Place("sticky.toml", Path("/"), {})


class SandboxTests(ConfigCase):
    def test_one_session_one_call_one_life(self) -> None:
        server = self.load('[servers.calls]\nsandbox = { preimport = ["json"], packages = ["attrs >= 23"] }').servers[0]
        policy = server.policy
        self.assertEqual((policy.max_concurrency, policy.serial, policy.single_use), (1, True, True))
        self.assertEqual((policy.idle_timeout, policy.startup_timeout), (300.0, 600.0))
        self.assertEqual(
            server.command[1:], ("-m", "sticky.sandbox", "{socket}", "--preimport=json", "--package=attrs>=23")
        )

    def test_zero_means_as_long_as_a_container_may_be_idle(self) -> None:
        server = self.load("[servers.calls]\ncontainer_max_age = 1000\nsandbox = { idle_ttl = 0 }").servers[0]
        self.assertEqual(server.policy.idle_timeout, 500.0)

    def test_what_a_sandbox_decides_cannot_be_set_besides(self) -> None:
        for line in ("max_concurrency = 2", "serial = false", 'command = ["x"]', "idle_timeout = 5", "port = 8000"):
            error = self.assertRaises(ConfigError, self.load, f"[servers.calls]\nsandbox = {{}}\n{line}")
            self.assertIn("sandbox", str(error))


class FormTests(SynchronousTestCase):
    def test_packages_are_names_with_versions_and_nothing_that_pip_takes_besides(self) -> None:
        for good in ("pandas", "pandas==2.2.3", "a.b-c[x,y]>=1,<2", "numpy ~= 2.0"):
            self.assertEqual(requirement(good, PLACE), good.replace(" ", ""))
        bad = (
            "",
            "-r x",
            "--index-url=http://x",
            "./x",
            "/x",
            "x @ http://y",
            "git+ssh://x",
            "a;b",
            "a b",
            "x" * 300,
            "a\nb",
            "$(x)",
        )
        for text in bad:
            self.assertRaises(ValueError, requirement, text, PLACE)

    def test_modules(self) -> None:
        self.assertEqual(module("sklearn.svm", PLACE), "sklearn.svm")
        for bad in ("", "a b", "a..b", "-a", "a;b", "1a", "x" * 300):
            self.assertRaises(ValueError, module, bad, PLACE)
