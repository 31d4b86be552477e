"""The doctor."""

from __future__ import annotations

import json
import os
import resource
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from sticky.containers.cgroups import Cgroups
from sticky.containers.hierarchies import Hierarchy
from tests.cli.daemon import CommandCase


class DoctorTests(CommandCase):
    def setUp(self) -> None:
        super().setUp()
        self.folder.chmod(0o700)

    def found(self, *arguments: str, status: int = 0) -> dict[str, list[str]]:
        """Grades by what was looked at, of what was found last."""
        found: dict[str, list[str]] = {}
        for one in json.loads(self.sticky("doctor", "--json", *arguments, status=status)):
            found.setdefault(one["what"], []).append(one["grade"])
            self.assertTrue(one["grade"] == "ok" or one["advice"] or one["what"] == "configuration", one)
        return found

    def config(self, text: str) -> str:
        path = self.folder / "sticky.toml"
        path.write_text(text + '\n[servers.echo]\ncommand = ["x"]\n')
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

    def test_a_secret_that_others_can_read(self) -> None:
        secret = self.folder / "signing-key"
        secret.write_text("x")
        secret.chmod(0o644)
        self.assertEqual(self.found(status=1)["secrets"], ["fail"])

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
