"""Bodies: over any cut their end is found, their content is theirs, and every fault of their framing shows."""

from __future__ import annotations

import h11
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import TestCase

from sticky.edge.framing import Body, ChunkedScanner, LengthCounter, UntilClose, body
from sticky.edge.grammar import Framing, HeadLimits
from sticky.errors import BodyFault
from tests.edge.rehearsal import LIMITS, pieces
from tests.strategies import Chunked, chunked, cuts, damaged, tokens, values


def feed(scanner: Body, parts: list[bytes]) -> tuple[bytes, bytes, bytes]:
    """What is forwarded, the content, and what is left for the next message."""
    forwarded = b""
    content: list[bytes] = []
    rest = b""
    for part in parts:
        if scanner.done:
            rest += part
            continue
        size = scanner.feed(part, content)
        forwarded += part[:size]
        rest += part[scanner.used :]
    return forwarded, b"".join(content), rest


trailer_lines = st.lists(st.tuples(tokens, values), max_size=3)


class ChunkedTests(TestCase):
    @given(chunked(trailer_lines), cuts(300), st.binary(max_size=20))
    def test_any_cut_finds_the_same_end_content_and_trailers(
        self, sent: Chunked, places: list[int], after: bytes
    ) -> None:
        scanner = ChunkedScanner(LIMITS)
        forwarded, content, rest = feed(scanner, list(pieces(sent.data + after, places)))
        self.assertTrue(scanner.done)
        self.assertEqual((content, rest), (sent.content, after))
        self.assertEqual(scanner.trailers, sent.trailers)
        self.assertTrue(sent.data.startswith(forwarded))
        self.assertEqual(forwarded, sent.data[: sent.data.rindex(b"\r\n", 0, last_chunk_end(sent)) + 2])
        scanner.finish()

    @given(chunked(trailer_lines), st.integers(0, 1_000))
    def test_a_body_that_is_cut_off_is_never_done(self, sent: Chunked, at: int) -> None:
        scanner = ChunkedScanner(LIMITS)
        feed(scanner, [sent.data[: at % len(sent.data)]] if at % len(sent.data) else [])
        self.assertFalse(scanner.done)
        self.assertRaises(BodyFault, scanner.finish)

    @settings(max_examples=300)
    @given(damaged(chunked(trailer_lines).map(lambda sent: sent.data)), cuts(300))
    def test_a_damaged_body_is_refused_or_read_alike_by_another_parser(self, data: bytes, places: list[int]) -> None:
        scanner = ChunkedScanner(LIMITS)
        whole = self.outcome(ChunkedScanner(LIMITS), [data])
        self.assertEqual(self.outcome(scanner, list(pieces(data, places))), whole)
        if whole is not None and whole[0]:
            # With the trailer section that goes on in place of the sent one: its framing fields are stripped.
            forwarded, _, _ = feed(ChunkedScanner(LIMITS), [data])
            self.assertEqual(whole[1], content_by_h11(forwarded + b"\r\n"))

    def outcome(self, scanner: Body, parts: list[bytes]) -> tuple[bool, bytes, bytes] | None:
        try:
            _, content, rest = feed(scanner, parts)
        except BodyFault:
            return None
        return scanner.done, content, rest

    def test_faults(self) -> None:
        for data in (
            *(
                b"+5\r\nhello",
                b"-0\r\n",
                b"0x5\r\n",
                b"1_0\r\n",
                b" 5\r\n",
                b"5 \r\n",
                b"\r\n",
                b"g\r\n",
                b"5\n",
                b"5\rX",
            ),
            *(
                b"5;\r\n",
                b"5;a\nb\r\n",
                b"5;a\rb\r\n",
                b'5;a="b\r\n',
                b"5;a=\r\n",
                b"5 ;a\r\n",
                b"5;\x00\r\n",
                b"\xb2\r\n",
            ),
            *(b"3\r\nhello\r\n", b"5\r\nhelloXX", b"5\r\nhello\n", b"5\r\nhello\rX", b"5\r\nhell\r\n0\r\n\r\n"),
            *(b"f" * 17 + b"\r\n", b"8000000000000000\r\n", b"0" * 17 + b"\r\n"),
            *(
                b"0\r\nX : 1\r\n\r\n",
                b"0\r\n X: 1\r\n\r\n",
                b"0\r\nX: 1\n\r\n",
                b"0\r\nX: \x00\r\n\r\n",
                b"0\r\nnothing\r\n\r\n",
            ),
        ):
            for parts in ([data], [data[at : at + 1] for at in range(len(data))]):
                with self.assertRaises(BodyFault, msg=repr(data)):
                    feed(ChunkedScanner(LIMITS), parts)

    def test_faults_never_quote_the_body(self) -> None:
        with self.assertRaises(BodyFault) as caught:
            ChunkedScanner(LIMITS).feed(b"secret\r\n")
        self.assertNotIn("secret", str(caught.exception))

    def test_size_lines_and_trailers_are_bounded_before_they_end(self) -> None:
        limits = HeadLimits(head=100, fields=3)
        for start, endless in ((b"", b"5;" + b"a" * 600), (b"0\r\n", b"X: " + b"a" * 200)):
            for parts in ([start + endless], [start, *(endless[at : at + 1] for at in range(len(endless)))]):
                self.assertRaises(BodyFault, feed, ChunkedScanner(limits), parts)
        self.assertRaises(BodyFault, feed, ChunkedScanner(limits), [b"0\r\n" + b"A:1\r\n" * 4 + b"\r\n"])

    def test_a_long_chunk_is_passed_over_without_being_kept(self) -> None:
        scanner = ChunkedScanner(LIMITS)
        block = bytes(65_536)
        self.assertEqual(scanner.feed(b"40000000\r\n"), 10)
        for _ in range(50):
            self.assertEqual((scanner.feed(block), scanner.used), (65_536, 65_536))
        self.assertFalse(scanner.done)

    def test_small_chunks_are_passed_over_many_at_a_time(self) -> None:
        read: list[int] = []
        scanned = ChunkedScanner._size

        def counted(scanner: ChunkedScanner, data: bytes, at: int) -> int:
            read.append(at)
            return scanned(scanner, data, at)

        self.patch(ChunkedScanner, "_size", counted)
        sizes = [(b"%x", size) for size in range(1, 256)] + [(b"%015X", size) for size in range(1, 256)]
        sizes += [(form, 1 + at % 15) for form in (b"%x;a", b"%x;a=b; c", b'%X;\ta="b c"') for at in range(100)]
        run = b"".join(form % size + b"\r\n" + b"\r" * size + b"\r\n" for form, size in sizes)
        scanner = ChunkedScanner(LIMITS)
        self.assertEqual(scanner.feed(run), len(run))
        self.assertEqual(scanner.feed(run + b"0\r\n"), len(run) + 3)
        self.assertEqual(read, [len(run)])
        scanner.feed(b"\r\n")
        self.assertTrue(scanner.done)

    def test_what_is_forwarded_ends_before_the_trailers(self) -> None:
        scanner = ChunkedScanner(LIMITS)
        data = b"1\r\na\r\n0\r\nX-Sum: 1 \r\n\r\nGET"
        self.assertEqual(scanner.feed(data), 9)
        self.assertEqual(data[scanner.used :], b"GET")
        self.assertEqual(list(scanner.trailers), [(b"X-Sum", b"1")])


def last_chunk_end(sent: Chunked) -> int:
    """Where the last chunk's line ends: the trailer section is as long as its lines and an empty one."""
    at = len(sent.data) - 2
    for _ in sent.trailers:
        at = sent.data.rindex(b"\r\n", 0, at - 2) + 2
    return at


def content_by_h11(data: bytes) -> bytes:
    """The content of a chunked body as h11 reads it."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1_000_000)
    connection.receive_data(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + data)
    connection.next_event()
    content = b""
    while isinstance(event := connection.next_event(), h11.Data):
        content += event.data
    assert isinstance(event, h11.EndOfMessage), event
    return content


class LengthTests(TestCase):
    @given(st.binary(max_size=60), st.binary(max_size=20), cuts(80))
    def test_exactly_the_length_belongs_to_the_body(self, content: bytes, after: bytes, places: list[int]) -> None:
        counter = LengthCounter(len(content))
        forwarded, payload, rest = feed(counter, list(pieces(content + after, places)))
        self.assertEqual((forwarded, payload, rest), (content, content, after))
        self.assertTrue(counter.done)
        counter.finish()

    def test_short_is_a_fault(self) -> None:
        counter = LengthCounter(10)
        self.assertEqual(counter.feed(b"hello"), 5)
        self.assertRaises(BodyFault, counter.finish)


class FactoryTests(TestCase):
    def test_each_framing_has_its_body(self) -> None:
        self.assertTrue(body(Framing.NONE, 0, LIMITS).done)
        self.assertTrue(body(Framing.LENGTH, 0, LIMITS).done)
        self.assertFalse(body(Framing.LENGTH, 1, LIMITS).done)
        self.assertIsInstance(body(Framing.CHUNKED, 0, LIMITS), ChunkedScanner)
        until = body(Framing.CLOSE, 0, LIMITS)
        self.assertIsInstance(until, UntilClose)
        self.assertEqual((until.feed(b"abc"), until.done), (3, False))
        until.finish()
        self.assertTrue(until.done)
