"""Rates, and what fits on a screen."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from rich.console import Console
from twisted.trial.unittest import SynchronousTestCase

from sticky.admin import bodies
from sticky.cli.top import Rates, bar, screen
from tests.fakes.inspection import FakeInspection


def totals(granted: int) -> dict[str, int]:
    return {"granted": granted, "refused": 0, "requests": 10 * granted}


class RatesTests(SynchronousTestCase):
    def test_the_first_look_knows_no_rate(self) -> None:
        self.assertEqual(Rates().note(5.0, "game", totals(7))["granted"], 0.0)

    def test_rates_are_taken_over_the_last_ten_seconds(self) -> None:
        rates = Rates()
        for second in range(31):
            found = rates.note(float(second), "game", totals(second if second <= 10 else 10))
            if second == 10:
                self.assertEqual((found["granted"], found["requests"]), (1.0, 10.0))
        self.assertEqual(found["granted"], 0.0)

    def test_servers_are_counted_apart_and_a_new_daemon_anew(self) -> None:
        rates = Rates()
        rates.note(0.0, "game", totals(0))
        rates.note(0.0, "echo", totals(100))
        self.assertEqual(rates.note(1.0, "game", totals(5))["granted"], 5.0)
        self.assertEqual(rates.note(1.0, "echo", totals(0))["granted"], 0.0)
        self.assertEqual(rates.note(2.0, "echo", totals(3))["granted"], 3.0)


class ScreenTests(SynchronousTestCase):
    def shown(self, containers: int, height: int) -> str:
        inspection = FakeInspection(Path("/state"))
        (view,) = inspection.servers()
        server = bodies.server(view, 0)
        one: dict[str, Any] = server["containers"][0]
        server["containers"] = [{**one, "id": f"ct-{number:03}", "sessions": number} for number in range(containers)]
        target = Console(file=io.StringIO(), width=120, height=height)
        found = {"daemon": bodies.daemon(inspection.daemon()), "servers": [server]}
        with target.capture() as captured:
            target.print(screen(found, Rates(), 0.0, height))
        return captured.get()

    def test_the_busiest_containers_that_fit(self) -> None:
        text = self.shown(100, 30)
        self.assertLessEqual(text.count("\n"), 30)
        self.assertIn("ct-099", text)
        self.assertNotIn("ct-000", text)
        self.assertRegex(text, r"and \d+ more")

    def test_a_server_without_containers(self) -> None:
        self.assertIn("no containers", self.shown(0, 30))

    def test_how_full_it_is(self) -> None:
        self.assertEqual(bar(5, 10, 10).plain, "█████░░░░░ 5 of 10")
        self.assertEqual(bar(0, 0, 4).plain, "░░░░ 0 of 0")
        self.assertEqual(bar(12, 10, 4).plain, "████ 12 of 10")
