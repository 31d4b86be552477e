"""What a container is told, and nothing else."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from sticky.containers.environment import DEFAULT_PATH, environment, filled, placeholders
from sticky.core.values import ContainerId, DeploymentId, ServerName
from sticky.isticky import ContainerSpec

DAEMON = {
    "PATH": "/bin",
    "HOME": "/home/op",
    "LANG": "C.UTF-8",
    "LC_ALL": "C",
    "LC_TIME": "de_DE",
    "TZ": "UTC",
    "TMPDIR": "/var/tmp",
    "PYTHONPATH": "/daemon",
    "STICKY_SECRET": "hush",
    "VIRTUAL_ENV": "/venv",
}


def spec(env: dict[str, str] | None = None) -> ContainerSpec:
    return ContainerSpec(
        container=ContainerId("ct-1"),
        server=ServerName("echo"),
        deployment=DeploymentId("dp-1"),
        app="game",
        command=("run",),
        directory=Path("/"),
        log=Path("/log"),
        scratch=Path("/scratch"),
        url="https://echo.example.org",
        env=env or {},
    )


class EnvironmentTests(SynchronousTestCase):
    def test_it_is_exactly_what_the_contract_lists(self) -> None:
        self.assertEqual(
            environment(spec({"LEVEL": "1"}), 20_001, None, DAEMON),
            {
                "PATH": "/bin",
                "HOME": "/home/op",
                "LANG": "C.UTF-8",
                "LC_ALL": "C",
                "LC_TIME": "de_DE",
                "TZ": "UTC",
                "TMPDIR": "/var/tmp",
                "LEVEL": "1",
                "PORT": "20001",
                "STICKY_PORT": "20001",
                "STICKY_HOST": "127.0.0.1",
                "STICKY_URL": "https://echo.example.org",
                "STICKY_CONTAINER_ID": "ct-1",
                "STICKY_SERVER": "echo",
                "STICKY_DEPLOYMENT": "dp-1",
                "STICKY_APP": "game",
                "MODAL_TASK_ID": "ct-1",
                "MODAL_IS_REMOTE": "1",
                "PYTHONUNBUFFERED": "1",
            },
        )

    def test_whether_python_keeps_output_back_is_for_the_server_to_say_or_else_for_the_daemons_own_environment(
        self,
    ) -> None:
        theirs = {**DAEMON, "PYTHONUNBUFFERED": ""}
        self.assertEqual(environment(spec(), 20_001, None, theirs)["PYTHONUNBUFFERED"], "")
        self.assertEqual(environment(spec({"PYTHONUNBUFFERED": "x"}), 20_001, None, theirs)["PYTHONUNBUFFERED"], "x")
        self.assertEqual(environment(spec({"PYTHONUNBUFFERED": ""}), 20_001, None, DAEMON)["PYTHONUNBUFFERED"], "")

    def test_a_runtime_that_reports_is_told_where(self) -> None:
        self.assertEqual(environment(spec(), 20_001, 3, DAEMON)["STICKY_READY_FD"], "3")

    def test_its_state_directory_is_marked_and_a_runtime_is_told_of_the_file_besides(self) -> None:
        result = environment(spec(), 20_001, 3, DAEMON, realm="r1", ready_file=Path("/scratch/ready"))
        self.assertEqual((result["STICKY_STATE"], result["STICKY_READY_FILE"]), ("r1", "/scratch/ready"))

    def test_the_operator_can_replace_what_is_inherited_and_what_we_say(self) -> None:
        result = environment(spec({"PATH": "/opt", "STICKY_URL": "http://x"}), 20_001, None, DAEMON)
        self.assertEqual((result["PATH"], result["STICKY_URL"]), ("/opt", "http://x"))

    def test_where_it_listens_and_who_it_is_stay_ours(self) -> None:
        theirs = {"PORT": "80", "STICKY_CONTAINER_ID": "ct-2", "STICKY_STATE": "r2"}
        result = environment(spec(theirs), 20_001, None, DAEMON, realm="r1")
        found = [result[name] for name in theirs]
        self.assertEqual(found, ["20001", "ct-1", "r1"])

    def test_a_daemon_without_path_still_gives_one(self) -> None:
        self.assertEqual(environment(spec(), 20_001, None, {})["PATH"], DEFAULT_PATH)


class PlaceholderTests(SynchronousTestCase):
    VALUES = {"port": "20001", "host": "127.0.0.1"}

    def test_known_names_are_replaced_in_any_argument_and_place(self) -> None:
        self.assertEqual(
            filled(["serve", "{port}", "--bind={host}:{port}"], self.VALUES),
            ["serve", "20001", "--bind=127.0.0.1:20001"],
        )

    def test_doubled_braces_are_braces(self) -> None:
        self.assertEqual(filled(["{{port}} {{{port}}}"], self.VALUES), ["{port} {20001}"])

    def test_an_unknown_name_and_a_lone_brace_stay(self) -> None:
        self.assertEqual(filled(["{prot} { } {a b} {}"], self.VALUES), ["{prot} { } {a b} {}"])

    def test_values_are_not_searched_again(self) -> None:
        self.assertEqual(filled(["{host}"], {"host": "{port}", "port": "1"}), ["{port}"])

    def test_names_are_listed_known_or_not_but_not_escaped_ones(self) -> None:
        self.assertEqual(placeholders(["{port} {prot}", "{{socket}}"]), {"port", "prot"})

    @given(st.text())
    def test_escaping_every_brace_gives_the_text_itself(self, text: str) -> None:
        self.assertEqual(filled([text.replace("{", "{{").replace("}", "}}")], self.VALUES), [text])
