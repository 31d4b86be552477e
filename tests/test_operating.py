"""Proxy tokens and keys that an operator makes, lists and takes back while the daemon runs."""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.defer import Deferred, succeed
from zope.interface.verify import verifyObject

from sticky import errors, keys
from sticky.autoscaling import Autoscaling
from sticky.config.settings import ProxyTokenSettings, Settings
from sticky.core.proxy_tokens import ProxyToken, ProxyTokens, hash_secret, parse_bearer
from sticky.errors import BadCredential, ConfigError
from sticky.ioperating import IOperating
from sticky.keyring import KeyRing
from sticky.operating import LEEWAY, Operating
from sticky.token_store import TokenStore
from tests.test_deploying import DeployingCase, table

WALL = 1_700_000_000.0
CONFIGURED = ProxyToken(id="wk-file", secret_hash=hash_secret("ws-file"), owner="file")


class OperatingCase(DeployingCase):
    def setUp(self) -> None:
        super().setUp()
        self.folder.chmod(0o700)
        self.begin(table("game", "min_containers = 1", "container_max_age = 2000"))
        self.begin_operating()

    def begin_operating(self) -> None:
        self.store = TokenStore(self.folder)
        self.ring = KeyRing(self.folder, lambda: WALL)
        own = keys.development_token(self.folder)
        self.admitted = ProxyTokens([CONFIGURED, own.proxy_token(), *self.store.all()], self.store.key)

        self.acknowledging: list[Deferred[tuple[str, ...]]] = []
        self.told: list[set[str]] = []  # the keys that workers were told, each time

        def keys_changed() -> Deferred[tuple[str, ...]]:
            self.told.append(set(self.ring.publics))
            return self.acknowledging.pop(0) if self.acknowledging else succeed(())

        def may_change() -> None:
            if self.restarting:
                raise errors.RestartUnderWay

        self.restarting = False
        self.operating = Operating(
            servers=self.servers,
            autoscaling=Autoscaling(None),
            store=self.store,
            ring=self.ring,
            settings=self.settings,
            own_token=lambda: keys.development_token(self.folder),
            admitted=lambda: self.admitted,
            wall=lambda: WALL,
            now=self.clock.seconds,
            keys_changed=keys_changed,
            may_change=may_change,
        )

    def settings(self) -> Settings:
        import attrs

        configured = ProxyTokenSettings(
            id="wk-file", secret=None, secret_hash="x", owner="file", servers=("*",), expires_at=None, admin=False
        )
        settings = self.deployer.settings
        return attrs.evolve(settings, daemon=attrs.evolve(settings.daemon, proxy_tokens=(configured,)))

    def admits(self, bearer: str) -> bool:
        try:
            self.admitted.identify(*parse_bearer(bearer), WALL)
        except BadCredential:
            return False
        return True


class TokenTests(OperatingCase):
    def test_it_is_an_operating(self) -> None:
        self.assertTrue(verifyObject(IOperating, self.operating))

    def test_a_new_token_counts_at_once_and_with_the_next_daemon(self) -> None:
        view, bearer = self.operating.create_token({"owner": "alice", "servers": ["game"], "admin": True})
        self.assertEqual(
            ("alice", ("game",), None, True, "created"),
            (view.owner, view.servers, view.expires_at, view.admin, view.source),
        )
        self.assertTrue(self.admits(bearer))
        self.begin_operating()
        self.assertTrue(self.admits(bearer))
        self.assertNotIn(bearer.partition(".")[2], (self.folder / "tokens.json").read_text())
        self.assertEqual(0o600, (self.folder / "tokens.json").stat().st_mode & 0o777)

    def test_all_are_listed_with_where_they_come_from(self) -> None:
        made, _ = self.operating.create_token({"owner": "alice"})
        sources = {view.id: view.source for view in self.operating.tokens()}
        own = keys.development_token(self.folder)
        self.assertEqual({"wk-file": "configuration", made.id: "created", own.id: "state directory"}, sources)
        self.assertEqual(own.bearer, self.operating.bearer())

    def test_a_revoked_token_is_refused_at_once_and_for_good(self) -> None:
        made, bearer = self.operating.create_token({"owner": "alice"})
        self.assertIsNone(self.operating.revoke_token(made.id))
        self.assertFalse(self.admits(bearer))
        self.begin_operating()
        self.assertFalse(self.admits(bearer))
        self.assertRaises(errors.UnknownToken, self.operating.revoke_token, made.id)

    def test_the_one_that_nobody_configured_is_replaced(self) -> None:
        before = keys.development_token(self.folder)
        fresh = self.operating.revoke_token(before.id)
        assert fresh is not None
        self.assertFalse(self.admits(before.bearer))
        bearer = self.operating.bearer()
        assert bearer is not None
        self.assertTrue(self.admits(bearer))
        self.assertEqual(bearer.partition(".")[0], fresh.id)

    def test_one_of_the_file_is_the_files(self) -> None:
        with self.assertRaisesRegex(errors.BadRequest, "wk-file is configured: remove it from the file"):
            self.operating.revoke_token("wk-file")
        self.assertTrue(self.admits("wk-file.ws-file"))

    def test_what_is_wrong_makes_no_token(self) -> None:
        given: dict[str, Any]
        for given, text in (
            ({}, "owner is missing"),
            ({"owner": "a b"}, 'owner: "a b" is not allowed'),
            ({"owner": "a", "servers": []}, "servers: "),
            ({"owner": "a", "servers": ["a/b"]}, 'servers: "a/b" is not allowed'),
            ({"owner": "a", "expires_at": WALL - 1}, "expires_at is over already"),
            ({"owner": "a", "expires_at": "soon"}, "expires_at: "),
            ({"owner": "a", "admin": 1}, "admin: 1 is not allowed"),
            ({"owner": "a", "secret": "ws-x"}, '"secret" is not known; there are: admin, expires_at, owner, servers'),
        ):
            with self.assertRaises(errors.BadRequest) as caught:
                self.operating.create_token(given)
            self.assertIn(text, caught.exception.message)
        self.assertEqual([], self.store.all())

    def test_what_cannot_be_kept_is_not_done(self) -> None:
        made, bearer = self.operating.create_token({"owner": "alice"})

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        self.patch(keys, "replace", full)
        self.assertRaises(errors.StorageFailed, self.operating.create_token, {"owner": "bob"})
        self.assertRaises(errors.StorageFailed, self.operating.revoke_token, made.id)
        self.assertTrue(self.admits(bearer))
        self.assertEqual([made.id], [token.id for token in self.store.all()])

    def test_a_damaged_list_is_named(self) -> None:
        path = self.folder / "tokens.json"
        for text in ("{", "[5]", json.dumps([{"id": "x", "servers": []}]), '[{"servers": 5}]'):
            path.write_text(text)
            path.chmod(0o600)
            with self.assertRaisesRegex(ConfigError, "tokens.json: these are no proxy tokens"):
                TokenStore(self.folder)
        path.chmod(0o644)
        with self.assertRaisesRegex(ConfigError, "others can use it"):
            TokenStore(self.folder)


class ScalingTests(OperatingCase):
    def test_scaling_behind_the_same_seam(self) -> None:
        self.assertEqual(3, self.operating.scale("game", {"max_containers": 3}).values["max_containers"])
        self.assertEqual(("max_containers",), self.operating.scaling("game").updated)


class KeyTests(OperatingCase):
    def test_earlier_tokens_are_good_as_long_as_a_container_may_live(self) -> None:
        self.clock.advance(100)
        (box,) = self.servers.by_name[next(iter(self.servers.by_name))].fleet.capacity.containers.values()
        before = self.operating.keys()
        after = self.successResultOf(self.operating.rotate_key(revoke=False))
        self.assertNotEqual(before.key, after.key)
        self.assertEqual({before.key: WALL + (box.dies_at - self.clock.seconds()) + LEEWAY}, dict(after.retired))

    def test_a_revocation_keeps_none(self) -> None:
        before = self.operating.keys()
        after = self.successResultOf(self.operating.rotate_key(revoke=True))
        self.assertNotEqual(before.key, after.key)
        self.assertEqual({}, dict(after.retired))

    def test_nothing_is_signed_with_a_key_that_some_worker_does_not_know(self) -> None:
        self.acknowledging = [Deferred(), Deferred()]
        told, gone = self.acknowledging
        before = self.operating.keys().key
        rotated = self.operating.rotate_key(revoke=True)
        self.assertEqual(before, self.operating.keys().key)
        self.assertEqual([len(keys) for keys in self.told], [2])
        told.callback(("worker-1",))
        after = self.operating.keys().key
        self.assertEqual(self.told[1], {after}, "the earlier one is taken from them")
        self.assertNoResult(rotated)
        gone.callback(("worker-2",))
        self.assertEqual(self.successResultOf(rotated).cut_off, ("worker-1", "worker-2"))
        self.assertNotEqual(before, after)

    def test_two_rotations_at_once_come_one_after_the_other(self) -> None:
        self.acknowledging = [Deferred()]
        told = self.acknowledging[0]
        first, second = self.operating.rotate_key(revoke=False), self.operating.rotate_key(revoke=False)
        told.callback(())
        keys_then = [self.successResultOf(one).key for one in (first, second)]
        self.assertEqual(len({*keys_then}), 2)
        self.assertEqual(self.operating.keys().key, keys_then[1])
        for known, key in zip(self.told, keys_then, strict=True):
            self.assertIn(key, known)

    def test_nothing_changes_that_the_next_daemon_has_read_already(self) -> None:
        self.acknowledging = [Deferred()]
        told, before = self.acknowledging[0], self.operating.keys().key
        rotated = self.operating.rotate_key(revoke=False)
        self.restarting = True
        told.callback(())
        self.failureResultOf(rotated, errors.RestartUnderWay)
        self.failureResultOf(self.operating.rotate_key(revoke=True), errors.RestartUnderWay)
        view = self.operating.tokens()[-1]
        for change in (
            lambda: self.operating.create_token({"owner": "alice"}),
            lambda: self.operating.revoke_token(keys.development_token(self.folder).id),
            lambda: self.operating.scale("game", {"max_containers": 3}),
        ):
            self.assertRaises(errors.RestartUnderWay, change)
        self.assertEqual((self.operating.keys().key, self.operating.tokens()[-1]), (before, view))
        self.assertEqual(self.operating.scaling("game").updated, ())

    def test_a_key_that_cannot_be_kept_is_not_used(self) -> None:
        before = self.operating.keys()

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        self.patch(keys, "replace", full)
        for revoke in (False, True):
            self.failureResultOf(self.operating.rotate_key(revoke=revoke), errors.StorageFailed)
        self.assertEqual(before.key, self.operating.keys().key)
