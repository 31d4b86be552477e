"""The checker is able to find what it is there to find."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.faults.model import Model, Stay


class ModelTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.model = Model(limit=2)
        self.stay = self.model.started("sd-1", "t", True)
        self.says(self.stay, "ct-1", 1)

    def says(self, stay: Stay, container: str, count: int, sent_before_end: bool = True) -> None:
        self.model.answered(stay, stay.session, container, count, sent_before_end)

    def test_what_is_kept_is_not_complained_of(self) -> None:
        self.says(self.stay, "ct-1", 5)
        self.stay.terminating = True
        self.model.terminate_answered(self.stay, 200)
        self.model.refused(self.stay, 410, "terminated")
        lost = self.model.started("sd-2", "t", False)
        self.says(lost, "ct-2", 1)
        self.model.killed.add("ct-2")
        self.model.refused(lost, 410, "container_lost")
        self.assertEqual(self.model.broken, [])
        self.assertEqual((self.model.starts, self.model.found_again, self.model.answers, self.model.ends), (2, 1, 3, 2))

    def test_every_broken_promise_is_noticed(self) -> None:
        self.says(self.stay, "ct-2", 2)  # elsewhere
        self.says(self.stay, "ct-1", 1)  # forgotten
        self.model.answered(self.stay, "sd-9", "ct-1", 3, True)  # another's
        self.model.refused(self.stay, 410, "ended")  # without a reason
        self.says(self.stay, "ct-1", 4, sent_before_end=False)  # after its end
        self.model.started("sd-1", "t", True)  # twice
        for number in (2, 3, 5):
            self.says(self.model.started(f"sd-{number}", "t", True), "ct-1", 1)  # the third is one too many
        ended = self.model.started("sd-4", "t", True)
        self.model.terminate_answered(ended, 404)  # nobody asked before
        self.assertEqual(len(self.model.broken), 8, self.model.broken)

    def test_a_container_that_nobody_killed_must_not_be_lost(self) -> None:
        self.model.refused(self.stay, 410, "container_lost")
        self.assertEqual(len(self.model.broken), 1)

    def test_an_end_that_is_ordinary_here_is_nobodys_fault(self) -> None:
        self.model.ordinary = frozenset({"container_max_age"})
        self.model.refused(self.stay, 410, "container_max_age")
        self.assertEqual(self.model.broken, [])
        self.model.refused(self.model.started("sd-2", "t", True), 410, "idle_timeout")
        self.assertEqual(len(self.model.broken), 1)

    def test_a_place_is_free_again_once_its_session_has_ended(self) -> None:
        other = self.model.started("sd-2", "t", True)
        self.says(other, "ct-1", 1)
        for stay in (self.stay, other):
            stay.terminating = True
            self.model.terminate_answered(stay, 200)
        for number in (3, 4, 5):
            self.assertEqual(self.model.broken, [])
            self.says(self.model.started(f"sd-{number}", "t", True), "ct-1", 1)
        self.assertEqual(len(self.model.broken), 1)

    def test_a_terminated_session_must_not_serve(self) -> None:
        self.stay.terminating = True
        self.model.terminate_answered(self.stay, 200)
        self.says(self.stay, "ct-1", 2, sent_before_end=False)
        self.assertEqual(len(self.model.broken), 1)
