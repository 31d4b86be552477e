"""Settings of isolation and limits: what the program gets, and what is refused."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from sticky.config.kinds import Place
from sticky.config.subtables import writable
from sticky.config.table import ISOLATION, RLIMITS
from tests.config.toml import ECHO, ConfigCase

PLACE = Place("sticky.toml", Path("/srv"))


class IsolationSettingTests(ConfigCase):
    def test_a_plain_child_process_is_the_default(self) -> None:
        (server,) = self.load(ECHO).servers
        self.assertEqual((server.isolation, server.memory, server.cpu, server.pids), (None, None, None, None))
        self.assertEqual((server.rlimits, server.user), (None, None))

    def test_all_of_them(self) -> None:
        (server,) = self.load(
            ECHO
            + 'memory = "512Mi"\ncpu = 1.5\npids = 100\nuser = "nobody:nogroup"\nrlimits = { nofile = 64, core = 0 }\n'
            'isolation = { network = true, read_only = true, writable = ["data"], descendants = "cgroup" }\n'
        ).servers
        self.assertEqual((server.memory, server.cpu, server.pids), (512 << 20, 1.5, 100))
        self.assertEqual((server.user, server.rlimits), ("nobody:nogroup", {"nofile": 64, "core": 0}))
        assert server.isolation is not None
        self.assertEqual(server.isolation["descendants"], "cgroup")
        self.assertTrue(str(server.isolation["writable"][0]).endswith("/data"))  # type: ignore[index]
        self.assertEqual((server.isolation["network"], server.isolation["private_tmp"]), (True, False))

    def test_memory_as_it_is_written_elsewhere(self) -> None:
        for text, size in (("64Mi", 64 << 20), ("2Gi", 2 << 30), ("65536Ki", 64 << 20), ("64m", 64 << 20)):
            (server,) = self.load(f'{ECHO}memory = "{text}"\n').servers
            self.assertEqual(server.memory, size)

    def test_what_is_wrong_is_named(self) -> None:
        for settings, words in (
            ("isolation = true", "isolation: true is not allowed"),
            ("isolation = { netwrk = true }", 'isolation: "netwrk" is not a setting; did you mean network?'),
            ("isolation = { network = 1 }", "isolation: network: 1 is not allowed; allowed: true or false"),
            ('isolation = { descendants = "all" }', 'allowed: "cgroup" or "pid_namespace" or "best_effort"'),
            ('isolation = { writable = ["/"] }', "isolation: writable:"),
            ("rlimits = { files = 3 }", 'rlimits: "files" is not a setting'),
            ("rlimits = { nofile = -1 }", "rlimits: nofile: -1 is not allowed"),
            ("memory = 512", "memory: 512 is not allowed; allowed: bytes with Ki, Mi or Gi"),
            ("cpu = 0", "cpu: 0 is not allowed"),
            ("pids = 0", "pids: 0 is not allowed"),
            ('user = "no body"', "user: "),
        ):
            self.assertIn(words, self.refused_setting(settings))

    def test_they_are_of_child_processes_only(self) -> None:
        for setting in ('memory = "1Gi"', "cpu = 1", "isolation = { network = true }", "rlimits = { core = 0 }"):
            refused = self.refused_setting(f'backend = "memory"\n{setting}\n')
            self.assertIn('is for backend = "process", and this one is "memory"', refused)

    def test_their_tables_are_in_the_documentation_with_their_defaults(self) -> None:
        for row in (*ISOLATION, *RLIMITS):
            self.assertTrue(row.help.endswith("."), row.name)
            self.assertEqual(row.default is None, bool(row.unset), row.name)

    @given(st.text(alphabet=st.sampled_from(list("/~.a \n\0\u2028")), max_size=8))
    def test_no_path_makes_it_fail_in_another_way(self, text: str) -> None:
        try:
            path = writable(text, PLACE)
        except ValueError:
            return
        self.assertTrue(path.startswith("/") and path != "/")
        self.assertEqual(len(path.splitlines()), 1)
