"""docs/cli.md and docs/errors.md are what the code says."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from sticky import errors
from sticky.cli.advice import ADVICE, advice_for
from sticky.cli.document import cli, errors_page, refusals
from sticky.cli.problems import MEANINGS, Status
from sticky.core.values import EndReason

DOCS = Path(__file__).parents[2] / "docs"


class DocumentTests(SynchronousTestCase):
    def test_the_pages_are_up_to_date(self) -> None:
        for name, page in (("cli", cli()), ("errors", errors_page())):
            hint = f"out of date: python -m sticky.cli.document {name} > docs/{name}.md"
            self.assertEqual((DOCS / f"{name}.md").read_text(), page, hint)

    def test_every_exit_status_has_a_meaning(self) -> None:
        self.assertEqual(set(MEANINGS), set(Status))

    def test_every_refusal_and_reason_has_advice_and_no_advice_is_left_over(self) -> None:
        codes = {refusal.code for refusal in refusals()}
        self.assertGreater(len(codes), 40)
        self.assertEqual({*ADVICE}, codes | {reason.value for reason in EndReason})
        for text in ADVICE.values():
            self.assertTrue(text.endswith("."), text)

    def test_the_page_has_a_row_for_each_code(self) -> None:
        page = errors_page()
        for refusal in refusals():
            self.assertIn(f"| {refusal.status} | `{refusal.code}` |", page)
        self.assertIn("| `container_max_age` | 4408 |", page)

    def test_no_two_refusals_have_one_code(self) -> None:
        codes = [refusal.code for refusal in refusals()]
        self.assertEqual(sorted(set(codes)), sorted(codes))
        self.assertIn(errors.QueueFull, refusals())

    def test_what_cannot_be_stored_may_have_a_full_disk_or_no_directory(self) -> None:
        for word in ("full", "moved"):
            self.assertIn(word, advice_for("storage_failed"))

    def test_an_unknown_code_has_no_advice(self) -> None:
        self.assertEqual(advice_for("of_a_later_version"), "")
