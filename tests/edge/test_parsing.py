"""Heads: what a valid one says, in which class each fault is, and that faults show as early as they can."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import TestCase

from sticky import errors
from sticky.edge.parsing import (
    Framing,
    HeadLimits,
    find_request_end,
    find_response_end,
    has_begun,
    parse_request,
    parse_response,
)

LIMITS = HeadLimits()
KEY = b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
HANDSHAKE = b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n" + KEY


def head(line: bytes = b"GET / HTTP/1.1", fields: bytes = b"") -> bytes:
    return line + b"\r\nHost: a.example\r\n" + fields + b"\r\n"


class RequestTests(TestCase):
    def refused(self, data: bytes, kind: type[errors.Refusal], limits: HeadLimits = LIMITS) -> errors.Refusal:
        refusal = self.assertRaises(kind, parse_request, data, limits)
        self.assertIs(type(refusal), kind)
        assert isinstance(refusal, errors.Refusal)
        return refusal

    def test_what_a_head_says(self) -> None:
        request = parse_request(head(b"POST /p?q=1 HTTP/1.1", b"content-LENGTH: 12 \r\nX-A: \t1 \r\n"), LIMITS)
        self.assertEqual((request.method, request.target, request.minor), (b"POST", b"/p?q=1", 1))
        self.assertEqual((request.path, request.query, request.host), (b"/p", b"q=1", b"a.example"))
        self.assertEqual((request.framing, request.length), (Framing.LENGTH, 12))
        self.assertTrue(request.keep_alive)
        self.assertFalse(request.websocket or request.expects_continue or request.wants_trailers)
        self.assertEqual(request.fields, [(b"Host", b"a.example"), (b"content-LENGTH", b"12"), (b"X-A", b"1")])
        self.assertEqual((request.value(b"x-a"), request.value(b"x-b")), (b"1", None))

    def test_who_keeps_the_connection(self) -> None:
        for version, connection, keeps in (
            (b"1.1", b"", True),
            (b"1.1", b"Connection: close\r\n", False),
            (b"1.1", b"Connection: keep-alive\r\nConnection: x, Close\r\n", False),
            (b"1.0", b"", False),
            (b"1.0", b"Connection: Keep-Alive\r\n", True),
            (b"1.0", b"Connection: keep-alive\r\n", True),
            (b"1.0", b"Connection: keep-alive, close\r\n", False),
        ):
            request = parse_request(head(b"GET / HTTP/" + version, connection), LIMITS)
            self.assertEqual(request.keep_alive, keeps, (version, connection))

    def test_fields_named_by_connection(self) -> None:
        request = parse_request(head(fields=b"Connection: , X-A,,keep-alive\r\nConnection: x-b , Upgrade\r\n"), LIMITS)
        self.assertEqual(request.connection, (b"x-a", b"x-b"))

    def test_http_1_0_knows_no_expectation_and_needs_no_host(self) -> None:
        request = parse_request(b"PUT /x HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n", LIMITS)
        self.assertEqual((request.host, request.expects_continue, request.minor), (b"", False, 0))
        self.assertTrue(parse_request(head(fields=b"Expect: 100-Continue\r\n"), LIMITS).expects_continue)

    def test_absolute_targets_become_origin_form(self) -> None:
        for method, target, origin in (
            (b"GET", b"http://A.example/x?y", b"/x?y"),
            (b"GET", b"HTTPS://a.example", b"/"),
            (b"GET", b"http://a.example?q", b"/?q"),
            (b"OPTIONS", b"http://a.example", b"*"),
            (b"OPTIONS", b"*", b"*"),
        ):
            self.assertEqual(parse_request(head(method + b" " + target + b" HTTP/1.1"), LIMITS).target, origin)
        self.assertEqual(parse_request(b"GET http://b.example/x HTTP/1.0\r\n\r\n", LIMITS).host, b"b.example")
        for target in (
            b"http://a.example:80/",
            b"http://u@a.example/",
            b"ftp://a.example/",
            b"*",
            b"a.example",
            b"http:///x",
        ):
            self.refused(head(b"GET " + target + b" HTTP/1.1"), errors.BadHead)

    def test_classes_of_faults(self) -> None:
        self.refused(head(b"CONNECT a.example:443 HTTP/1.1"), errors.MethodNotAllowed)
        refusal = self.refused(head(b"TRACE / HTTP/1.1"), errors.MethodNotAllowed)
        assert isinstance(refusal, errors.MethodNotAllowed)
        self.assertIn("GET", refusal.allowed)
        self.assertNotIn("TRACE", refusal.allowed)
        self.refused(head(b"GET / HTTP/2.0"), errors.VersionNotSupported)
        self.refused(head(b"GET / HTTP/1.2"), errors.VersionNotSupported)
        self.refused(head(fields=b"Transfer-Encoding: gzip\r\n"), errors.UnknownCoding)
        self.refused(head(fields=b"Expect: other\r\n"), errors.UnknownExpectation)
        self.refused(head(b"GET /" + b"a" * 20_000 + b" HTTP/1.1"), errors.TargetTooLong)
        self.refused(head(fields=b"A:1\r\n" * 257), errors.HeadTooLarge)
        self.refused(head(fields=b"A: " + b"1" * 70_000 + b"\r\n"), errors.HeadTooLarge)
        for fields in (
            *(
                b"Content-Length: 05\r\n",
                b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
                b"Host: b\r\n",
                b"A : 1\r\n",
            ),
            *(b"A: 1\r\n 2\r\n", b"A: \x0b\r\n", b"A\r\n", b"Content-Length: 1\r\ncontent-length: 1\r\n"),
        ):
            self.refused(head(fields=fields), errors.BadHead)

    def test_limits_are_met_exactly(self) -> None:
        limits = HeadLimits(target=10, head=60, fields=3)
        parse_request(head(b"GET /234567 HTTP/1.1"), limits)
        self.refused(head(b"GET /2345678 HTTP/1.1"), errors.TargetTooLong, limits)
        parse_request(head(fields=b"A:1\r\nA:1\r\n"), limits)
        self.refused(head(fields=b"A:1\r\nA:1\r\nA:1\r\n"), errors.HeadTooLarge, limits)
        room = 60 - len(head(fields=b"A:\r\n"))
        parse_request(head(fields=b"A:" + b"1" * room + b"\r\n"), limits)
        self.refused(head(fields=b"A:" + b"1" * (room + 1) + b"\r\n"), errors.HeadTooLarge, limits)


class HandshakeTests(TestCase):
    def test_a_handshake_is_recognised(self) -> None:
        for fields in (
            HANDSHAKE,
            HANDSHAKE.replace(b"websocket", b"WebSocket").replace(b"n: Upgrade", b"n: keep-alive, upgrade"),
            HANDSHAKE.replace(b"websocket", b"h2c, websocket"),
        ):
            self.assertTrue(parse_request(head(fields=fields), LIMITS).websocket, fields)

    def test_what_is_no_handshake_is_an_ordinary_request(self) -> None:
        for line, fields in (
            (b"POST / HTTP/1.1", HANDSHAKE),
            (b"GET / HTTP/1.0", HANDSHAKE),
            (b"GET / HTTP/1.1", HANDSHAKE.replace(b"Connection: Upgrade", b"Connection: close")),
            (b"GET / HTTP/1.1", HANDSHAKE.replace(b"websocket", b"h2c")),
        ):
            self.assertFalse(parse_request(head(line, fields), LIMITS).websocket, fields)

    def test_faulty_handshakes(self) -> None:
        for fields, kind in (
            (HANDSHAKE.replace(b"13", b"8"), errors.UpgradeRequired),
            (HANDSHAKE.replace(b"Sec-WebSocket-Version: 13\r\n", b""), errors.UpgradeRequired),
            (HANDSHAKE.replace(KEY, b""), errors.BadHead),
            (HANDSHAKE + KEY, errors.BadHead),
            (HANDSHAKE.replace(b"ZQ==", b"Z==="), errors.BadHead),
            (HANDSHAKE + b"Content-Length: 1\r\n", errors.BadHead),
        ):
            self.assertRaises(kind, parse_request, head(fields=fields), LIMITS)


class UnfinishedTests(TestCase):
    def test_faults_show_at_the_byte_that_makes_them(self) -> None:
        for good, bad in (
            (b"GET / HTTP/1.1\r\nA: 1", b"\n"),
            (b"GET / HTTP/1.1\r", b"X"),
            (b"GET / HTTP/1.1\r\nA: 1\r", b"X"),
            (b"GET / HTTP/1.1\r\nA: ", b"\x00"),
            (b"GET", b"("),
            (b"GET ", b" "),
            (b"GET /", b"#"),
            (b"GET /x", b"\r"),
            (b"GET /x ", b"h"),
            (b"GET / HTTP/1.1\r\nA : 1\r", b"\n"),
            (b"GET / HTTP/1.1\r\nA: 1\r\n b: 2\r", b"\n"),
            (b"\r\n", b"\r"),
            (b"PRI * HTTP/2.0\r", b"\n"),
            (b"", b"\x16"),
        ):
            self.assertEqual(find_request_end(good, 0, LIMITS), -1, good)
            for searched in (0, len(good)):
                self.assertRaises(errors.Refusal, find_request_end, good + bad, searched, LIMITS)

    def test_limits_hold_before_the_end_of_the_head(self) -> None:
        limits = HeadLimits(target=20, head=100, fields=3)
        for data, kind in (
            (b"GET /" + b"a" * 40, errors.TargetTooLong),
            (b"GET / HTTP/1.1\r\nA: " + b"a" * 100, errors.HeadTooLarge),
            (b"GET / HTTP/1.1\r\n" + b"A:1\r\n" * 6, errors.HeadTooLarge),
        ):
            self.assertRaises(kind, find_request_end, data, 0, limits)

    def test_one_stray_crlf_is_no_beginning(self) -> None:
        for data in (b"", b"\r", b"\r\n"):
            self.assertFalse(has_begun(data))
            self.assertEqual(find_request_end(data, 0, LIMITS), -1)
        for data in (b"G", b"\n", b"\r\nG", b"\r\n\r"):
            self.assertTrue(has_begun(data))
        self.assertEqual(parse_request(b"\r\n" + head(), LIMITS).method, b"GET")
        self.assertRaises(errors.BadHead, parse_request, b"\r\n\r\n", LIMITS)


class ResponseTests(TestCase):
    def test_framing_follows_status_method_and_fields(self) -> None:
        length = b"Content-Length: 5\r\n"
        chunked = b"Transfer-Encoding: chunked\r\n"
        for method, status, fields, framing in (
            (b"GET", b"200", length, Framing.LENGTH),
            (b"GET", b"200", chunked, Framing.CHUNKED),
            (b"GET", b"200", b"", Framing.CLOSE),
            (b"GET", b"205", b"Content-Length: 0\r\n", Framing.LENGTH),
            (b"HEAD", b"200", length, Framing.NONE),
            (b"HEAD", b"200", chunked, Framing.NONE),
            (b"GET", b"204", length, Framing.NONE),
            (b"GET", b"304", length, Framing.NONE),
            (b"GET", b"103", b"", Framing.NONE),
            (b"GET", b"999", length, Framing.LENGTH),
        ):
            response = parse_response(b"HTTP/1.1 " + status + b" X\r\n" + fields + b"\r\n", method)
            self.assertEqual((response.framing, response.status), (framing, int(status)))
            # What comes after a 204 that announces a body may be that body, and nobody can tell.
            self.assertEqual(response.keep_alive, framing is not Framing.CLOSE and status != b"204")

    def test_who_keeps_the_connection(self) -> None:
        for version, connection, keeps in (
            (b"1", b"close", False),
            (b"1", b"keep-alive", True),
            (b"0", b"keep-alive", True),
            (b"0", b"x", False),
        ):
            head = b"HTTP/1." + version + b" 200 OK\r\nContent-Length: 0\r\nConnection: " + connection + b"\r\n\r\n"
            self.assertEqual(parse_response(head, b"GET").keep_alive, keeps)

    def test_a_101_is_taken_only_where_it_was_asked_for(self) -> None:
        head = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
        self.assertRaises(errors.BadGateway, parse_response, head, b"GET")
        response = parse_response(head, b"GET", upgrading=True)
        self.assertEqual((response.status, response.informational), (101, False))

    def test_faults_are_bad_gateways_however_early(self) -> None:
        for data in (
            b"SSH-2.0",
            b"HTTP/2",
            b"HTTP/1.1 0",
            b"HTTP/1.1 200 OK\n",
            b"\r\n",
            b"HTTP/1.1 200 OK\r\nA : 1\r\n",
        ):
            self.assertRaises(errors.BadGateway, find_response_end, data, 0, LIMITS)
        for fields in (b"Transfer-Encoding: chunked, chunked\r\n", b"Content-Length: 1,1\r\n", b"A\r\n"):
            self.assertRaises(errors.BadGateway, parse_response, b"HTTP/1.1 200 OK\r\n" + fields + b"\r\n", b"GET")
        self.assertRaises(
            errors.BadGateway, parse_response, b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"GET"
        )

    @given(st.binary(max_size=60), st.integers(0, 60))
    def test_arbitrary_bytes_raise_only_bad_gateways(self, tail: bytes, keep: int) -> None:
        data = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n"[:keep] + tail
        try:
            end = find_response_end(data, 0, LIMITS)
            self.assertTrue(end == -1 or data[:end].endswith(b"\r\n\r\n"))
            if end > 0:
                self.assertEqual(parse_response(data[:end], b"GET").raw, data[:end])
        except errors.BadGateway:
            pass
