"""Every case of tests/cases/http gets its outcome from the pure parts alone, however its bytes are cut."""

from __future__ import annotations

from collections.abc import Iterable

from twisted.trial.unittest import TestCase

from sticky.edge.parsing import parse_request
from tests.edge.http_cases import Case, cases, contradictions
from tests.edge.rehearsal import (
    LIMITS,
    SESSION,
    TOKEN,
    Outcome,
    pieces,
    read_request,
    read_response,
    rehearse_requests,
    rehearse_response,
)


def cuttings(data: bytes) -> dict[str, Iterable[int]]:
    """Ways to cut: not at all, in reads as a socket gives them, in the middle of every line end, and every byte alone."""
    ways: dict[str, Iterable[int]] = {"whole": (), "reads": range(65_536, len(data), 65_536)}
    if len(data) < 40_000:
        ways["line ends"] = [at + 1 for at in range(len(data)) if data[at] == 0x0D]
    if len(data) < 2_000:
        ways["bytes"] = range(1, len(data))
    return ways


class RequestCaseTests(TestCase):
    def test_every_request_gets_an_allowed_outcome(self) -> None:
        wrong = []
        count = 0
        for case in cases("requests.jsonl", TOKEN, SESSION):
            count += 1
            for way, cuts in cuttings(case.data).items():
                outcome = rehearse_requests(pieces(case.data, cuts), half_close=case.raw.get("half_close", False))
                wrong += [f"{case.name} ({way}): {problem}" for problem in self.problems(case, outcome)]
        self.assertEqual(count, 127)
        self.assertEqual(wrong, [])

    def problems(self, case: Case, outcome: Outcome) -> list[str]:
        status = outcome.refusal.status if outcome.refusal else None
        complaints = []
        for expected in case.outcomes:
            if isinstance(expected, int):
                good = status == expected and not outcome.requests
                complaint = [] if good else [f"status {status}, {len(outcome.requests)} requests went on"]
            elif expected == "forward":
                complaint = self.not_forwarded(case, outcome)
            elif expected == "abort":
                good = not outcome.sent and status in (400, None) and (outcome.broken or status == 400)
                complaint = [] if good else [f"not aborted: {status}, {len(outcome.sent)} whole requests"]
            else:
                complaint = [] if outcome.closed and not outcome.requests else ["not closed"]
            if not complaint:
                return []
            complaints += [f"not {expected}: {text}" for text in complaint]
        return complaints

    def not_forwarded(self, case: Case, outcome: Outcome) -> list[str]:
        status = outcome.refusal.status if outcome.refusal else None
        if status != case.raw.get("then"):
            return [f"status {status}"]
        if outcome.broken or len(outcome.sent) != len(case.container):
            return [f"{len(outcome.sent)} whole requests went on"]
        found = []
        for facts, data in zip(case.container, outcome.sent, strict=True):
            found += contradictions(facts, read_request(data), TOKEN)
        return found

    def test_faults_without_an_end_of_head_show_at_once(self) -> None:
        for name in ("bare LF line ends", "TLS client hello on a plain port"):
            (case,) = [case for case in cases("requests.jsonl", TOKEN, SESSION) if case.name == name]
            self.assertNotIn(b"\r\n\r\n", case.data)
            outcome = rehearse_requests([case.data])
            self.assertIsNotNone(outcome.refusal, name)


class ResponseCaseTests(TestCase):
    def test_every_response_gets_an_allowed_outcome(self) -> None:
        wrong = []
        count = 0
        for case in cases("responses.jsonl", TOKEN, SESSION):
            count += 1
            for way, cuts in cuttings(case.data).items():
                wrong += [f"{case.name} ({way}): {problem}" for problem in self.problems(case, cuts)]
        self.assertEqual(count, 28)
        self.assertEqual(wrong, [])

    def problems(self, case: Case, cuts: Iterable[int]) -> list[str]:
        method = case.raw.get("method", "GET").encode()
        version = case.raw.get("version", "1.1").encode()
        request = parse_request(method + b" / HTTP/" + version + b"\r\nHost: game.example\r\n\r\n", LIMITS)
        answered = rehearse_response(pieces(case.data, cuts), request)
        complaints: list[str] = []
        for expected in case.outcomes:
            if expected == 502:
                # Once the head has gone out, only breaking off is left.
                complaint = [] if answered.bad_gateway else ["no 502"]
            elif answered.bad_gateway:
                complaint = ["502"]
            else:
                informational, message, broken = read_response(answered, request)
                facts = {name: value for name, value in case.raw.items() if name != "method"}  # that of the request
                complaint = contradictions(facts, message, TOKEN)
                if informational != case.raw.get("informational", []):
                    complaint.append(f"1xx: {informational}")
                if (broken or answered.broken) != case.raw.get("broken", False):
                    complaint.append(f"broken: {broken} {answered.broken}")
            if not complaint:
                return []
            complaints += complaint
        return complaints
