"""What `sticky restart` asks of a daemon, and what it says."""

from __future__ import annotations

from sticky.cli.problems import Status
from sticky.cli.restarting import INSTEAD
from tests.cli.daemon import CommandCase, Reply


class RestartingTests(CommandCase):
    def setUp(self) -> None:
        super().setUp()
        self.listen()

    def test_who_is_in_charge_now(self) -> None:
        self.replies["POST /v1/restart"] = Reply({"version": "9.9", "pid": 77})
        self.assertEqual(self.sticky("restart"), "version 9.9 is in charge, pid 77\n")

    def test_of_a_daemon_that_can_hand_nothing_over_what_is_left_to_do(self) -> None:
        message = "An ephemeral daemon takes its containers along: there is nothing to hand over."
        self.replies["POST /v1/restart"] = Reply({"error": "bad_request", "message": message}, 400)
        said = self.complaint("restart", status=Status.USAGE)
        self.assertEqual(
            said, f"an ephemeral daemon takes its containers along: there is nothing to hand over. {INSTEAD}"
        )
        self.assertIn("Stop it and start it again", said)

    def test_another_refusal_has_its_own_advice(self) -> None:
        body = {"error": "restart_under_way", "message": "A new daemon is about to take over."}
        self.replies["POST /v1/restart"] = Reply(body, 503)
        self.assertIn("Ask again in some seconds", self.complaint("restart", status=Status.FAILED))
