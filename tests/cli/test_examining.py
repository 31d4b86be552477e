"""The doctor."""

from __future__ import annotations

import json
import os
import pwd
import resource
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from twisted.trial.unittest import SkipTest

from sticky import keyring, keys, token_store
from sticky.cli.examining.state import SECRETS
from sticky.containers.cgroups import Cgroups
from sticky.containers.hierarchies import Hierarchy
from tests.cli.daemon import CommandCase
from tests.fakes.asked_engine import FakeEngine

NOBODYS = 2**22 + 1  #: the first number that no process can have


class DoctorTests(CommandCase):
    def setUp(self) -> None:
        super().setUp()
        self.folder.chmod(0o700)

    def status(self) -> dict[str, Any]:
        """Of containers whose numbers no other process of the machine has."""
        said = super().status()
        for one in said["servers"][0]["containers"]:
            one["pid"] = NOBODYS
        return said

    def found(self, *arguments: str, status: int = 0) -> dict[str, list[str]]:
        """Grades by what was looked at, of what was found last."""
        found: dict[str, list[str]] = {}
        for one in json.loads(self.sticky("doctor", "--json", *arguments, status=status)):
            found.setdefault(one["what"], []).append(one["grade"])
            self.assertTrue(one["grade"] == "ok" or one["advice"] or one["what"] == "configuration", one)
        return found

    def config(self, text: str) -> str:
        path = self.folder / "sticky.toml"
        path.write_text(text + '\n[servers.echo]\ncommand = ["true"]\n')
        return str(path)

    def test_everything_is_looked_at(self) -> None:
        found = self.found()
        self.assertLessEqual(
            {
                "daemon",
                "state directory",
                "disk",
                "user",
                "open files",
                "processes",
                "ports",
                "backlog",
                "clock",
                "cgroup",
            },
            {*found},
        )
        self.assertEqual((found["daemon"], found["state directory"]), (["warn"], ["ok"]))

    def test_people_read_what_to_do(self) -> None:
        with patch.object(resource, "getrlimit", lambda which: (256, 4096)):
            said = self.sticky("doctor")
        self.assertRegex(said, r"warn +open files +256 .*\n +Raise the hard limit")
        self.assertRegex(said, r"warn +processes +this user may have 256\n")

    def test_a_daemon_whose_containers_fail(self) -> None:
        self.listen()
        self.assertEqual(self.found()["daemon"], ["ok"])
        status = self.status()
        status["servers"][0]["failures"]["in_a_row"] = 2
        self.replies["GET /v1/status"].body = status
        self.assertEqual(self.found(status=1)["containers"], ["fail"])

    def test_what_keeps_track_of_containers_is_what_the_daemon_would_use(self) -> None:
        found = Cgroups(f"test-{os.getpid()}")
        tracker = found.tracker()
        found.close()
        self.assertEqual(self.found()["cgroup"], ["warn" if tracker is None else "ok"])
        with patch.object(Cgroups, "tracker", lambda self: None):
            self.assertEqual(self.found()["cgroup"], ["warn"])
        group = Hierarchy(Path("/sys/fs/cgroup"), 2, Path("/sys/fs/cgroup/system.slice/sticky.service"))
        with patch.object(Cgroups, "tracker", lambda self: group):
            said = self.sticky("doctor")
        self.assertRegex(said, r"ok +cgroup +version 2, /sys/fs/cgroup/system\.slice/sticky\.service: nothing that")

    def test_who_may_look_into_the_state_directory(self) -> None:
        for mode, grade, status in ((0o755, "warn", 0), (0o777, "fail", 1), (0o700, "ok", 0)):
            self.folder.chmod(mode)
            self.assertEqual(self.found(status=status)["state directory"], [grade], oct(mode))

    def test_a_secret_that_others_can_use(self) -> None:
        self.assertLessEqual(
            {keys.SIGNING_KEY, keys.PROXY_TOKEN, keys.OPERATOR_TOKEN, keyring.RETIRED, keyring.DEPLOYMENT_KEY,
             token_store.FILE, token_store.KEY}, {*SECRETS},
        )  # fmt: skip
        self.assertNotIn("secrets", self.found())
        for name in SECRETS:
            secret = self.folder / name
            secret.write_text("x")
            for mode in (0o644, 0o640, 0o602):
                secret.chmod(mode)
                self.assertEqual(self.found(status=1)["secrets"], ["fail"], name)
                self.assertIn(f"others can use {secret} (mode {mode:04o})", self.captured.out)
                self.assertIn(f"chmod 600 {secret}", self.captured.out)
            secret.chmod(0o600)
            self.assertEqual(self.found()["secrets"], ["ok"], name)
            secret.unlink()

    def test_what_is_no_file_in_the_place_of_a_secret(self) -> None:
        (self.folder / "operator-token").symlink_to("/etc/passwd")
        self.assertEqual(self.found(status=1)["secrets"], ["fail"])
        self.assertIn("operator-token is no regular file", self.captured.out)

    def test_a_wrong_configuration(self) -> None:
        self.assertEqual(
            self.found("--config", self.config("[daemon]\nworkers = 0"), status=1)["configuration"], ["fail"]
        )

    def test_a_port_that_is_taken(self) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            config = self.config(f'[daemon]\nlisten = ["tcp:{taken.getsockname()[1]}:interface=127.0.0.1"]')
            self.assertEqual(self.found("--config", config, status=1)["listeners"], ["fail"])
        self.assertEqual(self.found("--config", config)["listeners"], ["ok"])

    def test_a_port_of_the_other_family(self) -> None:
        for listen in ("tcp6:0", "tcp:{port}:interface=\\\\:\\\\:1", "tcp6:{port}"):
            with socket.socket(socket.AF_INET6) as probe:
                try:
                    probe.bind(("::1", 0))
                except OSError:
                    raise SkipTest("no IPv6 here") from None
                port = probe.getsockname()[1]
            config = self.config(f'[daemon]\nlisten = ["{listen.format(port=port)}"]')
            self.assertNotIn("fail", self.found("--config", config).get("listeners", []), listen)

    def test_tokens_that_cross_a_network_in_the_clear(self) -> None:
        key, certificate = self.certificate(100)
        tls = f"privateKey={key}:certKey={certificate}"
        for listen, grades in (
            ("tcp:0:interface=127.0.0.1", []),
            ("tcp:0", ["warn"]),
            ("tcp:0:interface=10.1.2.3", ["warn"]),
            (f"ssl:0:{tls}", ["ok"]),
        ):
            config = self.config(f'[daemon]\nlisten = ["{listen}"]')
            self.assertEqual(self.found("--config", config).get("TLS", []), grades, listen)
        for listen, grade, status in (
            ("tcp:0:interface=127.0.0.1", "ok", 0),
            ("tcp:0:interface=localhost", "ok", 0),
            ("tcp:0", "fail", 1),
            ("tcp:0:interface=0.0.0.0", "fail", 1),
            (f"ssl:0:{tls}", "ok", 0),
        ):
            config = self.config(f'[daemon]\nlisten = ["tcp:0:interface=127.0.0.1"]\nadmin_listen = ["{listen}"]')
            self.assertEqual(self.found("--config", config, status=status)["admin API"], [grade], listen)
            self.assertNotIn(str(key), self.captured.out)

    def test_the_same_of_a_daemon_that_runs(self) -> None:
        self.listen()
        found = self.found()
        self.assertEqual((found["admin API"], found.get("TLS")), (["ok"], None))
        body = self.status()
        body["daemon"] |= {"listen": ["http://0.0.0.0:80", "https://x:443"], "admin_listen": ["tcp:9000"]}
        self.replies["GET /v1/status"].body = body
        found = self.found(status=1)
        self.assertEqual((found["admin API"], found["TLS"]), (["fail"], ["warn"]))
        del body["daemon"]["admin_listen"]  # an earlier daemon does not say
        self.assertEqual(self.found()["admin API"], ["ok"])

    def test_as_whom_containers_run(self) -> None:
        text = (
            '[servers.echo]\ncommand = ["true"]\nhosts = ["a"]\n'
            '[servers.walled]\ncommand = ["true"]\nhosts = ["b"]\nisolation = { private_tmp = true }\n'
            '[servers.other]\ncommand = ["true"]\nhosts = ["c"]\nuser = "nobody"\n'
            '[servers.image]\nbackend = "docker"\nhosts = ["d"]\ndocker = { image = "x", socket = "gone.sock" }\n'
        )
        (self.folder / "sticky.toml").write_text(text)
        self.found("--config", str(self.folder / "sticky.toml"), status=1)
        said = {one["found"]: one for one in json.loads(self.captured.out) if one["what"] == "containers"}
        me = pwd.getpwuid(os.geteuid()).pw_name
        self.assertEqual(
            [
                f"of echo run as {me}, and can read the state directory with its keys",
                f"of walled run as {me}, who is kept from the state directory there",
                "of other run as nobody, for whom the state directory is closed",
                "of image run as the image says, in Docker, without the state directory",
            ],
            list(said),
        )

    def test_whether_docker_engines_are_there_and_have_the_images(self) -> None:
        (self.folder / "sticky.toml").write_text(
            '[servers.a]\nbackend = "docker"\nhosts = ["a"]\ndocker = { image = "game:3", socket = "engine.sock" }\n'
        )
        config = str(self.folder / "sticky.toml")
        self.assertEqual(self.found("--config", config, status=1)["engine"], ["fail"])
        self.assertIn("of a: the container engine at ", self.captured.out)
        with FakeEngine(self.folder / "engine.sock") as engine:
            self.assertEqual(self.found("--config", config, status=1)["engine"], ["fail"])
            self.assertIn("of a: the container engine has no image game:3", self.captured.out)
            engine.images.add("game:3")
            self.assertEqual(self.found("--config", config)["engine"], ["ok"])

    def test_as_whom_containers_do_run(self) -> None:
        self.listen()
        body = self.status()
        for one in body["servers"][0]["containers"]:
            one["pid"] = os.getpid()
        body["servers"][0]["containers"].append({**body["servers"][0]["containers"][0], "pid": NOBODYS})
        self.replies["GET /v1/status"].body = body
        self.found()
        (said,) = [one for one in json.loads(self.captured.out) if one["what"] == "containers"]
        me = pwd.getpwuid(os.geteuid()).pw_name
        self.assertEqual(f"of game run as {me}, and can read the state directory with its keys", said["found"])
        self.assertIn("docs/isolation.md", said["advice"])

    def test_an_app_beside_the_configuration(self) -> None:
        app = self.folder / "app.py"
        app.write_text(
            "import sticky\napp = sticky.App('a')\n@app.server(command=['true'])\n@sticky.sessioned()\nclass Game: ...\n"
        )
        self.assertEqual(self.found("--app", str(app))["configuration"], ["ok"])
        self.assertIn("of Game run as", self.captured.out)
        app.write_text(app.read_text().replace("true", "no-such-program"))
        self.assertEqual(self.found("--app", str(app), status=1)["program"], ["fail"])
        self.assertIn("of Game: there is no program no-such-program on the PATH", self.captured.out)
        app.write_text("import sticky\n")
        self.assertEqual(self.found("--app", str(app), status=1)["configuration"], ["fail"])
        self.assertIn("there is no App in", self.captured.out)

    def test_certificates_that_end_soon(self) -> None:
        for days, grade, status in ((100, "ok", 0), (5, "warn", 0), (-1, "fail", 1)):
            key, certificate = self.certificate(days)
            config = self.config(f'[daemon]\nlisten = ["ssl:0:privateKey={key}:certKey={certificate}"]')
            self.assertEqual(self.found("--config", config, status=status)["TLS"][-1], grade)
        key.chmod(0o644)
        self.assertEqual(self.found("--config", config, status=1)["TLS"], ["warn", "fail"])

    def certificate(self, days: int) -> tuple[Path, Path]:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
        now = datetime.now(UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(1)
            .not_valid_before(now - timedelta(days=400))
            .not_valid_after(now + timedelta(days=days))
            .sign(key, hashes.SHA256())
        )
        key_path, path = self.folder / "key.pem", self.folder / "cert.pem"
        pem = serialization.Encoding.PEM
        key_path.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
        key_path.chmod(0o600)
        path.write_bytes(made.public_bytes(pem))
        return key_path, path

    def test_it_names_the_user(self) -> None:
        with patch.object(os, "geteuid", lambda: 0):
            self.assertEqual(self.found()["user"], ["warn"])
