"""The settings of a Server that runs on a Docker Engine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from sticky.config.kinds import Place, Refused
from sticky.config.loading import load
from sticky.config.settings import ServerSettings
from sticky.config.subtables import local_socket, mount, size
from sticky.config.table import DOCKER, SERVER
from sticky.containers.docker.recipe import DockerOptions
from sticky.errors import ConfigError

PLACE = Place("sticky.toml", Path("/srv/game"))
KIND = next(setting.kind for setting in SERVER if setting.name == "docker")


class FormTests(SynchronousTestCase):
    def test_sizes(self) -> None:
        self.assertEqual(
            [size(text, PLACE) for text in ("1", "2k", "512m", "1G", "3gb")], [1, 2048, 512 << 20, 1 << 30, 3 << 30]
        )
        for text in ("", "0", "m", "-1m", "1.5g", "12t", "1 g"):
            self.assertRaises(ValueError, size, text, PLACE)

    def test_mounts_of_paths_are_relative_to_the_file_and_volumes_stay_names(self) -> None:
        self.assertEqual(mount("data:/data", PLACE), "data:/data")
        self.assertEqual(mount("./data:/data:ro", PLACE), "/srv/game/data:/data:ro")
        self.assertEqual(mount("/etc/ssl:/etc/ssl:rw", PLACE), "/etc/ssl:/etc/ssl:rw")
        for text in ("", "/data", ":/data", "/data:data", "/data:/data:x", "a b:/data", "/data:/x:ro:ro"):
            self.assertRaises(ValueError, mount, text, PLACE)

    def test_the_socket_may_be_written_as_dockers_tools_do(self) -> None:
        self.assertEqual(local_socket("unix:///run/podman/podman.sock", PLACE), "/run/podman/podman.sock")
        self.assertEqual(local_socket("docker.sock", PLACE), "/srv/game/docker.sock")

    @given(st.text())
    def test_no_text_makes_a_form_fail_in_another_way(self, text: str) -> None:
        for form in (size, mount, local_socket):
            try:
                form(text, PLACE)
            except ValueError:
                pass


class TableTests(SynchronousTestCase):
    def read(self, value: object) -> Mapping[str, object]:
        found: Mapping[str, object] = KIND.read(value, PLACE)
        return found

    def test_what_is_not_given_is_the_backends_own_default(self) -> None:
        self.assertEqual(DockerOptions.read(self.read({"image": "game:3"})), DockerOptions(image="game:3"))

    def test_everything_given_arrives(self) -> None:
        raw = {
            "image": "game@sha256:00",
            "network": "host",
            "memory": "1g",
            "cpus": 1.5,
            "pids": 64,
            "user": "7:7",
            "workdir": "/app",
            "read_only": True,
            "mounts": ["./data:/data"],
            "init": False,
            "pull": True,
            "socket": "/run/podman/podman.sock",
        }
        self.assertEqual({setting.name for setting in DOCKER}, set(raw))
        options = DockerOptions.read(self.read(raw))
        self.assertEqual((options.memory, options.cpus, options.mounts), (1 << 30, 1.5, ("/srv/game/data:/data",)))
        self.assertEqual((options.network.value, options.socket), ("host", "/run/podman/podman.sock"))

    def test_what_is_wrong_is_named(self) -> None:
        for raw, problem in (
            ({}, "image is missing"),
            ({"image": ""}, "image: "),
            ({"image": "a", "memry": "1g"}, "did you mean memory?"),
            ({"image": "a", "memory": 5}, 'memory: 5 is not allowed; allowed: bytes with k, m or g, such as "512m"'),
            ({"image": "a", "cpus": 0}, "cpus: 0 is not allowed"),
            ({"image": "a", 7: 7}, "7 is not a setting"),
            ({"image": "a", "mounts": ["x"]}, "mounts: "),
        ):
            error = self.assertRaises(Refused, self.read, raw)
            self.assertIn(problem, str(error))

    def test_each_row_is_complete(self) -> None:
        for setting in DOCKER:
            self.assertTrue(setting.help.endswith("."), setting.name)
            self.assertEqual(setting.default is None, bool(setting.unset), setting.name)


class ServerTests(SynchronousTestCase):
    def load(self, text: str) -> ServerSettings:
        folder = Path(self.mktemp())
        folder.mkdir()
        (folder / "sticky.toml").write_text(text)
        settings = load(
            file=Path("sticky.toml"), app=None, flags={}, cwd=folder, environ={}, backends=["process", "docker"]
        )
        return settings.servers[0]

    def wrong(self, text: str) -> str:
        return str(self.assertRaises(ConfigError, self.load, text))

    def test_the_image_has_a_command_of_its_own(self) -> None:
        server = self.load('[servers.game]\nbackend = "docker"\ndocker = { image = "game:3" }')
        self.assertEqual(server.command, ())
        assert server.docker is not None
        self.assertEqual(server.docker["image"], "game:3")

    def test_the_backend_and_its_table_belong_together(self) -> None:
        self.assertIn(
            "servers.game.docker: is missing", self.wrong('[servers.game]\nbackend = "docker"\ncommand = ["serve"]')
        )
        self.assertIn(
            'is for backend = "docker"',
            self.wrong('[servers.game]\ncommand = ["serve"]\n[servers.game.docker]\nimage = "a"'),
        )
        self.assertIn(
            "servers.game.docker: image is missing",
            self.wrong('[servers.game]\nbackend = "docker"\n[servers.game.docker]\npids = 5'),
        )
