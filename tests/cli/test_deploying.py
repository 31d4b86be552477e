"""What `sticky deploy` and `sticky rollout` ask of a daemon, and what they show."""

from __future__ import annotations

import json
from pathlib import Path

from sticky.admin.bodies import deployed, rollout
from sticky.cli.problems import Status
from tests.cli.daemon import CommandCase, Reply
from tests.fakes.deploying import REPORT, ROLLOUT


class DeployingTests(CommandCase):
    def setUp(self) -> None:
        super().setUp()
        self.listen()
        self.replies["POST /v1/deploy"] = self.replies["POST /v1/rollout/undo"] = Reply(deployed(REPORT))
        self.replies["GET /v1/rollout"] = Reply(rollout(ROLLOUT))

    def body(self, *arguments: str) -> dict[str, object]:
        self.sticky("deploy", *arguments)
        found: dict[str, object] = self.asked[-1][1]
        return found

    def test_what_it_meant_for_each_server(self) -> None:
        said = self.sticky("deploy")
        self.assertEqual(
            said.splitlines(),
            [
                "game is rolled over (env, max_containers); 3 sessions on old containers",
                "echo is removed, its sessions end",
                "proxy tokens have changed",
            ],
        )
        self.assertEqual(
            self.captured.err,
            "sticky: warning: look twice\nsticky: warning: worker-2 was silent and was cut off; what it served is broken, clients "
            "come back to another process\n",
        )
        self.assertEqual(json.loads(self.sticky("deploy", "--json")), deployed(REPORT))

    def test_what_is_asked_for(self) -> None:
        same = {"file": None, "app": None, "cwd": str(Path.cwd()), "recreate": False, "force": False}
        self.assertEqual(self.body(), same)
        self.assertEqual(self.body("a.toml"), {**same, "file": "a.toml"})
        self.assertEqual(self.body("--config", "a.toml"), {**same, "file": "a.toml"})
        both = {**same, "file": "a.toml", "app": "game.py:Game", "recreate": True, "force": True}
        self.assertEqual(self.body("game.py:Game", "--config", "a.toml", "--recreate", "--force"), both)
        self.complaint("deploy", "a.toml", "--config", "b.toml", status=Status.USAGE)

    def test_a_wrong_definition_is_the_users_mistake(self) -> None:
        message = "a.toml: servers.one.command: is missing"
        self.replies["POST /v1/deploy"] = Reply({"error": "bad_configuration", "message": message}, 400)
        self.assertIn(message, self.complaint("deploy", status=Status.USAGE))

    def test_a_question_is_a_sentence(self) -> None:
        message = "a.toml: servers.one.max_containres: is not a setting; did you mean max_containers?"
        self.replies["POST /v1/deploy"] = Reply({"error": "bad_configuration", "message": message}, 400)
        self.assertIn("max_containers? Mend the file", self.complaint("deploy", status=Status.USAGE))

    def test_one_that_cannot_be_taken_now(self) -> None:
        self.replies["POST /v1/deploy"] = Reply({"error": "unavailable", "message": "The Server x is ending."}, 503)
        self.assertIn("the Server x is ending", self.complaint("deploy", status=Status.FAILED))

    def test_rollout_status(self) -> None:
        lines = self.sticky("rollout", "status").splitlines()
        self.assertEqual(
            [line.split() for line in lines[1:]],
            [
                ["game", "dp-2", "newest", "ready,", "starting", "2", "1"],
                ["game", "dp-1", "old", "ready", "3", "0"],
                ["echo", "-", "removed", "1", "4", "-"],
            ],
        )
        self.assertEqual(
            self.captured.err,
            "sticky: what is served was read from game.py; to go back to what was served before: sticky rollout undo\n",
        )
        self.assertEqual(json.loads(self.sticky("rollout", "status", "--json")), rollout(ROLLOUT))

    def test_rollout_undo(self) -> None:
        self.assertIn("game is rolled over", self.sticky("rollout", "undo", "--recreate"))
        self.assertEqual(self.asked[-1], ("POST /v1/rollout/undo", {"recreate": True}))
        self.assertIn("; 3 sessions on other containers\n", self.captured.out)
        self.assertIn("sticky: what holds again was read from releases/41/sticky.toml\n", self.captured.err)
        self.assertNotIn("not files", self.captured.err)

    def test_an_undo_of_a_change_that_was_none_of_settings(self) -> None:
        body = deployed(REPORT)
        body["servers"] = [{**body["servers"][0], "settings": [], "sessions": 1}]
        self.replies["POST /v1/rollout/undo"] = Reply(body)
        self.assertEqual(
            self.sticky("rollout", "undo").splitlines()[0], "game is rolled over; 1 session on other containers"
        )
        self.assertIn(
            "sticky: no setting differs from it: undo brings settings back and not files, which are used as they are now."
            " Put the earlier file back in its place, then: sticky deploy\n",
            self.captured.err,
        )

    def test_what_is_said_of_a_refusal_is_to_the_point(self) -> None:
        for code, status, said in (
            ("needs_restart", Status.USAGE, "Until then the daemon goes on with the definition that it has."),
            ("bad_request", Status.USAGE, ""),
            (
                "nothing_before",
                Status.FAILED,
                "Deploy the version that you want: keep each in a folder of its own (docs/deploying.md).",
            ),
        ):
            self.replies["POST /v1/rollout/undo"] = Reply(
                {"error": code, "message": "So it is."}, 409 if code == "nothing_before" else 400
            )
            self.assertEqual(self.complaint("rollout", "undo", status=status), f"so it is. {said}".strip())
