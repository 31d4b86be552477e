"""The table agrees with what else knows a default or a range, and with its documentation."""

from __future__ import annotations

from pathlib import Path

import attrs
from hypothesis import example, given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from sticky.config.document import document
from sticky.config.kinds import Flag, Place, Refused, show
from sticky.config.settings import DaemonSettings, ProxyTokenSettings, ServerSettings
from sticky.config.table import DAEMON, PROXY_TOKEN, REQUIRED, SERVER, Setting
from sticky.core.values import Policy, ServerName
from sticky.edge.handshake import RelayRules
from sticky.edge.site import Site

ROOT = Path(__file__).parents[2]
PLACE = Place("sticky.toml", Path("/"))
ROWS = {setting.name: setting for setting in SERVER}
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=4,
)


class TableTests(SynchronousTestCase):
    def test_every_value_of_the_settings_has_a_row(self) -> None:
        def names(cls: type) -> set[str]:
            return {field.name for field in attrs.fields(cls)}

        derived = {"name", "app", "policy", "reports_ready", "ready_path", "zygote"}
        self.assertEqual(
            {*ROWS} - {"ready", "secrets"}, (names(ServerSettings) - derived) | names(Policy) - {"single_use"}
        )
        self.assertEqual({setting.name for setting in DAEMON}, names(DaemonSettings) - {"proxy_tokens"})
        self.assertEqual({setting.name for setting in PROXY_TOKEN}, names(ProxyTokenSettings))

    def test_defaults_of_limits_are_the_cores(self) -> None:
        for field in attrs.fields(Policy):
            if field.name == "single_use":
                continue  # follows from `sandbox`
            self.assertEqual(ROWS[field.name].default, field.default)

    def test_defaults_of_the_data_plane_are_the_edges(self) -> None:
        site = Site(name=ServerName("echo"))
        for field in attrs.fields(Site):
            if field.name in ROWS and field.name != "websocket":
                default, own = ROWS[field.name].default, getattr(site, field.name)
                self.assertEqual(
                    tuple(default) if own == frozenset() else default, tuple(own) if own == frozenset() else own
                )

    def test_defaults_of_websockets_are_the_relays(self) -> None:
        rules = RelayRules()
        self.assertEqual(ROWS["websocket"].default, rules.mode)
        for field in attrs.fields(RelayRules):
            if field.name != "mode":
                self.assertEqual(ROWS[field.name].default, getattr(rules, field.name))

    def test_each_row_is_complete(self) -> None:
        for setting in (*DAEMON, *PROXY_TOKEN, *SERVER):
            self.assertTrue(setting.help.endswith("."), setting.name)
            self.assertEqual(setting.default is None, bool(setting.unset), setting.name)
            self.assertTrue(setting.kind.allowed, setting.name)

    def test_the_documentation_is_the_tables(self) -> None:
        page = (ROOT / "docs/configuration.md").read_text()
        self.assertEqual(page, document(), "out of date: python -m sticky.config.document > docs/configuration.md")

    def test_the_documentation_has_every_key_with_its_default(self) -> None:
        page = document()
        self.assertIn("| `scaledown_window` | seconds from 2 to 3600 | `60` | live |", page)
        self.assertIn("| `command` | ", page)
        for setting in (*DAEMON, *PROXY_TOKEN, *SERVER):
            self.assertIn(f"| `{setting.name}` | ", page)

    @given(st.sampled_from((*DAEMON, *PROXY_TOKEN, *SERVER)), JUNK)
    def test_no_value_makes_a_kind_fail_in_another_way(self, setting: Setting, value: object) -> None:
        try:
            read = setting.kind.read(value, PLACE)
        except Refused as refused:
            self.assertNotIn("\n", refused.problem or "")
        else:
            self.assertIsNot(read, REQUIRED)
            self.assertFalse(isinstance(value, bool) and not isinstance(setting.kind, Flag))

    @given(JUNK)
    @example({"\n": None})
    def test_a_shown_value_is_short_and_on_one_line(self, value: object) -> None:
        text = show(value)
        self.assertLessEqual(len(text), 80)
        self.assertNotIn("\n", text)
