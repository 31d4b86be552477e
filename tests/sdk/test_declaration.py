"""A declaration survives JSON, and anything else is refused."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import TestCase

from sticky.exception import InvalidError
from sticky.sdk.declaration import SCHEMA, AppDeclaration, ServerDeclaration

values = st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.lists(st.text()))
servers = st.builds(
    ServerDeclaration,
    name=st.text(),
    port=st.none() | st.integers(1, 65535),
    sessioned=st.booleans(),
    command=st.none() | st.lists(st.text()).map(tuple),
    python=st.none() | st.text(),
    snap=st.booleans(),
    settings=st.dictionaries(st.text(), values),
)
apps = st.builds(
    AppDeclaration,
    name=st.text(),
    servers=st.lists(servers, max_size=3).map(tuple),
    entrypoints=st.lists(st.text()).map(tuple),
)


class RoundTripTests(TestCase):
    @given(apps)
    def test_json_keeps_everything(self, app: AppDeclaration) -> None:
        self.assertEqual(app, AppDeclaration.from_document(json.loads(json.dumps(app.document()))))

    def test_it_cannot_be_changed(self) -> None:
        settings = {"min_containers": 1}
        server: Any = ServerDeclaration(name="a", port=1, sessioned=True, settings=settings)
        settings["min_containers"] = 2
        self.assertEqual(1, server.settings["min_containers"])
        with self.assertRaises(TypeError):
            server.settings["min_containers"] = 3
        with self.assertRaises(AttributeError):
            server.port = 3

    def test_another_schema_is_refused_with_what_to_do(self) -> None:
        document = {**AppDeclaration(name="a", servers=()).document(), "schema": SCHEMA + 1}
        with self.assertRaisesRegex(InvalidError, "install the same version of sticky"):
            AppDeclaration.from_document(document)

    @given(st.recursive(st.none() | values, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
    def test_rubbish_is_refused(self, document: object) -> None:
        with self.assertRaises(InvalidError):
            AppDeclaration.from_document(document)

    def test_each_damaged_field_is_refused(self) -> None:
        server = ServerDeclaration(name="a", port=1, sessioned=True, command=("x",), python=None)
        for key in ("name", "port", "sessioned", "command", "settings", "python"):
            document: Any = AppDeclaration(name="a", servers=(server,)).document()
            document["servers"][0][key] = object()
            with self.assertRaisesRegex(InvalidError, "malformed"):
                AppDeclaration.from_document(document)
        for key in ("app", "servers", "entrypoints"):
            document = AppDeclaration(name="a", servers=(server,)).document()
            document[key] = 3
            with self.assertRaisesRegex(InvalidError, "malformed"):
                AppDeclaration.from_document(document)
