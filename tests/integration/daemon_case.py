"""A real daemon and the calls that a client makes of it, for tests of the whole. Asserts nothing of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import requests
from twisted.trial.unittest import SynchronousTestCase
from websockets.sync.client import ClientConnection, connect

from sticky.containers.ownership import realm_of
from tests.integration import preloaded
from tests.integration.process_case import forget_cgroups
from tests.integration.running_daemon import Daemon

APPS = Path(__file__).parent / "apps"
PYTHON = sys.executable
COMMAND_WITHIN = 120.0  #: seconds
COOKIE = "__Host-modal-session-token"
ECHO = f"{json.dumps([PYTHON, str(APPS / 'echo_ws.py'), '{port}'])}"


def marked(ours: Callable[[Path], bool]) -> list[int]:
    """Processes that have a container's mark in their environment; `ours` is asked of each process's folder in /proc."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and ours(entry) and b"STICKY_CONTAINER_ID=" in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:  # gone meanwhile
            continue
    return found


def server(name: str, command: str, **settings: object) -> str:
    """A table of sticky.toml; `command` is TOML already."""
    rest = "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items())
    return f"[servers.{name}]\ncommand = {command}\n{rest}\n"


class DaemonCase(SynchronousTestCase):
    """Runs a daemon on what `config` says."""

    def serve(self, config: str, env: dict[str, str] | None = None) -> None:
        """Write sticky.toml into a folder of its own and run a daemon on it."""
        self.folder = Path(tempfile.mkdtemp(prefix="sticky-test-")).resolve()
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.addCleanup(self.leave_no_cgroups)
        self.addCleanup(self.kill_children)
        (self.folder / "sticky.toml").write_text(config)
        self.http = requests.Session()
        self.addCleanup(self.http.close)
        self.run_daemon(env)

    def run_daemon(self, env: dict[str, str] | None = None) -> None:
        """A daemon on what is in the folder: the first one, or the next one after that died."""
        self.daemon = Daemon(self.folder, "--config", str(self.folder / "sticky.toml"), env=env)
        self.addCleanup(self.daemon.stop)
        self.url = self.daemon.url()
        token = self.folder / "state" / "proxy-token"
        self.bearer = token.read_text().strip() if token.exists() else ""  # none is made where nobody needs one

    def sticky(self, *arguments: str, status: int = 0) -> str:
        """What the command says on both of its outputs, of a run in the daemon's folder that ends with this status."""
        done = preloaded.run("sticky", arguments, folder=self.folder, environ=os.environ, timeout=COMMAND_WITHIN)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr + self.daemon.output()[-3000:])
        return done.stdout + done.stderr

    def start(self, host: str | None = None, **headers: str) -> requests.Response:
        fields = {"Authorization": f"Bearer {self.bearer}", **headers}
        if host is not None:
            fields["Host"] = host
        return self.http.post(f"{self.url}/_modal/sessions/start", headers=fields, timeout=90)

    def token(self, host: str | None = None, **headers: str) -> str:
        answer = self.start(host, **headers)
        self.assertEqual(answer.status_code, 200, answer.text)
        return str(answer.json()["token"])

    def get(self, token: str | None, path: str = "/", **headers: str) -> requests.Response:
        if token is not None:
            headers["Modal-Authorization"] = f"Bearer {token}"
        return self.http.get(self.url + path, headers=headers, timeout=30)

    def terminate(self, token: str) -> requests.Response:
        fields = {"Authorization": f"Bearer {self.bearer}", "x-modal-server-session-token": token}
        return self.http.post(f"{self.url}/_modal/sessions/terminate", headers=fields, timeout=30)

    def websocket(self, token: str, host: str | None = None, **options: Any) -> ClientConnection:
        """`host`: by whose name it asks, which leads here in tests alone."""
        url = self.url.replace("http", "ws") + "/ws"
        if host is not None:
            port = int(self.url.rpartition(":")[2])
            url = f"ws://{host}:{port}/ws"
            options["sock"] = socket.create_connection(("127.0.0.1", port))
        opened: ClientConnection = connect(
            url, additional_headers={"Modal-Authorization": f"Bearer {token}"}, **options
        )
        self.addCleanup(opened.close)
        return opened

    def children(self) -> list[int]:
        """Whatever has a container's mark in its environment and works in this daemon's folder."""
        return marked(lambda process: (process / "cwd").readlink() == self.folder)

    def kill_children(self) -> None:
        """Containers survive a daemon that is killed, but not a test."""
        for pid in self.children():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def leave_no_cgroups(self) -> None:
        """A daemon that was killed leaves those of its containers; nobody comes for them once the state directory is gone."""
        if (self.folder / "state").is_dir():
            forget_cgroups(realm_of(self.folder / "state"))

    def kill_container(self, container: str) -> None:
        """SIGKILL to every process of a container."""
        for pid in self.children():
            if f"STICKY_CONTAINER_ID={container}\0".encode() in Path(f"/proc/{pid}/environ").read_bytes():
                os.kill(pid, signal.SIGKILL)
