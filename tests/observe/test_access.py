"""The access log tells everything about a request but its secrets."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import cast
from unittest import skipIf
from urllib.parse import quote

import attrs
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.logger import ILogObserver, LogEvent, LogPublisher, formatEvent
from twisted.trial.unittest import TestCase

from sticky.observe.access import BATCH, EVENT, AccessLog, AccessRecord, Keeper, self_contained
from sticky.observe.access_forms import FORMS, Combined, compiled
from sticky.observe.lines import FLUSH_AFTER, LOOK_EVERY, SAY_EVERY, Lines
from sticky.observe.watching import WithRequests
from tests.fakes.routing import TOKEN

SECRET = TOKEN.decode()
WALL = 1_800_000_000.25


def escaped(text: str) -> str:
    """Every byte as a percent escape."""
    return "".join(f"%{byte:02x}" for byte in text.encode())


def record(target: bytes = b"/x?a=1", block: bytes = b"", keeper: Keeper | None = None) -> AccessRecord:
    """A request that was served."""
    return AccessRecord(
        "192.0.2.7", b"GET", target, 200, 0, 128, "sd-1", "ct-1", "game", 0.0, 0.001, 0.2, 0.3, "-", 1, block, keeper
    )


class Written(TestCase):
    """A log into a file, on a clock."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.path = Path(self.mktemp())
        self.lines = Lines(self.path, self.clock)

    def log(self, form: str = "combined") -> AccessLog:
        log = AccessLog("modal", FORMS[form](), self.lines, lambda: WALL)
        self.addCleanup(log.close)
        return log

    def written(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []


class LineTests(Written):
    def test_lines_are_written_a_moment_later_and_together(self) -> None:
        log = self.log()
        log.write(record())
        self.clock.advance(FLUSH_AFTER / 2)
        log.write(record())
        self.assertEqual(self.written(), [])
        self.clock.advance(FLUSH_AFTER / 2)
        self.assertEqual(len(self.written()), 2)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_a_full_batch_does_not_wait(self) -> None:
        log = self.log()
        for _ in range(BATCH):
            log.write(record())
        self.assertEqual(len(self.written()), BATCH)

    def test_closing_writes_what_is_there(self) -> None:
        log = self.log()
        log.write(record())
        log.close()
        self.assertEqual(len(self.written()), 1)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_a_file_that_was_renamed_is_opened_anew(self) -> None:
        log = self.log()
        log.write(record(b"/first"))
        self.clock.advance(FLUSH_AFTER)
        old = self.path.rename(self.path.with_suffix(".1"))
        self.clock.advance(LOOK_EVERY)
        log.write(record(b"/second"))
        self.clock.advance(FLUSH_AFTER)
        self.assertIn("/first", old.read_text())
        (line,) = self.written()
        self.assertIn("/second", line)

    def test_a_log_that_cannot_be_written_is_said_once_a_minute_and_stops_nothing(self) -> None:
        self.lines.path = Path(self.mktemp()) / "missing" / "log"
        log = self.log()
        said: list[LogEvent] = []
        self.lines._log.observer = said.append  # type: ignore[assignment]
        for _ in range(3):
            log.write(record())
            self.clock.advance(FLUSH_AFTER)
        self.assertEqual((len(said), self.lines.dropped), (1, 3))
        self.clock.advance(SAY_EVERY)
        log.write(record())
        self.clock.advance(FLUSH_AFTER)
        self.assertEqual((len(said), log.counts.requests), (2, 4))


class SlowReaderTests(TestCase):
    """A log into a pipe whose reader stops."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.reader, writer = os.pipe()
        self.addCleanup(os.close, self.reader)
        os.set_blocking(self.reader, False)
        self.lines = Lines(None, self.clock)
        self.lines._fd = writer
        self.addCleanup(os.close, writer)
        self.said: list[LogEvent] = []
        self.lines._log.observer = self.said.append  # type: ignore[assignment]
        self.log = AccessLog("modal", FORMS["combined"](), self.lines, lambda: WALL)

    def write(self, batches: int) -> None:
        for _ in range(batches * BATCH):
            self.log.write(record(b"/" + bytes(b"x" * 200)))

    def read(self) -> bytes:
        data = b""
        while True:
            try:
                data += os.read(self.reader, 1 << 20)
            except BlockingIOError:
                return data

    def test_it_never_waits_drops_whole_batches_and_says_so_once_there_is_room(self) -> None:
        self.write(20)  # of about 27 KB each: a pipe holds 64 KiB
        dropped = self.lines.dropped
        self.assertGreater(dropped, 10)
        self.assertEqual((self.said, self.log.counts.requests), ([], 20 * BATCH))
        data = self.read()
        self.write(1)
        data += self.read()
        (event,) = self.said
        self.assertEqual((event["count"], self.lines.dropped), (dropped, dropped))
        lines = data.splitlines(keepends=True)
        self.assertEqual(len(lines), (21 - dropped) * BATCH)
        self.assertEqual({len(line) for line in lines}, {len(lines[0])})  # none is cut

    def test_a_reader_that_stops_again_and_again_is_told_of_once_a_minute(self) -> None:
        for _ in range(3):
            self.write(20)
            self.read()
            self.write(1)
            self.read()
        self.assertEqual(len(self.said), 1)
        self.clock.advance(SAY_EVERY)
        self.write(1)
        self.assertEqual(len(self.said), 2)
        self.assertEqual(sum(event["count"] for event in self.said), self.lines.dropped)

    def test_a_reader_that_is_gone_stops_nothing(self) -> None:
        gone, writer = os.pipe()
        os.close(gone)
        self.addCleanup(os.close, writer)
        self.lines._fd = writer
        self.write(2)
        self.assertEqual((len(self.said), self.lines.dropped), (1, 2))


class FormTests(Written):
    def test_json_has_every_fact(self) -> None:
        log = self.log("json")
        block = b"\r\nReferer: https://game.example/?modal_session_token=" + TOKEN + b'&a=1\r\nUSER-AGENT: c"url\\'
        log.write(record(b'/x?a="\\', block))
        log.close()
        (line,) = self.written()
        self.assertEqual(
            json.loads(line),
            {
                "time": "2027-01-15T08:00:00.250Z", "client": "192.0.2.7", "server": "game", "session": "sd-1",
                "container": "ct-1", "method": "GET", "target": '/x?a="\\', "status": 200, "bytes_in": 0,
                "bytes_out": 128, "queue": 0, "connect": 0.001, "first_byte": 0.2, "total": 0.3, "reason": "-",
                "referer": "https://game.example/?modal_session_token=REDACTED&a=1", "agent": 'c"url\\',
            },
        )  # fmt: skip

    def test_a_token_in_the_methods_place_is_not_written(self) -> None:
        for form in ("json", "combined"):
            log = self.log(form)
            for method in (TOKEN, b"wk-1.ws-2", b"get", b"M-SEARCH", b"PROPFIND"):
                log.write(AccessRecord("", method, b"/", 400))
            log.close()
            text = "".join(self.written())
            self.assertNotIn(TOKEN.decode(), text)
            self.assertNotIn("ws-2", text)
            self.assertIn("M-SEARCH", text)
            self.assertIn("PROPFIND", text)

    def test_json_has_null_for_what_never_happened(self) -> None:
        log = self.log("json")
        log.write(AccessRecord("", b"GET", b"/", 401, reason="no_credential"))
        log.close()
        found = json.loads(self.written()[0])
        self.assertEqual(
            [found[name] for name in ("client", "connect", "first_byte", "agent")], ["-", None, None, None]
        )

    def test_combined_is_what_log_readers_know_with_our_facts_behind(self) -> None:
        log = self.log()
        log.write(record(b'/x"y', b"\r\nUser-Agent: a\tb\r\nReferer: /r"))
        log.close()
        self.assertRegex(
            self.written()[0],
            r'^192\.0\.2\.7 - sd-1 \[\d\d/Jan/2027:\d\d:00:00 [+-]\d{4}\] "GET /x\\x22y HTTP/1\.1" 200 128 "/r" "a\\x09b"'
            r" game ct-1 in=0 queue=0 connect=0\.001000 first=0\.200000 total=0\.300000 -$",
        )

    def test_a_websockets_record_keeps_no_more_than_its_line_needs_and_counts_as_no_answers_time(self) -> None:
        block = b"\r\nCookie: a=1\r\nUser-Agent: curl/8\r\nReferer: http://a/\r\nSec-WebSocket-Key: k"
        kept = self_contained(record(block=block)._replace(status=101, total=3600.0))
        self.assertEqual(kept.block, b"\r\nUser-Agent: curl/8\r\nReferer: http://a/")
        log = self.log()
        log.write(kept)
        log.close()
        (line,) = self.written()
        self.assertIn('"http://a/" "curl/8"', line)
        self.assertIn("total=3600.0", line)
        self.assertEqual((log.counts.by_status, log.counts.seconds, sum(log.counts.by_time)), ({101: 1}, 0.0, 0))

    def test_what_a_connections_requests_share_is_made_once(self) -> None:
        class Fields:
            shown: str | None = None
            block = b"\r\nUser-Agent: one"

        log, fields = self.log(), Fields()
        for _ in range(2):
            log.write(record(b"/", keeper=fields))
            log.close()
        self.assertEqual(fields.shown, '"-" "one"')
        fields.shown = '"-" "kept"'
        log.write(record(b"/", b"\r\nUser-Agent: one", keeper=fields))
        log.close()
        self.assertEqual(
            [line.partition(" 128 ")[2][:12] for line in self.written()], ['"-" "one" ga'] * 2 + ['"-" "kept" g']
        )

    @given(st.binary(max_size=60), st.binary(max_size=60).map(lambda value: value.replace(b"\r", b"")))
    def test_no_bytes_of_a_client_break_a_line(self, target: bytes, agent: bytes) -> None:
        log = AccessLog("modal")
        one = record(target, b"\r\nUser-Agent: " + agent)
        for form in (FORMS["combined"](), FORMS["json"]()):
            line = form.line(WALL, one, log.redacted(target), form.facts(*log.senders_texts(one)))
            self.assertEqual(line.count("\n"), 1)
            self.assertTrue(line.isascii())
        json.loads(line)


ORDINARY = st.text("abtokenTOKEN/?=&%v4.wskls-", max_size=30).map(str.encode)
SECONDS = (
    st.none()
    | st.sampled_from([0.0, 0.0000005, 0.0000015, 1e-7])
    | st.floats(0, 1e9)
    | st.integers(0, 10**10).map(lambda halves: halves / 2e6)
)


@attrs.define
class Kept:
    """A keeper."""

    shown: str | None
    block: bytes = b""


@skipIf(compiled is None, "there is no compiled form here")
class CompiledTests(TestCase):
    def setUp(self) -> None:
        self.form = Combined()
        self.form._compiled = compiled  # whatever the environment says

    def plain(self, one: AccessRecord, facts: str | None, wall: float = WALL) -> str | None:
        """What is made there of one record, the last of a batch of this second."""
        one = one._replace(keeper=Kept(facts))
        return self.form.plain_lines([(wall, one), (WALL, one)])[0]

    @given(
        ORDINARY | st.binary(max_size=40),
        st.tuples(SECONDS, SECONDS, SECONDS),
        st.integers(0, 1 << 40),
        st.text("a\xe9", max_size=3),
    )
    def test_a_line_is_the_same_or_left_to_the_one_in_python(
        self, target: bytes, times: tuple[float | None, ...], size: int, client: str
    ) -> None:
        assert compiled is not None
        one = record(target)._replace(client=client, queue=times[0], connect=times[1], first_byte=times[2])
        one = one._replace(total=times[0] or 0.0, bytes_out=size, minor=size % 2)
        form = self.form
        wanted = form.line(WALL, one, AccessLog("modal").redacted(target), '"-" "agent"')
        self.assertIn(self.plain(one, '"-" "agent"'), (None, wanted))

    def test_lines_of_another_second_or_of_unknown_facts_are_left_to_python(self) -> None:
        self.assertIsNotNone(self.plain(record(), "-", WALL))
        self.assertIsNone(self.plain(record(), "-", WALL - 1))
        self.assertIsNone(self.plain(record(), None))
        self.assertEqual(self.form.plain_lines([(WALL, record())]), [None])
        self.assertEqual(self.form.plain_lines([]), [])

    def test_ordinary_lines_are_made_there_and_none_with_a_secret_or_that_is_too_long(self) -> None:
        self.assertIsNotNone(self.plain(record(b"/a/b.js?v=1&tok=e"), "-"))
        for target in (
            b"/?modal_session_TOKEN=x",
            b"/v4.public.x",
            b"/ws-x",
            b"/%41",
            b'/"',
            b"/\\",
            b"/\x80",
            b"/" * 5000,
        ):
            self.assertIsNone(self.plain(record(target), "-"), target)
        self.assertIsNone(self.plain(record(), "\xe9"))


class SecretTests(TestCase):
    def test_the_repr_of_a_record_hides_target_and_fields(self) -> None:
        self.assertNotIn(SECRET, repr(record(b"/?modal_session_token=" + TOKEN, TOKEN)))

    @given(
        st.sampled_from(
            ["/a?modal_session_token=", "/?x=1&MODAL_session_token=", "/?%6dodal_session_token=", "/a/", "/?t="]
        ),
        st.sampled_from(
            [SECRET, quote(SECRET, safe=""), escaped(SECRET), "ws-0123456789abcdef", escaped("ws-0123456789abcdef")]
        ),
        st.sampled_from(["", "&b=2", "#f"]),
    )
    def test_no_spelling_of_a_token_gets_through(self, before: str, token: str, after: str) -> None:
        shown = AccessLog("modal").redacted((before + token + after).encode())
        self.assertNotIn(token, shown)
        self.assertNotIn(token[4:30], shown)

    def test_the_rest_of_a_target_stays(self) -> None:
        self.assertEqual(
            AccessLog("modal").redacted(b"/a%20b?c=%2F&modal_session_token=x&d"),
            "/a%20b?c=%2F&modal_session_token=REDACTED&d",
        )


class CountTests(TestCase):
    def test_requests_are_counted_without_a_log(self) -> None:
        log = AccessLog("modal")
        log.write(record())
        log.write(AccessRecord("", b"GET", b"/", 401, total=100.0))
        counts = log.counts
        self.assertEqual((counts.requests, counts.bytes_out, counts.by_status), (2, 128, {200: 1, 401: 1}))
        self.assertEqual(sum(counts.by_time), 2)
        self.assertEqual(counts.by_time[-1], 1)


class WatchTests(TestCase):
    def test_an_observer_of_events_sees_requests_as_events_without_secrets(self) -> None:
        log = AccessLog("modal", wall=lambda: WALL)
        publisher = WithRequests(LogPublisher(), log)
        events: list[LogEvent] = []

        def observe(event: LogEvent) -> None:
            events.append(event)

        publisher.addObserver(cast(ILogObserver, observe))
        log.write(record(b"/?modal_session_token=" + TOKEN, b"\r\nReferer: /?modal_session_token=" + TOKEN))
        (event,) = events
        self.assertEqual((event["sticky_event"], event["server"], event["log_time"]), (EVENT, "game", WALL))
        self.assertNotIn("log_failure", event)
        self.assertIn("192.0.2.7 sd-1 ct-1 GET /?modal_session_token=REDACTED 200", formatEvent(event))
        self.assertNotIn(SECRET, repr(event) + str(event["said"]))
        publisher.removeObserver(cast(ILogObserver, observe))
        log.write(record())
        self.assertEqual(len(events), 1)
