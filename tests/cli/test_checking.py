"""`sticky check` of what runs in Docker."""

from __future__ import annotations

import json
import os
import socket

from tests.cli.daemon import CommandCase
from tests.fakes.asked_engine import FakeEngine

SERVER = """
[servers.{name}]
backend = "docker"
hosts = ["{name}"]
{more}
docker = {{ image = "registry/game:3", socket = "engine.sock"{options} }}
"""


class DockerTests(CommandCase):
    def config(self, *servers: tuple[str, str, str]) -> str:
        text = "".join(SERVER.format(name=name, more=more, options=options) for name, more, options in servers)
        path = self.folder / "sticky.toml"
        path.write_text(text)
        return str(path)

    def warnings(self, config: str) -> list[str]:
        found: list[str] = json.loads(self.sticky("check", "--json", config))["warnings"]
        return found

    def test_an_engine_that_is_not_there_or_not_for_us_is_warned_of(self) -> None:
        config = self.config(("game", "", ""))
        (warning,) = self.warnings(config)
        self.assertIn("containers of game cannot start here now: the container engine at ", warning)
        self.assertIn("there is no such socket", warning)
        self.sticky("check", "--strict", config, status=1)
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(self.folder / "engine.sock"))
        (warning,) = self.warnings(config)
        self.assertIn("nobody listens on the socket any more", warning)
        os.unlink(self.folder / "engine.sock")

    def test_one_that_lacks_the_image_is_too_but_not_where_it_is_pulled(self) -> None:
        with FakeEngine(self.folder / "engine.sock") as engine:
            config = self.config(("game", "", ""), ("pulled", "", ", pull = true"))
            (warning,) = self.warnings(config)
            self.assertIn("containers of game cannot start here now: the container engine has no image", warning)
            self.assertEqual(engine.asked, ["/version", "/images/registry/game:3/json"])
            engine.images.add("registry/game:3")
            self.assertEqual(self.warnings(config), [])

    def test_what_runs_is_said_also_where_that_is_the_images_own_command(self) -> None:
        said = self.sticky("check", self.config(("one", "", ""), ("two", 'command = ["serve", "{port}"]', "")))
        self.assertRegex(said, r"one: .*, backend docker: registry/game:3, with the command of the image\n")
        self.assertRegex(said, r"two: .*, backend docker: registry/game:3, serve {port}\n")
