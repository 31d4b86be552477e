"""What is guessed of a name that there is not."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from sticky.config.table import SERVER
from sticky.meant import ELSEWHERE, meant

SETTINGS = [setting.name for setting in SERVER]


class MeantTests(SynchronousTestCase):
    def test_slips_of_the_fingers(self) -> None:
        for name, wanted in (
            ("max_containres", "max_containers"),
            ("max_conc", "max_concurrency"),
            ("idletimeout", "idle_timeout"),
            ("host", "hosts"),
        ):
            self.assertEqual(meant(name, SETTINGS), wanted)

    def test_what_others_call_it(self) -> None:
        for name, wanted in (
            ("max_sessions", "max_concurrency or max_sessions_per_caller"),
            ("timeout", "idle_timeout, startup_timeout or response_timeout"),
            ("container_idle_timeout", "scaledown_window"),
            ("Replicas", "min_containers or max_containers"),
        ):
            self.assertEqual(meant(name, SETTINGS), wanted)

    def test_only_what_there_is(self) -> None:
        self.assertEqual(meant("max_sessions", ["max_concurrency", "target_concurrency"]), "max_concurrency")
        self.assertEqual(meant("max_sessions", ["name"]), "")

    def test_nothing_is_guessed_where_nothing_is_like_it(self) -> None:
        for name in ("colour", "volumes", "", "x"):
            self.assertEqual(meant(name, SETTINGS), "", name)

    def test_each_row_is_needed_and_leads_to_a_setting(self) -> None:
        for name, ours in ELSEWHERE.items():
            self.assertNotIn(name, SETTINGS)
            self.assertLessEqual({*ours}, {*SETTINGS}, name)
