"""The compiled launcher and the script do the same, step by step; which of them is taken."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from unittest import SkipTest

import attrs
from twisted.trial.unittest import SynchronousTestCase

from sticky.containers import launchers, spawn
from sticky.containers.launchers import COMPILED, command_line
from sticky.containers.spawn import OUTLIVES, REPORT_FD
from tests.integration.children import PYTHON

SCRIPT = (sys.executable, "-I", "-S", spawn.__file__)
LOOKS = """
import ctypes, json, os
at_death, reaper = ctypes.c_int(), ctypes.c_int()
libc = ctypes.CDLL(None)
libc.prctl(2, ctypes.byref(at_death)); libc.prctl(37, ctypes.byref(reaper))
print(json.dumps({
    "leads": os.getpid() == os.getsid(0) == os.getpgid(0), "open": sorted(map(int, os.listdir("/proc/self/fd"))),
    "directory": os.getcwd(), "at_death": at_death.value, "reaper": reaper.value,
    "environment": {name: value for name, value in os.environ.items() if name != "LC_CTYPE"},
}))
"""


@attrs.frozen
class Ended:
    """How a launcher, or what became of it, ended."""

    status: int
    output: bytes
    report: bytes


class LauncherCase(SynchronousTestCase):
    """The folder of a test, and one launcher."""

    def setUp(self) -> None:
        if not launchers.compiled():
            raise SkipTest("the compiled launcher has not been built")
        self.folder = Path(tempfile.mkdtemp(prefix="sticky-")).resolve()
        self.addCleanup(lambda: shutil.rmtree(self.folder))

    def file(self, name: str, content: str, mode: int) -> Path:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
        path.chmod(mode)
        return path

    def run_by(
        self, launcher: Sequence[str], arguments: Sequence[str], env: Mapping[str, str], keep: Sequence[int] = ()
    ) -> Ended:
        reader, writer = os.pipe()
        # The report has its number already where the launcher starts, as the daemon gives it.
        into = f"import os, sys; os.dup2({writer}, {REPORT_FD}); os.execve(sys.argv[1], sys.argv[1:], {dict(env)!r})"
        done = subprocess.run(
            [*PYTHON, into, *launcher, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            pass_fds=[writer, *keep],
        )
        os.close(writer)
        with os.fdopen(reader, "rb") as report:
            return Ended(done.returncode, done.stdout, report.read())

    def both(
        self,
        *command: str,
        parent: int = OUTLIVES,
        report: str = "",
        directory: str = "/",
        confined: str = "",
        env: Mapping[str, str] | None = None,
        keep: Sequence[int] = (),
    ) -> Ended:
        """How either ends, which must be the same."""
        arguments = [str(parent), report, "C", directory, confined, *command]
        environ = {"PATH": os.environ["PATH"], "LC_CTYPE": "C", **(env or {})}
        script, compiled = (self.run_by(launcher, arguments, environ, keep) for launcher in (SCRIPT, (str(COMPILED),)))
        self.assertEqual(compiled, script)
        return compiled


class SameTests(LauncherCase):
    def test_death_with_the_daemon_and_nothing_at_all_where_it_has_died_already(self) -> None:
        found = self.both(*PYTHON, LOOKS, parent=os.getpid())
        self.assertIn(b'"at_death": 9, "reaper": 0', found.output)
        self.assertEqual(self.both("echo", "started", parent=os.getppid()), Ended(127, b"", b""))

    def test_its_surroundings(self) -> None:
        stray = os.open("/dev/null", os.O_RDONLY)
        self.addCleanup(os.close, stray)
        for report, kept in (("", []), ("r", [REPORT_FD])):
            found = self.both(
                *PYTHON, LOOKS, report=report, directory=str(self.folder), confined="subreaper yes", keep=[stray]
            )
            self.assertEqual((found.status, found.report), (0, b""), found)
            wanted = f'"leads": true, "open": {[0, 1, 2, *kept, 3 + len(kept)]}, "directory": "{self.folder}", '
            self.assertIn(wanted.encode(), found.output)
            self.assertIn(b'"at_death": 0, "reaper": 1, "environment": {"PATH": ', found.output)

    def test_signals_that_the_daemon_ignores_are_the_programs_again(self) -> None:
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            self.addCleanup(signal.signal, number, signal.signal(number, signal.SIG_IGN))
        found = self.both("sh", "-c", "grep SigIgn /proc/$$/status")
        self.assertEqual(found.output.split()[1].lstrip(b"0"), b"")

    def test_each_way_not_to_start_is_reported_alike(self) -> None:
        plain = str(self.file("plain", "no program\n", 0o755))
        closed = str(self.file("closed", "#!/bin/sh\n", 0o644))
        broken = str(self.file("broken", "#!/no/such/interpreter\n", 0o755))
        for command, changes, step, number in (
            (["no-such-program"], {}, "exec", errno.ENOENT),
            (["/no/such/program"], {}, "exec", errno.ENOENT),
            ([plain], {}, "exec", errno.ENOEXEC),  # no shell is asked to read it, as the C library would
            ([closed], {}, "exec", errno.EACCES),
            ([broken], {}, "exec", errno.ENOENT),
            ([f"{plain}/below"], {}, "exec", errno.ENOTDIR),
            (["true"], {"directory": "/no/such/folder"}, "chdir", errno.ENOENT),
            (["true"], {"directory": plain}, "chdir", errno.ENOTDIR),
            (["true"], {"confined": "cgroup /no/such/group/cgroup.procs"}, "cgroup", errno.ENOENT),
            (["true"], {"confined": f"subreaper yes\ncgroup {self.folder}"}, "cgroup", errno.EISDIR),
        ):
            found = self.both(*command, **changes)  # type: ignore[arg-type]
            self.assertEqual((found.status, found.output), (127, b""))
            self.assertEqual(found.report, f"failed {step} {number}\n".encode(), (command, changes))

    def test_a_program_is_looked_for_alike(self) -> None:
        self.file("good/thing", "#!/bin/sh\necho good\n", 0o755)
        self.file("closed/thing", "#!/bin/sh\n", 0o644)
        self.file("plain/thing", "nothing\n", 0o755)
        self.file("here/thing", "#!/bin/sh\necho here\n", 0o755)
        good, closed, plain, here = (str(self.folder / name) for name in ("good", "closed", "plain", "here"))
        missing, file = f"{self.folder}/missing", f"{good}/thing"
        for path, output, number in (
            (f"{missing}:{file}:{closed}:{good}:{here}", b"good\n", 0),
            (f"{missing}::{good}", b"here\n", 0),
            (f"{good}:", b"good\n", 0),
            ("", b"here\n", 0),
            (f"{missing}:{closed}:{plain}:{missing}", b"", errno.EACCES),
            (f"{plain}:{closed}", b"", errno.ENOEXEC),
            (missing, b"", errno.ENOENT),
            (file, b"", errno.ENOTDIR),
        ):
            found = self.both("thing", directory=here, env={"PATH": path})
            self.assertEqual(found.output, output, path)
            self.assertEqual(found.report, f"failed exec {number}\n".encode() if number else b"", path)

    def test_arguments_arrive_as_they_are(self) -> None:
        odd = ["", " ", "a\nb", "'\"$x", "\udcff", "ä" * 5000]
        code = "import sys; print(ascii(sys.argv[1:]))"
        found = self.both(*PYTHON, code, *odd)
        self.assertEqual(found.output, f"{odd!a}\n".encode())


class ChoiceTests(LauncherCase):
    def line(self, confined: str) -> list[str]:
        return command_line(OUTLIVES, True, {}, Path("/"), confined, ["true", "-x"])

    def test_the_compiled_one_is_taken_for_what_it_knows(self) -> None:
        rest = ["0", "r", "-", "/"]
        for confined in ("", "subreaper yes", "cgroup /a\ncgroup /b"):
            self.assertEqual(self.line(confined), [str(COMPILED), *rest, confined, "true", "-x"])
        for confined in ("cgroup /a\nnetwork yes", "rlimit nofile 5", "user 1 1"):
            self.assertEqual(self.line(confined), [*SCRIPT, *rest, confined, "true", "-x"])

    def test_where_there_is_none_or_it_does_not_run_the_script_is(self) -> None:
        foreign = self.file("foreign", "\x7fELF for another machine", 0o755)
        other = self.file("other", "#!/bin/sh\nexit 1\n", 0o755)
        for program in (self.folder / "missing", foreign, other, self.file("closed", "", 0o644)):
            self.patch(launchers, "COMPILED", program)
            launchers.compiled.cache_clear()
            self.addCleanup(launchers.compiled.cache_clear)
            self.assertEqual(self.line("")[: len(SCRIPT)], [*SCRIPT])

    def test_it_refuses_what_it_does_not_know_and_has_begun_nothing(self) -> None:
        for arguments in ([], ["0", "", "-", "/", ""], ["0", "", "-", "/", "subreaper yes\nnetwork yes", "echo", "x"]):
            found = self.run_by([str(COMPILED)], arguments, {})
            self.assertEqual(found, Ended(64, b"", b""))
