"""What the commands about Servers, containers and sessions ask of a daemon, and what they show."""

from __future__ import annotations

import json
import re
import sys
from typing import Any
from unittest.mock import patch

from sticky import errors
from sticky.admin.bodies import session as session_body
from sticky.admin.bodies import snapshot as snapshot_body
from sticky.admin.bodies import worker as worker_body
from sticky.isticky import Snapshot
from tests.cli.daemon import TOKEN, CommandCase, Reply
from tests.fakes.inspection import WORKERS, session


class DaemonCase(CommandCase):
    def setUp(self) -> None:
        super().setUp()
        self.listen()
        self.replies["GET /v1/containers"] = Reply(self.containers())

    def sessions(self, *numbers: int, after: str | None = None) -> Reply:
        return Reply({"sessions": [session_body(session(number)) for number in numbers], "next": after})


class StatusTests(DaemonCase):
    def test_servers_and_containers_in_tables(self) -> None:
        lines = self.sticky("status").splitlines()
        self.assertIn("sticky 9.9  pid 42  up 1m 2s  http://127.0.0.1:8080", lines[0])
        self.assertEqual(lines[2].split("  ")[0], "SERVER")
        for part in ("game", "1 of 8", "3", "1 (0.1s)", "5", "http://127.0.0.1:8080"):
            self.assertIn(part, lines[3])
        self.assertIn("ct-box1    game    ready", lines[6])

    def test_old_deployments_are_not_counted_against_the_limit(self) -> None:
        status = self.status()
        (box,) = status["servers"][0]["containers"]
        old = {**box, "newest": False}
        status["servers"][0]["containers"] = [box, old, {**old, "state": "stopping"}, {**box, "state": "starting"}]
        self.replies["GET /v1/status"] = Reply(status)
        self.assertIn("game    1 of 8, 1 starting, 2 old  ", self.sticky("status"))

    def test_what_becomes_of_what_containers_leave_behind(self) -> None:
        self.assertIn("\n\ngame: nothing that a container started outlives it (cgroup)\n", self.sticky("status"))
        status = self.status()
        (box,) = status["servers"][0]["containers"]
        status["servers"][0]["containers"] = [
            {**box, "descendants": None},  # it has only been asked for
            {**box, "descendants": "best_effort"},
            {**box, "descendants": "pid_namespace"},  # of an earlier deployment
        ]
        self.replies["GET /v1/status"] = Reply(status)
        self.assertIn(
            "\n\ngame: what hides from its container may outlive it (best_effort)\n"
            "game: nothing that a container started outlives it (pid_namespace)\n",
            self.sticky("status"),
        )

    def test_workers_in_a_table(self) -> None:
        self.replies["GET /v1/status"] = Reply({**self.status(), "workers": [worker_body(one) for one in WORKERS]})
        lines = [line.split() for line in self.sticky("status").splitlines()]
        self.assertEqual(
            lines[5], ["WORKER", "STATE", "PID", "AGE", "RESTARTS", "CLIENTS", "IN", "FLIGHT", "SESSIONS", "HELD"]
        )
        self.assertEqual(lines[6], ["worker-1", "serving", "51", "1m", "1s", "0", "9", "3", "4"])
        self.assertEqual(lines[7], ["worker-2", "empty", "-", "-", "5", "0", "0", "0"])

    def test_why_a_container_failed(self) -> None:
        said = self.sticky("status")
        self.assertIn("game: ct-old failed 3.2s ago: exited with 1\n    boom", said)

    def test_what_a_container_wrote_cannot_play_with_the_terminal(self) -> None:
        status = self.status()
        status["servers"][0]["ended"][0]["last_lines"] = ["\x1b[31mred\x07"]
        self.replies["GET /v1/status"] = Reply(status)
        self.assertNotIn("\x1b", self.sticky("status"))

    def test_when_starts_are_refused(self) -> None:
        status = self.status()
        status["servers"][0]["failures"] = {"in_a_row": 3, "next_attempt_in": 4.5, "refusing_starts": True}
        self.replies["GET /v1/status"] = Reply(status)
        self.assertIn(
            "game: a container failed to start 3 times in a row; session starts are refused (containers_failing);"
            " next attempt in 4.5s",
            self.sticky("status"),
        )

    def test_what_containers_are_forked_from(self) -> None:
        self.assertNotIn("SNAPSHOT", self.sticky("status"))
        status = self.status()
        status["servers"][0]["snapshot"] = snapshot_body(Snapshot("warm", 99, 85 << 20, ""))
        self.replies["GET /v1/status"] = Reply(status)
        self.assertRegex(self.sticky("status"), r"SNAPSHOT OF +STATE +MEMORY +PID\n *game +warm +85 MiB +99\n")
        status["servers"][0]["snapshot"] = snapshot_body(Snapshot("dead", None, None, "it ended: \x1b[31mred"))
        self.replies["GET /v1/status"] = Reply(status)
        said = self.sticky("status")
        self.assertRegex(said, r"game +dead +- +-\n")
        self.assertIn("game: containers start from scratch, there is no snapshot: it ended: ", said)
        self.assertNotIn("\x1b", said)

    def test_json(self) -> None:
        self.assertEqual(json.loads(self.sticky("status", "--json")), self.status())


class ContainersTests(DaemonCase):
    def test_list(self) -> None:
        self.assertNotIn("ct-old", self.sticky("containers", "list"))
        said = self.sticky("containers", "list", "--all", "--server", "game")
        self.assertRegex(said, r"ct-old +game +failed +3.2s ago +exited with 1")
        self.assertEqual(self.calls()[-1], "GET /v1/containers?server=game")

    def test_show_a_live_one_with_its_sessions(self) -> None:
        self.replies["GET /v1/sessions"] = self.sessions(1)
        said = self.sticky("containers", "show", "ct-box")
        for part in (
            "state        ready",
            "process      77",
            "descendants  cgroup",
            "sessions     3 of 7",
            "    sd-001  active  0 in flight",
        ):
            self.assertIn(part, said)

    def test_show_one_that_has_ended(self) -> None:
        said = self.sticky("containers", "show", "ct-old")
        self.assertIn("how        exited with 1\n    boom", said)
        self.assertEqual(json.loads(self.sticky("containers", "show", "ct-old", "--json"))["status"], 1)

    def test_show_none_or_several(self) -> None:
        self.assertIn("there is no container 'ct-x'", self.complaint("containers", "show", "ct-x", status=4))
        self.assertIn("several containers begin with 'ct-'", self.complaint("containers", "show", "ct-", status=2))

    def test_stop(self) -> None:
        self.replies["POST /v1/containers/ct-box1/stop"] = Reply(
            {**self.containers()["containers"][0], "state": "draining"}
        )
        status = self.status()
        status["servers"][0]["limits"]["exit_grace_period"] = 90.0
        self.replies["GET /v1/status"] = Reply(status)
        self.assertEqual(self.sticky("containers", "stop", "ct-box1"), "")
        self.assertEqual(
            self.captured.err,
            "sticky: ct-box1 of game is draining; 3 sessions with something in flight can go on for 1m 30s at most\n",
        )
        self.replies["POST /v1/containers/ct-box1/stop"] = Reply(
            {**self.containers()["containers"][0], "state": "stopping", "sessions": 0}
        )
        self.sticky("containers", "stop", "ct-box1")
        self.assertEqual(self.captured.err, "sticky: ct-box1 of game is stopping\n")

    def test_one_of_an_earlier_deployment_is_marked(self) -> None:
        body = self.containers()
        body["containers"].append({**body["containers"][0], "id": "ct-box2", "newest": False})
        self.replies["GET /v1/sessions"] = self.sessions()
        self.replies["GET /v1/containers"] = Reply(body)
        said = self.sticky("containers", "list")
        self.assertRegex(said, r"ct-box1 +game +ready  ")
        self.assertRegex(said, r"ct-box2 +game +ready, old  ")
        self.assertIn("deployment   dp-1\n", self.sticky("containers", "show", "ct-box1"))
        self.assertIn("deployment   dp-1 (an old one)\n", self.sticky("containers", "show", "ct-box2"))


class SessionsTests(DaemonCase):
    def test_list_reads_all_pages(self) -> None:
        self.replies["GET /v1/sessions?limit=500"] = self.sessions(0, 1, after="sd-001")
        self.replies["GET /v1/sessions?after=sd-001&limit=500"] = self.sessions(2)
        said = self.sticky("sessions", "list")
        self.assertEqual([line[:6] for line in said.splitlines()[1:]], ["sd-000", "sd-001", "sd-002"])
        self.assertRegex(said, r"sd-000 +game +ct-box1 +active +dev +0.5s +0 +10m\n")

    def test_list_with_a_limit_says_that_there_are_more(self) -> None:
        self.replies["GET /v1/sessions"] = self.sessions(0, 1, after="sd-001")
        self.sticky("sessions", "list", "--limit", "2", "--owner", "dev")
        self.assertEqual(self.calls(), ["GET /v1/sessions?owner=dev&limit=2"])
        self.assertIn("there are more", self.captured.err)
        found = json.loads(self.sticky("sessions", "list", "--limit", "2", "--json"))
        self.assertEqual((len(found["sessions"]), found["next"]), (2, "sd-001"))

    def test_list_has_names_where_there_are_any(self) -> None:
        bodies = [session_body(session(number)) for number in (0, 1)]
        self.replies["GET /v1/sessions"] = Reply({"sessions": bodies, "next": None})
        self.assertNotIn("NAME", self.sticky("sessions", "list"))
        bodies[1]["name"] = "lob\x1bby"
        lines = [re.split(" {2,}", line) for line in self.sticky("sessions", "list").splitlines()]
        self.assertEqual([line[4:6] for line in lines], [["OWNER", "NAME"], ["dev", "-"], ["dev", "lob\ufffdby"]])

    def test_show_and_extend(self) -> None:
        self.replies["GET /v1/sessions/sd-001"] = Reply(session_body(session(1)))
        self.replies["POST /v1/sessions/sd-001/extend"] = Reply(session_body(session(1)))
        for verb in ("show", "extend"):
            said = self.sticky("sessions", verb, "sd-001")
            self.assertIn("ends in            10m", said)
            self.assertEqual(json.loads(self.sticky("sessions", verb, "sd-001", "--json"))["id"], "sd-001")

    def test_a_session_in_use_does_not_end_by_time(self) -> None:
        body = {**session_body(session(1)), "idle_left": None, "state": "draining", "reason": "terminated"}
        self.replies["GET /v1/sessions/sd-001"] = Reply(body)
        said = self.sticky("sessions", "show", "sd-001")
        self.assertIn("ends in            in use", said)
        self.replies["GET /v1/sessions/sd-001"] = Reply({**body, "cut_left": 30.0})
        self.assertIn("ends in            30s", self.sticky("sessions", "show", "sd-001"))
        self.assertIn("state              draining (terminated)", said)

    def test_start_prints_the_token_alone_on_stdout(self) -> None:
        self.replies["POST /v1/sessions"] = Reply(self.credentials())
        self.assertEqual(self.sticky("sessions", "start", "--idle-timeout", "600"), f"{TOKEN}\n")
        self.assertNotIn(TOKEN, self.captured.err)
        self.assertEqual(self.asked[-1], ("POST /v1/sessions", {"server": "game", "idle_timeout": 600, "name": None}))
        self.assertEqual(json.loads(self.sticky("sessions", "start", "game", "--json"))["token"], TOKEN)

    def test_start_on_an_unknown_server_names_those_there_are(self) -> None:
        self.assertEqual(
            self.complaint("sessions", "start", "gmae", status=4), "there is no Server 'gmae'; there are: game."
        )

    def test_start_where_several_servers_are(self) -> None:
        status = self.status()
        status["servers"].append({**status["servers"][0], "name": "echo"})
        self.replies["GET /v1/status"] = Reply(status)
        self.assertIn("several Servers: game, echo. Say which", self.complaint("sessions", "start", status=2))

    def test_terminate_one(self) -> None:
        self.replies["POST /v1/sessions/sd-001/terminate"] = Reply({"session_id": "sd-001"})
        self.sticky("sessions", "terminate", "sd-001", "--grace", "3")
        self.assertEqual(self.asked, [("POST /v1/sessions/sd-001/terminate", {"grace": 3.0})])

    def left(self, session: str, in_flight: int, cut_left: float | None = None) -> Reply:
        return Reply({"session_id": session, "in_flight": in_flight, "cut_left": cut_left, "age_left": 7200.0})

    def test_terminate_says_what_goes_on(self) -> None:
        self.replies["POST /v1/sessions/sd-001/terminate"] = self.left("sd-001", 1)
        self.sticky("sessions", "terminate", "sd-001")
        self.assertEqual(
            self.captured.err,
            "sticky: sd-001 is terminated: nothing new from now on, but 1 request or WebSocket goes on, for 2h at most"
            " (--grace 0 cuts what is in flight)\n",
        )
        self.replies["POST /v1/sessions/sd-001/terminate"] = self.left("sd-001", 3, 30.0)
        self.sticky("sessions", "terminate", "sd-001", "--grace", "30")
        self.assertEqual(
            self.captured.err,
            "sticky: sd-001 is terminated: nothing new from now on, but 3 requests and WebSockets go on, for 30s at most\n",
        )
        found = json.loads(self.sticky("sessions", "terminate", "sd-001", "--json"))
        self.assertEqual([one["in_flight"] for one in found["draining"]], [3])
        self.replies["POST /v1/sessions/sd-001/terminate"] = self.left("sd-001", 0)
        self.sticky("sessions", "terminate", "sd-001")
        self.assertEqual(self.captured.err, "sticky: sd-001 is terminated\n")

    def test_terminate_all_says_what_goes_on_of_all(self) -> None:
        self.replies["GET /v1/sessions"] = self.sessions(0, 1, 2)
        for number in range(3):
            self.replies[f"POST /v1/sessions/sd-00{number}/terminate"] = self.left(
                f"sd-00{number}", number, 5.0 * number
            )
        self.sticky("sessions", "terminate", "--all", "--server", "game", "--grace", "10")
        self.assertEqual(
            self.captured.err,
            "sticky: 3 sessions of game are terminated: nothing new from now on, but 3 requests and WebSockets go on, for 10s"
            " at most\n",
        )

    def test_a_start_that_containers_fail_says_why(self) -> None:
        refusal = {"error": "containers_failing", "message": "Containers of this Server fail to start (exited)."}
        self.replies["POST /v1/sessions"] = Reply(refusal, 503)
        self.assertEqual(
            self.complaint("sessions", "start", status=1),
            "containers of game fail to start: ct-old exited with 1; it wrote: boom."
            " Mend the program or its command. All of its output: sticky containers logs ct-old",
        )
        status = self.status()
        status["servers"][0]["ended"] = []
        self.replies["GET /v1/status"] = Reply(status)
        self.assertIn("The reason is in `sticky status`", self.complaint("sessions", "start", status=1))

    def test_terminate_all_of_a_server_though_one_ends_meanwhile(self) -> None:
        self.replies["GET /v1/sessions?server=game&limit=500"] = self.sessions(0, 1, after="sd-001")
        self.replies["GET /v1/sessions?server=game&after=sd-001&limit=500"] = self.sessions(2)
        for number in (0, 2):
            self.replies[f"POST /v1/sessions/sd-00{number}/terminate"] = Reply({"session_id": "x"})
        self.replies["POST /v1/sessions/sd-001/terminate"] = Reply({"error": "ended", "message": "Over."}, 410)
        self.sticky("sessions", "terminate", "--all", "--server", "game")
        self.assertEqual(self.captured.err, "sticky: 2 sessions of game are terminated\n")

    def test_a_session_by_its_name(self) -> None:
        self.replies["POST /v1/sessions"] = Reply({**self.credentials(), "created": False})
        self.sticky("sessions", "start", "--name", "lobby")
        self.assertEqual({"server": "game", "idle_timeout": None, "name": "lobby"}, self.asked[-1][1])
        self.assertIn("which was there already", self.captured.err)
        self.replies["POST /v1/sessions/release"] = Reply({"name": "lobby"})
        self.sticky("sessions", "release", "lobby", "--grace", "5")
        self.assertEqual({"server": "game", "name": "lobby", "grace": 5.0}, self.asked[-1][1])
        self.assertEqual("sticky: the name 'lobby' is free on game\n", self.captured.err)
        left = {"session_id": "sd-1", "in_flight": 2, "cut_left": 5.0, "age_left": 100.0}
        self.replies["POST /v1/sessions/release"] = Reply({"name": "lobby", "session": left})
        self.sticky("sessions", "release", "lobby", "--grace", "5")
        self.assertEqual(
            "sticky: the name 'lobby' is free on game; sd-1 is terminated: nothing new from now on, but 2 requests and WebSockets"
            " go on, for 5.0s at most\n",
            self.captured.err,
        )
        self.replies["POST /v1/sessions/release"] = Reply({"name": "lobby"})
        self.assertEqual({"name": "lobby"}, json.loads(self.sticky("sessions", "release", "lobby", "--json")))

    def test_a_start_by_the_name_of_a_session_that_is_over_says_what_to_type(self) -> None:
        refusal = errors.SessionExpired("container_lost", "exited")
        self.replies["POST /v1/sessions"] = Reply(refusal.fields(), 410)
        said = (
            "the session of this name has ended (container_lost: exited). Its state is lost. To start afresh:"
            " sticky sessions release 'my lobby'. Or use another name."
        )
        self.assertEqual(self.complaint("sessions", "start", "--name", "my lobby", status=4), said)
        status = self.status()
        status["servers"].append({**status["servers"][0], "name": "echo"})
        self.replies["GET /v1/status"] = Reply(status)
        said = said.replace("'my lobby'", "lobby --server game")
        self.assertEqual(self.complaint("sessions", "start", "game", "--name", "lobby", status=4), said)

    def test_terminate_says_whom_to_programs(self) -> None:
        self.replies["POST /v1/sessions/sd-1/terminate"] = Reply({"session_id": "sd-1"})
        self.assertEqual(
            {"terminated": ["sd-1"], "draining": []}, json.loads(self.sticky("sessions", "terminate", "sd-1", "--json"))
        )

    def test_terminate_needs_to_know_what(self) -> None:
        for arguments in ((), ("sd-001", "--all"), ("--all",)):
            self.assertIn("Give one SESSION", self.complaint("sessions", "terminate", *arguments, status=2))
        self.assertEqual(self.asked, [])


class CheckTests(DaemonCase):
    def test_a_running_daemon_checks_in_its_own_way(self) -> None:
        body: dict[str, Any] = {"listen": ["tcp:1"], "servers": [], "warnings": ["careful"]}
        self.replies["POST /v1/check"] = Reply(body)
        self.assertEqual(self.sticky("check", "--by-daemon", "a.toml"), "listens on tcp:1\n")
        self.assertEqual(self.captured.err, "sticky: warning: careful\n")
        self.assertEqual(self.asked[-1][1]["file"], "a.toml")
        self.sticky("check", "--by-daemon", "game.py")
        self.assertEqual(self.asked[-1][1]["app"], "game.py")

    def test_what_the_daemon_finds_wrong(self) -> None:
        self.replies["POST /v1/check"] = Reply({"error": "bad_configuration", "message": "a.toml: x: y"}, 400)
        self.assertTrue(self.complaint("check", "--by-daemon", "a.toml", status=2).startswith("a.toml: x: y. Mend"))


class CompletionTests(DaemonCase):
    def complete(self, words: str) -> list[str]:
        import os

        from click.shell_completion import BashComplete

        from sticky.cli.root import root

        environ = {"STICKY_STATE_DIR": str(self.folder)}
        with patch.dict(os.environ, environ):
            *before, last = words.split(" ")
            found = BashComplete(root, {}, "sticky", "_STICKY_COMPLETE").get_completions(before, last)
        return [item.value for item in found]

    def test_names_and_ids_come_from_the_daemon(self) -> None:
        self.replies["GET /v1/sessions"] = self.sessions(0, 1)
        self.assertEqual(self.complete("sessions list --server g"), ["game"])
        self.assertEqual(self.complete("containers show ct-"), ["ct-box1"])
        self.assertEqual(self.complete("sessions show "), ["sd-000", "sd-001"])
        self.assertEqual(self.complete("sessions sh"), ["show"])

    def test_without_a_daemon_there_is_nothing_and_no_noise(self) -> None:
        self.folder = self.folder / "gone"
        self.addCleanup(self.folder.mkdir)
        self.assertEqual(self.complete("sessions show "), [])
        self.assertEqual(self.captured.err, "")


class TopTests(DaemonCase):
    def test_it_needs_a_terminal(self) -> None:
        self.assertFalse(sys.stdout.isatty())
        self.assertIn("top needs a terminal", self.complaint("top", status=2))
