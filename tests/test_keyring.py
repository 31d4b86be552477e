"""Signing keys over time: what verifies after a rotation, after a revocation, and with the next daemon."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from sticky import keys
from sticky.core.tokens import Claims
from sticky.core.values import ContainerId, DeploymentId, ServerName, SessionId
from sticky.errors import BadCredential, ConfigError
from sticky.keyring import RETIRED, KeyRing

NOW = 1_700_000_000.0
CLAIMS = Claims(
    SessionId("sd-1"), ServerName("game"), DeploymentId("dp-1"), ContainerId("ct-1"), int(NOW), int(NOW) + 1000
)


class RingTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.wall = NOW
        self.ring = self.next_daemon()

    def next_daemon(self) -> KeyRing:
        return KeyRing(self.folder, lambda: self.wall)

    def good(self, ring: KeyRing, token: str) -> bool:
        try:
            return ring.verifier.verify(token.encode(), self.wall) == CLAIMS
        except BadCredential:
            return False

    def test_earlier_tokens_are_good_after_a_rotation_and_with_the_next_daemon(self) -> None:
        before, first = self.ring.sign(CLAIMS), self.ring.key_id
        self.ring.rotate(NOW + 500)
        after = self.ring.sign(CLAIMS)
        self.assertNotEqual(first, self.ring.key_id)
        for ring in (self.ring, self.next_daemon()):
            self.assertTrue(self.good(ring, before) and self.good(ring, after))
            self.assertEqual({first: NOW + 500}, {name: key.until for name, key in ring.retired.items()})
            self.assertEqual({first, self.ring.key_id}, set(ring.publics))

    def test_a_key_is_known_before_it_signs(self) -> None:
        before = self.ring.key_id
        self.ring.announce()
        self.ring.announce()
        (fresh,) = self.ring.publics.keys() - {before}
        self.assertEqual((self.ring.key_id, self.next_daemon().key_id), (before, before), "nothing of it is kept")
        self.ring.rotate(NOW + 500)
        self.assertEqual((self.ring.key_id, set(self.ring.publics)), (fresh, {before, fresh}))
        self.assertEqual(dict(self.ring.hexes), {name: key.hex() for name, key in self.ring.publics.items()})

    def test_a_second_rotation_keeps_both(self) -> None:
        tokens = [self.ring.sign(CLAIMS)]
        for _ in range(2):
            self.ring.rotate(NOW + 500)
            tokens.append(self.ring.sign(CLAIMS))
        self.assertEqual([True] * 3, [self.good(self.next_daemon(), token) for token in tokens])

    def test_a_revocation_that_cannot_be_written_down_has_not_begun(self) -> None:
        self.ring.rotate(NOW + 500)
        now, replace = self.ring.key_id, keys.replace

        def full(state_dir: Path, name: str, text: str) -> None:
            if name == RETIRED:
                raise OSError(28, "No space left on device")
            replace(state_dir, name, text)

        self.patch(keys, "replace", full)
        self.assertRaises(OSError, self.ring.rotate, None)
        self.assertEqual((self.ring.key_id, self.next_daemon().key_id), (now, now))

    def test_a_key_is_forgotten_once_no_token_of_it_is_good(self) -> None:
        before = self.ring.sign(CLAIMS)
        self.ring.rotate(NOW + 500)
        self.wall += 501
        self.assertFalse(self.good(self.next_daemon(), before))
        self.ring.rotate(self.wall + 500)
        self.assertEqual(1, len(self.ring.retired))

    def test_a_revocation_refuses_every_earlier_token_at_once(self) -> None:
        tokens = [self.ring.sign(CLAIMS)]
        self.ring.rotate(NOW + 500)
        tokens.append(self.ring.sign(CLAIMS))
        self.assertEqual([True, True], [self.good(self.ring, token) for token in tokens])  # remembered from now on
        self.ring.rotate(None)
        tokens.append(self.ring.sign(CLAIMS))
        for ring in (self.ring, self.next_daemon()):
            self.assertEqual([False, False, True], [self.good(ring, token) for token in tokens])
            self.assertEqual({}, ring.retired)

    def test_deployments_keep_their_names_but_after_a_revocation(self) -> None:
        name = self.ring.fingerprint("what runs")
        for _ in range(2):
            self.ring.rotate(NOW + 500)
            self.assertEqual(name, self.ring.fingerprint("what runs"))
            self.assertEqual(name, self.next_daemon().fingerprint("what runs"))
        self.ring.rotate(None)
        fresh = self.ring.fingerprint("what runs")
        self.assertNotEqual(name, fresh)
        self.assertEqual(fresh, self.next_daemon().fingerprint("what runs"))
        self.ring.rotate(NOW + 500)
        self.assertEqual(fresh, self.next_daemon().fingerprint("what runs"))

    def test_files_are_for_their_owner_alone_and_hold_no_retired_secret_but_the_names(self) -> None:
        self.ring.rotate(NOW + 500)
        modes = {path.name: path.stat().st_mode & 0o777 for path in self.folder.iterdir()}
        self.assertEqual(dict.fromkeys(("signing-key", "retired-keys", "deployment-key"), 0o600), modes)

    def test_what_cannot_be_written_changes_nothing(self) -> None:
        before = self.ring.sign(CLAIMS)
        key = self.ring.key_id

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        self.patch(os, "replace", full)
        for until in (NOW + 500, None):
            self.assertRaises(OSError, self.ring.rotate, until)
            self.assertEqual(key, self.ring.key_id)
            self.assertTrue(self.good(self.ring, before))
            self.assertTrue(self.good(self.next_daemon(), before))
        self.assertEqual(["signing-key"], [path.name for path in self.folder.iterdir()])

    def test_damaged_files_are_named(self) -> None:
        for name, text in (
            ("retired-keys", "k1 abcd 5\n"),
            ("retired-keys", "k1 zz\n"),
            ("retired-keys", f"k1 {'0' * 64} soon\n"),
            ("deployment-key", "k4.secret.x\n"),
        ):
            path = self.folder / name
            path.write_text(text)
            path.chmod(0o600)
            with self.assertRaises(ConfigError) as caught:
                self.next_daemon()
            self.assertIn(str(path), str(caught.exception))
            path.unlink()
