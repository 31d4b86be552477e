"""docs/errors.md promises what a person reads: each row is brought about here, and compared."""

from __future__ import annotations

import os
import re
import shutil
import socket
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from sticky.cli import main, once
from sticky.cli.encounters import APP, DAEMON, START, Encounter
from tests.cli.daemon import CommandCase, Reply
from tests.integration.running_daemon import TWISTD, Daemon, Running

NOBODY = 65534  #: a user who owns nothing
HEAD = "import sticky\napp = sticky.App('a')\n"
HOOK = "    @sticky.enter()\n    def start(self): pass\n"
SERVER = "@app.server()\n@sticky.sessioned()\nclass S:\n" + HOOK
MAIN = "@app.local_entrypoint()\ndef main(): pass\n"

#: What stands in app.py, and the command; `check app.py` where none is given.
APPS: Mapping[str, tuple[str, ...]] = {
    "no_file": ("", "check", "gone.py"),
    "no_module": ("", "check", "gone.txt"),
    "folder": ("", "check", "."),
    "syntax": ("def (:\n",),
    "raises": ("import nothing_of_this_name\n",),
    "no_app": ("import sticky\n",),
    "two_apps": (HEAD + "other = sticky.App('b')\n",),
    "no_server": (HEAD,),
    "unknown_server": (HEAD + SERVER, "check", "app.py:Nope"),
    "own_init": (HEAD + "@app.server()\nclass S:\n    def __init__(self): pass\n" + HOOK,),
    "no_hook": (HEAD + "@app.server()\nclass S: pass\n",),
    "hooks_and_command": (HEAD + "@app.server(command=['x'])\nclass S:\n" + HOOK,),
    "no_class": (HEAD + "@app.server()\ndef s(): pass\n",),
    "sessioned_above": (HEAD + "@sticky.sessioned()\n@app.server()\nclass S:\n" + HOOK,),
    "sessioned_alone": (HEAD + "@sticky.sessioned()\nclass S:\n" + HOOK,),
    "hook_arguments": (HEAD + "@app.server()\nclass S:\n    @sticky.enter()\n    def start(self, x): pass\n",),
    "hook_yields": (HEAD + "@app.server()\nclass S:\n    @sticky.enter()\n    def start(self): yield\n",),
    "parentheses": (HEAD + "@app.server\nclass S:\n" + HOOK,),
    "hook_parentheses": (HEAD + "@app.server()\nclass S:\n    @sticky.enter\n    def start(self): pass\n",),
    "out_of_range": (HEAD + "@app.server(max_containers=0)\nclass S:\n" + HOOK,),
    "unknown_argument": (HEAD + "@app.server(max_containres=2)\nclass S:\n" + HOOK,),
    "hook_argument": (HEAD + "@app.server()\nclass S:\n    @sticky.exit(order=1)\n    def start(self): pass\n",),
    "order": (HEAD + "@app.server(min_containers=5, max_containers=2)\nclass S:\n" + HOOK,),
    "same_name": (HEAD + SERVER + SERVER,),
    "no_interpreter": (HEAD + "@app.server(python='venv/bin/python')\n@sticky.sessioned()\nclass S:\n" + HOOK,),
    "no_variable": (HEAD + "@app.server(secrets=['NO_SUCH_VARIABLE'])\n@sticky.sessioned()\nclass S:\n" + HOOK,),
    "no_secret_file": (HEAD + "@app.server(secrets={'A': 'file:gone'})\n@sticky.sessioned()\nclass S:\n" + HOOK,),
    "no_toml": ("", "check", "gone.toml"),
    "no_entrypoint": (HEAD + SERVER, "run", "app.py"),
    "unknown_entrypoint": (HEAD + SERVER + MAIN, "run", "app.py:other"),
    "entrypoint_arguments": (HEAD + "@app.local_entrypoint()\ndef main(x): pass\n", "run", "app.py"),
}


def fits(encounter: Encounter, said: str) -> bool:
    """Whether the last line is the promised one: an ellipsis stands for anything."""
    pattern = ".+".join(re.escape(part) for part in encounter.says.split("…"))
    return re.fullmatch(f"sticky: {pattern}", said.rstrip("\n").rpartition("\n")[2]) is not None


class AppTests(CommandCase):
    def setUp(self) -> None:
        super().setUp()
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)
        import sys

        self.patch(sys, "path", list(sys.path))
        assert once  # the command itself is loaded by now, and stays
        before = set(sys.modules)
        self.addCleanup(lambda: [sys.modules.pop(name, None) for name in set(sys.modules) - before])

    def test_each(self) -> None:
        self.assertEqual({one.key for one in APP}, set(APPS))
        for one in APP:
            text, *arguments = APPS[one.key]
            (self.folder / "app.py").write_text(text)
            self.captured.clear()
            status = main(arguments or ["check", "app.py"])
            self.assertEqual(int(one.status), int(status), f"{one.key}: {self.captured.err}")
            self.assertTrue(fits(one, self.captured.err), f"{one.key}: {self.captured.err}")
            self.assertEqual("", self.captured.out)


class DaemonTests(CommandCase):
    def test_each(self) -> None:
        scenes: Mapping[str, Callable[[], None]] = {
            name.removeprefix("meet_"): getattr(self, name) for name in dir(self) if name.startswith("meet_")
        }
        self.assertEqual({one.key for one in DAEMON}, set(scenes))
        for one in DAEMON:
            # Each has a state directory and a daemon of its own.
            self.folder = Path(tempfile.mkdtemp())
            self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
            self.replies.clear()
            self.wanted = one
            scenes[one.key]()

    def said(self, *arguments: str, state: bool = True) -> None:
        where = ["--state-dir", str(self.folder)] if state else []
        self.captured.clear()
        status = main([*arguments, *where])
        self.assertEqual(int(self.wanted.status), int(status), f"{self.wanted.key}: {self.captured.err}")
        self.assertTrue(fits(self.wanted, self.captured.err), f"{self.wanted.key}: {self.captured.err}")

    def meet_no_state_dir(self) -> None:
        self.folder = self.folder / "gone"
        self.said("status")

    def meet_no_socket(self) -> None:
        self.said("status")

    def meet_died(self) -> None:
        dead = socket.socket(socket.AF_UNIX)
        dead.bind(str(self.folder / "admin.sock"))
        dead.close()
        self.said("status")

    def meet_not_permitted(self) -> None:
        self.listen()
        if os.geteuid() == 0:
            os.seteuid(NOBODY)
            self.addCleanup(os.seteuid, 0)
        else:
            self.folder.chmod(0)
            self.addCleanup(self.folder.chmod, 0o700)
        try:
            self.said("status")
        finally:
            if os.getuid() == 0:
                os.seteuid(0)

    def meet_other_version(self) -> None:
        self.listen()
        self.replies["GET /v1/status"] = Reply({}, version="9.9", api="99")
        self.said("status")

    def meet_no_sticky(self) -> None:
        self.listen()
        self.replies["GET /v1/status"] = Reply({}, version=None)
        self.said("status")

    def meet_no_admin_token(self) -> None:
        self.patch(os, "environ", {name: value for name, value in os.environ.items() if name != "STICKY_ADMIN_TOKEN"})
        self.said("status", "--url", "http://127.0.0.1:1", state=False)

    def meet_not_reached(self) -> None:
        self.patch(os, "environ", {**os.environ, "STICKY_ADMIN_TOKEN": "wk-a.ws-b"})
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        self.said("status", "--url", f"http://127.0.0.1:{port}", state=False)

    def meet_not_here(self) -> None:
        self.patch(os, "environ", {**os.environ, "STICKY_ADMIN_TOKEN": "wk-a.ws-b"})
        self.said("doctor", "--url", "http://127.0.0.1:1", state=False)

    def meet_which_server(self) -> None:
        self.listen()
        body = self.status()
        body["servers"].append({**body["servers"][0], "name": "other"})
        self.replies["GET /v1/status"] = Reply(body)
        self.said("sessions", "start")

    def meet_unknown_server_name(self) -> None:
        self.listen()
        self.said("sessions", "start", "gaem")

    def meet_unknown_container(self) -> None:
        self.listen()
        self.replies["GET /v1/containers"] = Reply(self.containers())
        self.said("containers", "show", "ct-gone")

    def meet_unknown_token(self) -> None:
        self.listen()
        self.replies["GET /v1/tokens"] = Reply({"tokens": []})
        self.said("tokens", "revoke", "wk-gone")

    def meet_no_terminal(self) -> None:
        self.said("top")

    def meet_no_browser(self) -> None:
        self.listen()
        self.replies["POST /v1/sessions"] = Reply(self.credentials())
        self.said("sessions", "open", "--no-browser", "--wait", "1")

    def meet_usage(self) -> None:
        self.said("nonsense", state=False)


class StartTests(SynchronousTestCase):
    def start(self, *arguments: str, config: str = "") -> tuple[int, str]:
        """A daemon that ends at once: its status, and the last line that is Sticky's own."""
        text = '[servers.echo]\ncommand = ["true"]\n' + config
        (self.folder / "sticky.toml").write_text(text if config != "[" else config)
        daemon = Running([*TWISTD, "-n", "--pidfile=", "sticky", *arguments], self.folder / "daemon.log")
        try:
            status = daemon.wait(60)
        finally:
            daemon.stop()
        lines = [line for line in daemon.output().splitlines() if line.startswith("sticky: ")]
        self.assertEqual(1, len(lines), daemon.output())
        return status, lines[0]

    def test_each(self) -> None:
        scenes = {name.removeprefix("meet_"): getattr(self, name) for name in dir(self) if name.startswith("meet_")}
        self.assertEqual({one.key for one in START}, set(scenes))
        for one in START:
            self.folder = Path(tempfile.mkdtemp()).resolve()
            self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
            status, line = scenes[one.key]()
            self.assertEqual(int(one.status), status, f"{one.key}: {line}")
            self.assertTrue(fits(one, line), f"{one.key}: {line}")

    config = ("--config", "sticky.toml")
    free = ("--config", "sticky.toml", "--listen", "tcp:0:interface=127.0.0.1")

    def meet_nothing(self) -> tuple[int, str]:
        return self.start()

    def meet_option(self) -> tuple[int, str]:
        return self.start("--confg", "x")

    def meet_toml(self) -> tuple[int, str]:
        return self.start(*self.config, config="[")

    def meet_unknown_setting(self) -> tuple[int, str]:
        return self.start(*self.config, config="max_containres = 1\n")

    def meet_wrong_value(self) -> tuple[int, str]:
        return self.start(*self.config, config="max_containers = 0\n")

    def meet_port_taken(self) -> tuple[int, str]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            return self.start(*self.config, "--listen", f"tcp:{port}:interface=127.0.0.1")

    def meet_state_in_use(self) -> tuple[int, str]:
        (self.folder / "sticky.toml").write_text('[servers.echo]\ncommand = ["true"]\n')
        first = Daemon(self.folder, *self.config)
        try:
            first.url()
            (self.folder / "daemon.log").unlink()
            return self.start(*self.free)
        finally:
            first.stop()

    def meet_in_the_way(self) -> tuple[int, str]:
        (self.folder / "state").mkdir(mode=0o700)
        (self.folder / "state" / "lock").mkdir()
        return self.start(*self.free)

    def meet_open_state(self) -> tuple[int, str]:
        (self.folder / "state").mkdir()
        (self.folder / "state").chmod(0o777)
        return self.start(*self.free)


class FittingTests(SynchronousTestCase):
    """The comparison can fail."""

    def test_other_words_do_not_fit(self) -> None:
        one = Encounter("x", "", 2, "there is no … here; there are: ….")
        self.assertTrue(fits(one, "a traceback\nsticky: there is no cat here; there are: dogs, mice.\n"))
        for said in (
            "sticky: there is no  here; there are: .",
            "sticky: there is no cat",
            "there is no cat here; there are: dogs.",
        ):
            self.assertFalse(fits(one, said), said)
