"""Whatever is sent either is refused or arrives meaning the same, less what is stripped and plus what is added (h11 reads it)."""

from __future__ import annotations

import h11
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import TestCase

from sticky.edge.credentials import find_credential
from sticky.edge.grammar import HeadLimits
from sticky.edge.parsing import find_request_end, parse_request
from tests.edge.http_cases import Message
from tests.edge.rehearsal import LIMITS, NAMES, SESSION, pieces, read_request, rehearse_requests
from tests.strategies import Sent, cuts, damaged, requests

ADDED = {
    "x-modal-server-session-id": SESSION.decode(),
    "x-forwarded-for": "127.0.0.1",
    "x-forwarded-proto": "http",
    "x-forwarded-host": "game.example:8080",
}
FRAMING = {"content-length", "transfer-encoding"}
slow = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def text(lines: list[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in lines]


class MeaningTests(TestCase):
    @slow
    @given(requests(), cuts())
    def test_a_valid_request_arrives_meaning_the_same(self, sent: Sent, places: list[int]) -> None:
        outcome = rehearse_requests(pieces(sent.data, places))
        self.assertIsNone(outcome.refusal)
        (data,) = outcome.sent
        message = read_request(data)
        self.assertEqual(message.method, sent.method.decode())
        self.assertEqual(message.target, sent.target.decode())
        self.assertEqual(message.body, sent.content.decode("latin-1"))
        self.assertEqual(message.trailers, text(sent.trailers))
        kept = [line for line in message.headers if line[0] not in ADDED and line[0] not in FRAMING]
        self.assertEqual(kept, text(sent.fields))
        for name, value in ADDED.items():
            self.assertEqual([found for key, found in message.headers if key == name], [value])

    @slow
    @given(requests(), cuts())
    def test_no_credential_and_no_forged_fact_occurs_in_what_goes_on(self, sent: Sent, places: list[int]) -> None:
        outcome = rehearse_requests(pieces(sent.data, places))
        for data in outcome.sent:
            for secret in sent.secrets:
                self.assertNotIn(secret, data)

    @slow
    @given(st.lists(requests(), min_size=2, max_size=3), st.booleans(), cuts())
    def test_pipelined_requests_go_on_one_by_one(self, sent: list[Sent], stray: bool, places: list[int]) -> None:
        separator = b"\r\n" if stray else b""
        outcome = rehearse_requests(pieces(separator.join(one.data for one in sent), places))
        self.assertIsNone(outcome.refusal)
        alone = [data for one in sent for data in rehearse_requests([one.data]).sent]
        self.assertEqual(outcome.sent, alone)


class DamagedTests(TestCase):
    @settings(slow, max_examples=200)
    @given(damaged(requests().map(lambda sent: sent.data)), cuts())
    def test_where_the_bytes_are_cut_changes_nothing(self, data: bytes, places: list[int]) -> None:
        whole = rehearse_requests([data])
        cut = rehearse_requests(pieces(data, places))
        self.assertEqual(cut.sent, whole.sent)
        self.assertEqual(cut.refusal is None, whole.refusal is None)

    @settings(slow, max_examples=200)
    @given(damaged(requests().map(lambda sent: sent.data)))
    def test_what_is_not_refused_is_unambiguous(self, data: bytes) -> None:
        outcome = rehearse_requests([data])
        for request in outcome.requests:
            if not request.whole:
                continue
            message = read_request(bytes(request.data))
            head = request.head
            self.assertEqual(message.method, head.method.decode())
            lengths = [value for name, value in message.headers if name == "content-length"]
            codings = [value for name, value in message.headers if name == "transfer-encoding"]
            self.assertLessEqual(len(lengths) + len(codings), 1)
            self.assertEqual([value for name, value in message.headers if name == "host"], [head.host.decode()])

    @settings(slow, max_examples=200)
    @given(damaged(requests().map(lambda sent: sent.data)))
    def test_no_valid_message_that_we_take_is_read_otherwise_by_another_parser(self, data: bytes) -> None:
        outcome = rehearse_requests([data])
        if outcome.refusal is not None or len(outcome.sent) != 1 or outcome.broken:
            return
        try:
            theirs = as_sent(data)
        except h11.RemoteProtocolError:
            return  # h11 checks framing fields in trailers as if they were in the head; they are stripped here
        ours = read_request(outcome.sent[0])
        self.assertEqual(theirs.method, ours.method)
        self.assertEqual(theirs.body, ours.body)


def as_sent(data: bytes) -> Message:
    """What h11 makes of the client's own bytes (a stray CRLF before or after it is not its business)."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1_000_000)
    connection.receive_data(data.removeprefix(b"\r\n"))
    head = connection.next_event()
    assert isinstance(head, h11.Request), head
    content = b""
    while isinstance(event := connection.next_event(), h11.Data):
        content += event.data
    assert isinstance(event, h11.EndOfMessage), event
    return Message([], content.decode("latin-1"), method=head.method.decode())


class FindTests(TestCase):
    @given(st.binary(max_size=40))
    def test_arbitrary_bytes_are_refused_or_wait_for_more(self, data: bytes) -> None:
        outcome = rehearse_requests([data])
        self.assertEqual(outcome.sent, [])

    @slow
    @given(requests())
    def test_no_prefix_of_a_valid_head_is_refused(self, sent: Sent) -> None:
        end = sent.data.index(b"\r\n\r\n") + 4
        for at in range(end):
            self.assertEqual(find_request_end(sent.data[:at], max(at - 1, 0), HeadLimits()), -1)
        self.assertEqual(find_request_end(sent.data, 0, LIMITS), end)

    @slow
    @given(requests())
    def test_the_deciding_credential_is_one_of_the_clients_own(self, sent: Sent) -> None:
        head = parse_request(sent.data[: sent.data.index(b"\r\n\r\n") + 4], LIMITS)
        credential = find_credential(head, NAMES)
        self.assertNotIn("v4.public", repr(credential) + repr(head))
        if credential is not None:
            self.assertIn(credential.token, sent.secrets)
