"""The secrets in the state directory: made once, kept, private, and refused when damaged or open to others."""

from __future__ import annotations

import json
import os
import stat
from base64 import urlsafe_b64encode
from pathlib import Path
from unittest.mock import patch

from twisted.trial.unittest import SynchronousTestCase

from sticky.core.proxy_tokens import ProxyTokens, parse_bearer
from sticky.errors import ConfigError
from sticky.keys import DEVELOPMENT_OWNER, PROXY_TOKEN, SIGNING_KEY, development_token, make_state_dir, signing_key

CASES = json.loads((Path(__file__).parent / "cases" / "paseto.json").read_text())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


class StateDir(SynchronousTestCase):
    def setUp(self) -> None:
        # A wide umask must not widen what we make.
        self.addCleanup(os.umask, os.umask(0))
        self.state = Path(self.mktemp()) / "deep" / "state"
        self.files = {SIGNING_KEY: signing_key, PROXY_TOKEN: development_token}

    def refused(self, make: object, *texts: str) -> None:
        refused = self.assertRaises(ConfigError, make, self.state)
        for text in texts:
            self.assertIn(text, str(refused))
        self.assertNotIn("\n", str(refused))

    def test_files_and_directory_are_private(self) -> None:
        for name, make in self.files.items():
            make(self.state)
            self.assertEqual(mode(self.state / name), 0o600)
        self.assertEqual(mode(self.state), 0o700)
        self.assertEqual(sorted(path.name for path in self.state.iterdir()), [PROXY_TOKEN, SIGNING_KEY])

    def test_a_key_outlives_a_restart(self) -> None:
        first = signing_key(self.state)
        again = signing_key(self.state, lambda _: self.fail("another key was made"))
        self.assertEqual((first.key_id, first.public), (again.key_id, again.public))

    def test_two_directories_have_two_keys(self) -> None:
        other = Path(self.mktemp())
        self.assertNotEqual(signing_key(self.state).key_id, signing_key(other).key_id)
        self.assertNotEqual(development_token(self.state).secret, development_token(other).secret)

    def test_the_key_file_is_a_paserk_of_seed_and_public_key(self) -> None:
        seed, public = bytes.fromhex(CASES["seed"]), bytes.fromhex(CASES["public"])
        key = signing_key(self.state, lambda size: seed[:size])
        self.assertEqual(key.public, public)
        encoded = urlsafe_b64encode(seed + public).decode().rstrip("=")
        self.assertEqual((self.state / SIGNING_KEY).read_text(), f"k4.secret.{encoded}\n")

    def test_a_damaged_key_is_refused_and_left_alone(self) -> None:
        signing_key(self.state)
        path = self.state / SIGNING_KEY
        good = path.read_text()
        flipped = good[:20] + ("A" if good[20] != "A" else "B") + good[21:]
        for text in (
            "",
            "\n",
            good[:-3],
            good + "x",
            good + good,
            flipped,
            "k4.secret.",
            "k4.public." + good[10:],
            "é",
        ):
            path.write_text(text)
            self.refused(signing_key, str(path), "no signing key")
            self.assertEqual(path.read_text(), text)
            if len(text) > 40:
                self.assertNotIn(text[12:40], str(self.assertRaises(ConfigError, signing_key, self.state)))
        path.write_bytes(os.urandom(5000))
        self.refused(signing_key, "no signing key")

    def test_a_damaged_proxy_token_is_refused_without_showing_it(self) -> None:
        development_token(self.state)
        path = self.state / PROXY_TOKEN
        for text in ("", "wk-a", "wk-a.ws-", "wk-a.ws-secret extra"):
            path.write_text(text)
            self.refused(development_token, str(path), "no proxy token")
            self.assertNotIn("secret", str(self.assertRaises(ConfigError, development_token, self.state)))

    def test_a_file_that_others_can_use_is_refused(self) -> None:
        for name, make in self.files.items():
            make(self.state)
            for wide in (0o640, 0o604, 0o620, 0o602, 0o644):
                (self.state / name).chmod(wide)
                self.refused(make, f"{wide:04o}", f"chmod 600 {self.state / name}")
            (self.state / name).chmod(0o600)
            make(self.state)

    def test_a_link_or_a_directory_in_place_of_a_file_is_refused(self) -> None:
        for name, make in self.files.items():
            make(self.state)
            path = self.state / name
            path.rename(self.state / "elsewhere")
            path.symlink_to("elsewhere")
            self.refused(make, str(path))
            (self.state / "elsewhere").unlink()
            self.refused(make, str(path))
            path.unlink()
            path.mkdir()
            self.refused(make, str(path))
            path.rmdir()
            os.mkfifo(path, 0o600)
            self.refused(make, "no regular file")
            path.unlink()

    def test_a_directory_that_others_can_write_to_is_refused(self) -> None:
        make_state_dir(self.state)
        for wide in (0o770, 0o707, 0o1777):
            self.state.chmod(wide)
            for make in self.files.values():
                self.refused(make, "state_dir", f"chmod 700 {self.state}")
        self.state.chmod(0o755)
        signing_key(self.state)
        self.assertEqual(mode(self.state), 0o755)

    def test_a_directory_of_another_user_is_refused(self) -> None:
        make_state_dir(self.state)
        with patch("os.geteuid", return_value=os.geteuid() + 1):
            self.refused(make_state_dir, "another user")

    def test_a_file_in_the_directorys_place_is_refused(self) -> None:
        self.state.parent.mkdir(parents=True)
        self.state.write_text("")
        self.refused(signing_key, "state_dir", "cannot be used")

    def test_the_faster_of_two_daemons_gives_the_key(self) -> None:
        faster = []

        def slow(size: int) -> bytes:
            faster.append(signing_key(self.state))
            return os.urandom(size)

        slower = signing_key(self.state, slow)
        self.assertEqual(slower.public, faster[0].public)
        self.assertEqual([path.name for path in self.state.iterdir()], [SIGNING_KEY])

    def test_a_draft_left_by_a_crash_is_no_hindrance(self) -> None:
        make_state_dir(self.state)
        (self.state / f".{SIGNING_KEY}.{os.getpid()}").write_text("half")
        signing_key(self.state)
        self.assertEqual([path.name for path in self.state.iterdir()], [SIGNING_KEY])

    def test_a_write_that_fails_leaves_nothing(self) -> None:
        with patch("os.fsync", side_effect=OSError(28, "No space left on device")):
            self.refused(signing_key, "No space left on device")
        self.assertEqual(list(self.state.iterdir()), [])


class Development(SynchronousTestCase):
    def test_the_token_is_kept_and_opens_every_server(self) -> None:
        state = Path(self.mktemp())
        made = development_token(state)
        self.assertEqual(development_token(state), made)
        self.assertEqual((state / PROXY_TOKEN).read_text(), made.bearer + "\n")
        self.assertEqual(parse_bearer(made.bearer), (made.id, made.secret))
        row = ProxyTokens([made.proxy_token()]).identify(made.id, made.secret, 0.0)
        self.assertEqual((row.owner, row.servers, row.expires_at), (DEVELOPMENT_OWNER, frozenset({"*"}), None))

    def test_reprs_hide_the_secret(self) -> None:
        made = development_token(Path(self.mktemp()))
        self.assertNotIn(made.secret, f"{made!r} {made} {made.proxy_token()!r}")
        self.assertGreaterEqual(len(made.secret), 3 + 22)
