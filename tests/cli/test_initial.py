"""What `init` writes can be loaded."""

from __future__ import annotations

import json
import os
from http.client import HTTPConnection
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from sticky.cli.initial import APP
from sticky.config.loading import load
from sticky.containers.describe import describe
from tests.cli.daemon import CommandCase


class InitTests(CommandCase):
    def test_the_app_and_the_file_go_together(self) -> None:
        folder = self.folder / "counter"
        self.assertEqual(self.sticky("init", str(folder), state=False), f"cd {folder} && sticky serve app.py\n")
        settings = load(
            file=folder / "sticky.toml",
            app=describe(str(folder / "app.py"), None, folder),
            flags={},
            cwd=folder,
            environ={},
            backends=["process"],
        )
        (server,) = settings.servers
        self.assertEqual((server.name, server.policy.max_concurrency, server.policy.max_containers), ("Server", 20, 4))
        self.assertEqual(settings.warnings, ())

    def test_an_icon_is_no_visit(self) -> None:
        page: Any = {"__name__": "app"}
        exec(compile(APP, "app.py", "exec"), page)
        self.patch(os, "environ", {**os.environ, "STICKY_CONTAINER_ID": "ct-1"})
        page["Page"].log_message = lambda *_: None
        with ThreadingHTTPServer(("127.0.0.1", 0), page["Page"]) as served:
            serving = Thread(target=served.serve_forever, kwargs={"poll_interval": 0.01})
            serving.start()
            said = []
            for path in ("/", "/favicon.ico", "/"):
                connection = HTTPConnection("127.0.0.1", served.server_port, timeout=30)
                connection.request("GET", path, headers={"x-modal-server-session-id": "sd-1"})
                answer = connection.getresponse()
                said.append((answer.status, answer.read().decode().partition(" of ")[0]))
                connection.close()
            served.shutdown()
            serving.join()
        self.assertEqual([said[0], said[1][0], said[2]], [(200, "request 1"), 404, (200, "request 2")])

    def test_for_a_program(self) -> None:
        found = json.loads(self.sticky("init", str(self.folder / "x"), "--json", state=False))
        self.assertEqual({"files": [str(self.folder / "x" / name) for name in ("app.py", "sticky.toml")]}, found)

    def test_what_is_there_stays_unless_it_is_forced(self) -> None:
        (self.folder / "sticky.toml").write_text("mine")
        self.assertEqual(self.sticky("init", str(self.folder), status=1, state=False), "")
        self.assertIn("is there already. Choose another folder, or replace it with --force.", self.captured.err)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["sticky.toml"])
        self.sticky("init", "--force", str(self.folder), state=False)
        self.assertNotEqual((self.folder / "sticky.toml").read_text(), "mine")

    def test_a_folder_that_cannot_be_made(self) -> None:
        (self.folder / "file").write_text("")
        self.sticky("init", str(self.folder / "file" / "x"), status=1, state=False)
        self.assertIn("cannot write to", self.captured.err)
        self.assertFalse(Path(self.folder / "file" / "x").exists())
