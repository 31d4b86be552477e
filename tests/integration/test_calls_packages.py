"""Packages of sandboxes: installed once by a real pip, shared by all forks, kept for the next daemon."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import sticky
from tests.integration.calls_case import CallsCase
from tests.integration.isolation_case import possible
from tests.integration.running_daemon import until
from tests.sandbox.wheels import ANSWER, NAME, make_wheel
from tests.sandbox.wheels import settings as pip_settings


@sticky.remote(packages=[NAME])
def answer() -> tuple[int, str, int]:
    import sticky_test_tiny  # type: ignore[import-not-found]

    return sticky_test_tiny.answer(), sticky_test_tiny.__file__, os.getppid()


class PackageTests(CallsCase):
    def serve_with_packages(self, wheels: Path, sandbox: str, **settings: object) -> None:
        make_wheel(wheels)
        env = ", ".join(f'{name} = "{value}"' for name, value in pip_settings(wheels).items())
        self.serve_calls(f'packages = ["{NAME}"], {sandbox}', env=f"{{ {env} }}", max_containers=4, **settings)

    def test_once_for_all_sandboxes_that_see_nothing_else_of_the_state_directory(self) -> None:
        possible(private_tmp=True)
        wheels = Path(self.mktemp()).absolute()
        wheels.mkdir()
        isolation = f'{{ private_tmp = true, writable = ["{wheels}"] }}'
        self.serve_with_packages(wheels, "snapshot = false", isolation=isolation)
        first = answer()
        self.assertEqual(first[0], ANSWER)
        next(wheels.glob("*.whl")).unlink()
        self.assertEqual(answer()[:2], first[:2])

    def test_once_for_all_sandboxes_of_a_snapshot_and_of_the_next_daemon(self) -> None:
        wheels = Path(self.mktemp()).absolute()
        self.serve_with_packages(wheels, 'preimport = ["sticky_test_tiny"]')
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
