"""Packages of sandboxes: installed once by a real pip, shared by all forks, kept for the next daemon."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import sticky
from tests.integration.calls_case import CallsCase
from tests.integration.running_daemon import until
from tests.sandbox.wheels import ANSWER, NAME, make_wheel, settings


@sticky.remote(packages=[NAME])
def answer() -> tuple[int, str, int]:
    import sticky_test_tiny  # type: ignore[import-not-found]

    return sticky_test_tiny.answer(), sticky_test_tiny.__file__, os.getppid()


class PackageTests(CallsCase):
    def test_once_for_all_sandboxes_of_a_snapshot_and_of_the_next_daemon(self) -> None:
        wheels = Path(self.mktemp()).absolute()
        make_wheel(wheels)
        env = ", ".join(f'{name} = "{value}"' for name, value in settings(wheels).items())
        self.serve_calls(
            f'packages = ["{NAME}"], preimport = ["sticky_test_tiny"]', env=f"{{ {env} }}", max_containers=4
        )
        until("there is a snapshot", lambda: "forked from a snapshot now" in self.daemon.output())
        first, second = answer(), answer()
        self.assertEqual(first, second)  # of one fork server
        self.assertEqual(first[0], ANSWER)
        self.assertTrue(Path(first[1]).is_relative_to(self.folder / "state" / "packages"))
        self.daemon.stop()
        shutil.rmtree(wheels)
        self.run_daemon()
        self.point()
        self.assertEqual(answer()[:2], first[:2])
