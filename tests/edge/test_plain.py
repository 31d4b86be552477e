"""Plain heads read in one go say and become the same as what the reference makes of them."""

from __future__ import annotations

import attrs
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SkipTest, TestCase

from sticky import errors
from sticky.edge import readers
from sticky.edge.credentials import Source, find_credential
from sticky.edge.forwarding import Peer, TrustedProxies
from sticky.edge.grammar import Framing, HeadLimits
from sticky.edge.parsing import find_request_end, find_response_end, parse_request, parse_response
from sticky.edge.plain import PlainHead, PurePlain, Reader
from sticky.edge.wire import Names, container_head
from tests.strategies import damaged, requests

NAMES = Names()
LIMITS = HeadLimits(fields=32, target=300, head=2_000)
PEER = Peer("127.0.0.1", False, TrustedProxies())
TOKEN = b"v4.public.eyJzIjoic2Qtb25lIn0.a2V5LTE"
OURS = b"__Host-modal-session-token=" + TOKEN
# The compiled twin inherits the tests: other executors, and meant to be.
slow = settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.differing_executors],
)

# Lines that could be taken for one another, in every neighbourhood.
LINES = (
    b"Host: game.example:8080", b"host:game.example  ", b"HOST: [::1]:80", b"Cookie: " + OURS, b"cookie:" + OURS + b";",
    b"Cookie: a=1; " + OURS, b"Cookie: a=1;;" + OURS + b" ; b=2", b"Cookie: ;" + OURS + b"; c", b"Cookie: " + OURS + b"; a=1 ",
    b"Cookie: a=b; modal-session-token=x", b"Cookie: theme=dark", b"Cookie:", b"Cookie: " + OURS + b"; " + OURS,
    b"Modal-Authorization: Bearer " + TOKEN, b"modal-authorization:bearer  x y", b"Modal_Authorization: Bearer q",
    b"Modal-Key: wk-1", b"Authorization: Basic abc", b"Authorization: Bearer wk-1.ws-2", b"Authorization: Bearer wkx",
    b"Connection: keep-alive", b"connection: Close ", b"Connection: keep-alive, Foo", b"Connection:", b"Content-Length: 5",
    b"content-length:0 ", b"Content-Length: 05", b"Content_Length: 5", b"Transfer-Encoding: chunked", b"TE: trailers",
    b"Upgrade: websocket", b"Expect: 100-continue", b"X-Forwarded-For: 1.2.3.4", b"X_Forwarded_Host: h", b"Forwarded: for=x",
    b"X-Modal-Server-Session-Id: sd-x", b"Keep-Alive: 5", b"Proxy-Connection: x", b"Accept: */*", b"X-Empty:", b"x-a:\t b \t",
    b"Referer: http://h/?modal_session_token=" + TOKEN, b"Referer: /app", b"User-Agent: curl", b"Sec-WebSocket-Protocol: modal-session",
    b"Teapot: 1", b"Cookies: 1", b"Hostess: 1", b"bad name: x", b"Bare: a\rb", b"NoColon", b" folded: x",
)  # fmt: skip
TARGETS = (
    b"/", b"/a?b=c", b"/a%20b?c=%2F", b"/?modal_session_token=" + TOKEN, b"/?%6dodal_session_token=x", b"/?a%3d=1&b", b"*",
    b"http://game.example:8080/x", b"/" + b"t" * 320, b"/_modal/sessions/start", b'/"\\', b"/#", b"/?a=modal-session",
)  # fmt: skip
METHODS = (b"GET", b"POST", b"HEAD", b"OPTIONS", b"get", b"TRACE", b"PROPFIND")
ANSWERS = (
    b"Content-Length: 5", b"content-length:0 ", b"Content-Length: 007", b"Content_Length: 3", b"Transfer-Encoding: chunked",
    b"Connection: keep-alive", b"Keep-Alive: x", b"Content-Type: text/html", b"Set-Cookie: a=b", b"X: \xff", b"Bad: \x01", b"Ted: 1",
)  # fmt: skip


def heads() -> st.SearchStrategy[bytes]:
    """Heads of which many are plain and the rest nearly so."""
    return st.builds(
        lambda method, target, version, lines: b"\r\n".join(
            (method + b" " + target + b" HTTP/1." + version, *lines, b"", b"")
        ),
        st.sampled_from(METHODS),
        st.sampled_from(TARGETS),
        st.sampled_from((b"1", b"1", b"1", b"0")),
        st.one_of(
            st.lists(st.sampled_from(LINES), max_size=7),
            st.permutations(LINES[:1] + (b"Accept: */*", b"User-Agent: curl", b"Referer: /app", LINES[5], LINES[20])),
        ),
    )


class RequestTests(TestCase):
    """For `reader`, which a compiled twin takes the place of."""

    def reader(self, names: Names = NAMES, limits: HeadLimits = LIMITS) -> Reader:
        return PurePlain(names, limits)

    def check(self, buffer: bytes) -> PlainHead | None:
        found = self.reader().request(buffer, None)
        if found is None:
            return None
        head, end = found
        again = self.reader().request(b"GET /other HTTP/1.1" + head.plain.tail, head.plain)
        assert again is not None
        self.assertIs(again[0].plain, head.plain)
        self.assertEqual(find_request_end(buffer, 0, LIMITS), end)
        reference = parse_request(buffer[:end], LIMITS)
        for field in attrs.fields(type(reference)):
            self.assertEqual(getattr(head, field.name), getattr(reference, field.name), field.name)
        self.assertEqual(head.plain.credential, find_credential(reference, NAMES))
        for peer in (
            PEER,
            Peer("10.0.0.1", True, TrustedProxies(unix=True)),
            Peer("", False, TrustedProxies(unix=True)),
        ):
            expected = container_head(reference, NAMES, peer, b"sd-1")
            added = b"\r\n" + NAMES.session_id + b": sd-1" + peer.facts(head) + b"\r\n\r\n"
            self.assertEqual(head.line + head.plain.outgoing + added, expected)
        return head

    @given(heads(), st.sampled_from((b"", b"GET / HTTP/1.1\r\n", b"body")))
    @slow
    def test_what_is_plain_is_what_the_reference_says(self, head: bytes, rest: bytes) -> None:
        self.check(head + rest)

    @given(requests())
    @slow
    def test_so_are_requests_of_all_kinds(self, sent: object) -> None:
        self.check(sent.data)  # type: ignore[attr-defined]

    @given(damaged(heads()))
    @slow
    def test_so_is_what_is_damaged(self, data: bytes) -> None:
        self.check(data)

    @given(heads())
    @slow
    @example(b"GET / HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n")
    def test_what_the_reference_refuses_is_not_plain(self, head: bytes) -> None:
        try:
            parse_request(head, LIMITS)
        except errors.Refusal:
            self.assertIsNone(self.reader().request(head, None))

    def test_a_browsers_request_is_plain(self) -> None:
        head = self.check(
            b"GET /a?b=1 HTTP/1.1\r\nHost: game.example\r\nUser-Agent: Mozilla/5.0\r\nAccept: text/html\r\n"
            b"Connection: keep-alive\r\nCookie: theme=dark; " + OURS + b"; lang=en\r\nReferer: /app\r\n\r\n"
        )
        assert head is not None and head.plain.credential is not None
        self.assertEqual((head.plain.credential.source, head.plain.credential.token), (Source.COOKIE, TOKEN))
        self.assertEqual(
            head.plain.outgoing,
            b"\r\nHost: game.example\r\nUser-Agent: Mozilla/5.0\r\nAccept: text/html\r\n"
            b"Cookie: theme=dark; lang=en\r\nReferer: /app",
        )

    def test_so_is_a_programs_with_a_header_and_a_body(self) -> None:
        head = self.check(
            b"POST / HTTP/1.1\r\nmodal-authorization: bearer " + TOKEN + b"\r\nhost: h\r\ncontent-length: 3\r\n\r\nabc"
        )
        assert head is not None and head.plain.credential is not None
        self.assertEqual((head.plain.credential.source, head.framing, head.length), (Source.HEADER, Framing.LENGTH, 3))
        self.assertNotIn(TOKEN, head.plain.outgoing)

    def test_another_brand_has_other_names(self) -> None:
        names = Names("sticky")
        found = self.reader(names).request(
            b"GET / HTTP/1.1\r\nHost: h\r\nCookie: __Host-sticky-session-token=t\r\n\r\n", None
        )
        assert found is not None and found[0].plain.credential is not None
        self.assertEqual((found[0].plain.credential.token, found[0].plain.outgoing), (b"t", b"\r\nHost: h"))
        self.assertIsNone(self.reader(names).request(b"GET / HTTP/1.1\r\nHost: h\r\nSticky-Key: wk-1\r\n\r\n", None))

    def test_every_limit_is_left_to_the_reference(self) -> None:
        limits = HeadLimits(target=20, head=4_000, fields=8)
        for data in (
            b"GET /" + b"x" * 20 + b" HTTP/1.1\r\nHost: h\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: h\r\n" + b"a: b\r\n" * 8 + b"\r\n",
            b"GET / HTTP/1.1\r\nHost: h\r\nA: " + b"x" * 4_000 + b"\r\n\r\n",
        ):
            self.assertIsNone(self.reader(limits=limits).request(data, None))
        self.assertIsNotNone(
            self.reader(limits=limits).request(b"GET / HTTP/1.1\r\nHost: h\r\n" + b"a: b\r\n" * 7 + b"\r\n", None)
        )

    def test_half_a_head_is_not_plain(self) -> None:
        whole = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
        for size in range(len(whole)):
            self.assertIsNone(self.reader().request(whole[:size], None))


class CompiledRequestTests(RequestTests):
    """The compiled twin, where there is one."""

    def setUp(self) -> None:
        if readers.compiled is None:
            raise SkipTest("the compiled reader is not built")

    def reader(self, names: Names = NAMES, limits: HeadLimits = LIMITS) -> Reader:
        assert readers.compiled is not None
        return readers.compiled(names, limits)

    @given(st.one_of(heads(), damaged(heads())), st.sampled_from((b"", b"GET / HTTP/1.1\r\n", b"body")))
    @slow
    def test_both_find_the_same_heads_plain(self, head: bytes, rest: bytes) -> None:
        ours, pure = self.reader().request(head + rest, None), PurePlain(NAMES, LIMITS).request(head + rest, None)
        self.assertEqual(ours, pure)
        if ours is not None and pure is not None:
            self.assertEqual(attrs.asdict(ours[0].plain), attrs.asdict(pure[0].plain))


class AnswerTests(TestCase):
    """The same for containers' answers."""

    def reader(self, limits: HeadLimits = LIMITS) -> Reader:
        return PurePlain(NAMES, limits)

    @given(
        st.sampled_from(
            (b"200 OK", b"204 No Content", b"205 R", b"304 N", b"101 S", b"404 ", b"503", b"999 ?", b"20 x")
        ),
        st.sampled_from((b"1", b"1", b"0")),
        st.lists(st.sampled_from(ANSWERS), max_size=5),
        st.sampled_from((b"", b"hello")),
    )
    @slow
    def test_what_is_plain_is_clean_and_has_a_length(
        self, code: bytes, version: bytes, lines: list[bytes], rest: bytes
    ) -> None:
        buffer = b"\r\n".join((b"HTTP/1." + version + b" " + code, *lines, b"", b"")) + rest
        found = self.reader().answer(buffer)
        if found is None:
            return
        status, end, length = found
        self.assertEqual(find_response_end(buffer, 0, LIMITS), end)
        head = parse_response(buffer[:end], b"GET", LIMITS)
        self.assertEqual((head.status, head.length, head.framing), (status, length, Framing.LENGTH))
        self.assertTrue(head.clean and head.keep_alive and not head.connection)

    @given(
        st.sampled_from((b"200 OK", b"200 ", b"200", b"500 \xff", b"299 a\tb", b"204 x", b"100 x")),
        st.lists(st.sampled_from(ANSWERS), max_size=4),
        st.lists(st.tuples(st.integers(0, 150), st.sampled_from(b" \t\r\n:_09aC\x00\xff")), max_size=2),
    )
    @slow
    def test_every_reader_finds_the_same_answers_plain(
        self, status: bytes, lines: list[bytes], damage: list[tuple[int, int]]
    ) -> None:
        data = bytearray(b"\r\n".join((b"HTTP/1.1 " + status, *lines, b"Content-Length: 2", b"", b"ok")))
        for at, byte in damage:
            data[at % len(data)] = byte
        self.assertEqual(self.reader().answer(bytes(data)), PurePlain(NAMES, LIMITS).answer(bytes(data)))

    def test_a_common_answer_is_plain(self) -> None:
        head = b"HTTP/1.1 200 OK\r\nServer: x\r\nContent-Type: text/html\r\nContent-Length: 12\r\n\r\n"
        found = self.reader().answer(head + b"Hello world!")
        self.assertEqual(found, (200, len(head), 12))

    def test_limits_are_left_to_the_reference(self) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + b"a: b\r\n" * 40 + b"\r\n"
        self.assertIsNone(self.reader().answer(head))
        self.assertIsNotNone(self.reader(HeadLimits()).answer(head))


class CompiledAnswerTests(AnswerTests):
    """The compiled twin, where there is one."""

    def setUp(self) -> None:
        if readers.compiled is None:
            raise SkipTest("the compiled reader is not built")

    def reader(self, limits: HeadLimits = LIMITS) -> Reader:
        assert readers.compiled is not None
        return readers.compiled(NAMES, limits)
