"""`containers exec`: which process is entered, how, and what a person reads where that cannot be."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from sticky.cli import entering
from tests.cli.daemon import CommandCase, Reply
from tests.fakes.inspection import BOX


class Became(BaseException):
    """In place of a process that is another program from now on."""


class ExecTests(CommandCase):
    def setUp(self) -> None:
        super().setUp()
        self.listen()
        self.pid: int | None = os.getpid()  # a process that is there, and ours
        self.backend = "process"
        self.became: list[tuple[str, list[str], dict[str, str]]] = []
        self.addCleanup(os.chdir, os.getcwd())

        def execve(path: str, words: list[str], environ: dict[str, str]) -> None:
            self.became.append((path, words, dict(environ)))
            raise Became

        self.patch(os, "execve", execve)

    def exec_(self, *words: str, container: str = BOX, status: int | None = None) -> str:
        body: dict[str, Any] = self.status()
        body["servers"][0]["backend"] = self.backend
        body["servers"][0]["containers"][0]["pid"] = self.pid
        self.replies["GET /v1/status"] = Reply(body)
        arguments = ["containers", "exec", container, "--state-dir", str(self.folder), "--", *words]
        from sticky.cli import main

        self.captured.clear()
        if status is None:
            self.assertRaises(Became, main, arguments)
        else:
            self.assertEqual(status, main(arguments), self.captured.err)
        return self.captured.err

    def test_a_plain_child_process(self) -> None:
        self.exec_("sh", "-c", "exit 3", container="ct-b")
        ((path, words, environ),) = self.became
        self.assertEqual((["sh", "-c", "exit 3"], "sh"), (words, Path(path).name))
        self.assertEqual(os.environ["PATH"], environ["PATH"])
        self.assertEqual(self.calls(), ["GET /v1/status"])

    def test_one_in_namespaces_of_its_own(self) -> None:
        own = entering._namespace

        def namespace(process: Path, name: str) -> str:
            other = process != Path("/proc/self") and name in ("net", "mnt", "pid")
            return "other" if other else own(process, name)

        self.patch(entering, "_namespace", namespace)
        self.patch(shutil, "which", lambda name, path=None: f"/bin/{name}")
        self.exec_("id")
        ((path, words, _),) = self.became
        where = f"/proc/{os.getpid()}"
        self.assertEqual("/bin/nsenter", path)
        self.assertEqual(
            [
                "nsenter",
                f"--mount={where}/ns/mnt",
                f"--net={where}/ns/net",
                f"--pid={where}/ns/pid",
                f"--wd={where}/cwd",
                "--",
                "id",
            ],
            words,
        )

    def test_one_on_docker(self) -> None:
        self.backend, self.pid = "docker", None
        self.patch(shutil, "which", lambda name, path=None: f"/bin/{name}")
        self.exec_("sh")
        self.assertEqual(["docker", "exec", "--interactive", f"sticky-{BOX}", "sh"], self.became[0][1])

    def test_what_cannot_be_entered(self) -> None:
        self.assertIn("no container 'ct-nope' is running", self.exec_("id", container="ct-nope", status=4))
        self.assertIn("no container 'c' is running", self.exec_("id", container="c", status=4))
        self.assertIn("there is no command 'no-such-command'", self.exec_("no-such-command", status=127))
        self.pid = 2**22 + 1  # above the highest pid (proc(5), pid_max)
        self.assertIn(f"{BOX} has ended", self.exec_("id", status=4))
        self.pid, self.backend = None, "warden"
        self.assertIn("backend warden, which has no process to enter", self.exec_("id", status=1))
        self.backend = "docker"
        self.patch(shutil, "which", lambda name, path=None: None)
        self.assertIn("there is no docker on the PATH. Install it", self.exec_("id", status=1))
        self.assertEqual([], self.became)

    def test_a_program_that_is_none(self) -> None:
        def execve(*_: object) -> None:
            raise OSError(8, "Exec format error")

        self.patch(os, "execve", execve)
        self.assertIn("cannot be run: Exec format error", self.exec_("sh", status=126))

    def test_not_from_elsewhere(self) -> None:
        self.patch(os, "environ", {**os.environ, "STICKY_ADMIN_TOKEN": "wk-a.ws-b"})
        from sticky.cli import main

        self.assertEqual(2, main(["containers", "exec", BOX, "--url", "http://127.0.0.1:1", "--", "id"]))
        self.assertIn("only where the daemon runs", self.captured.err)
