"""Packages of sandboxes: installed once by a real pip, shared by all forks, kept for the next daemon."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import sticky
from sticky import exception
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
        self.assertRegex(
            self.sticky("logs", "--server", "calls"), r"sticky: installing [^\n]*\n[^\n]*sticky: installed in "
        )
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

    def test_where_they_cannot_be_installed_clients_are_told_where_the_reason_is_and_not_what_it_is(self) -> None:
        wheels = Path(self.mktemp()).absolute()
        wheels.mkdir()
        env = ", ".join(f'{name} = "{value}"' for name, value in pip_settings(wheels).items())
        self.serve_calls('packages = ["no-such-package"], snapshot = false', env=f"{{ {env} }}")
        error = self.assertRaises(exception.ResourceExhaustedError, answer.bind(sticky.Session()))
        self.assertEqual(error.code, "containers_failing")
        self.assertRegex(
            str(error),
            r"answered 503 containers_failing \(Containers of this Server fail to start \(exited with status 1\)\. The next "
            r"attempt is [^.()]*\), in every attempt\. On its machine `sticky status` has the reason, and `sticky logs` what",
        )
        self.assertNotIn("no-such-package", str(error))
        self.assertIn("packages could not be installed", self.daemon.output())
