"""Plain heads, which nearly all are, read and made ready to be passed on in one go: half the cost of reading them piece by piece.

What is plain here is exactly what `parsing`, `credentials` and `wire` make of it; everything else, every fault included, is
"not plain" and left to them. They are the reference: property tests hold these readers, and their compiled twin, to them.
"""

from __future__ import annotations

import re
from typing import Protocol

import attrs

from sticky.edge.credentials import Credential, Source
from sticky.edge.grammar import FIELDS, HOST, LENGTH, Framing, HeadLimits
from sticky.edge.parsing import RequestHead
from sticky.edge.wire import Names, strip_query_token
from sticky.isticky import NO_SESSION


@attrs.define(eq=False, repr=False)
class PlainFields:
    """The field lines of a plain request: all of it but method and target, and all that is made of them.

    A client's next request often has the same ones: a connection keeps its last, so that they need not be read again.
    """

    tail: bytes  #: as they came, CRLF in front, the empty line behind
    block: bytes  #: without that line
    host: bytes
    framing: Framing
    length: int
    keep_alive: bool
    credential: Credential | None  #: in a header or in the secure cookie
    outgoing: bytes  #: for the container: without credential and hop-by-hop fields
    session: str = ""  #: whose `ready` it is
    ready: bytes = b""  #: all that follows the request line to the container, for that session
    shown: str | None = None  #: for whoever logs: what is made of referrer and agent there

    def get_ready(self, name: bytes, session: str, facts: bytes) -> None:
        """Make what goes to the container for this session, whose id goes under that name, before the client's facts."""
        named = b"" if session == NO_SESSION else b"".join((b"\r\n", name, b": ", session.encode("ascii")))
        self.ready = b"".join((self.outgoing, named, facts, b"\r\n\r\n"))
        self.session = session


class PlainHead(RequestHead):
    """A plain request's head. One is made for each request, so what its fields say stays where it has been found out.

    The compiled reader fills the same slots without calling `__init__`.
    """

    __slots__ = ("line", "plain")

    minor = 1
    expects_continue = websocket = wants_trailers = False
    connection = ()

    def __init__(self, method: bytes, target: bytes, line: bytes, plain: PlainFields) -> None:
        self.method = method
        self.target = target
        self.line = line  #: the request line, without its end
        self.plain = plain

    @property
    def host(self) -> bytes:  # type: ignore[override]  # as all of these: never written
        return self.plain.host

    @property
    def framing(self) -> Framing:  # type: ignore[override]
        return self.plain.framing

    @property
    def length(self) -> int:  # type: ignore[override]
        return self.plain.length

    @property
    def keep_alive(self) -> bool:  # type: ignore[override]
        return self.plain.keep_alive

    @property
    def block(self) -> bytes:  # type: ignore[override]
        return self.plain.block


#: A response's head that may go to an HTTP/1.1 client as it is: its status, where it ends, the length of its body.
PlainAnswer = tuple[int, int, int]


class Reader(Protocol):
    """Reads what is plain. One for an edge; it remembers nothing but how names are spelled."""

    def request(self, buffer: bytes, last: PlainFields | None) -> tuple[PlainHead, int] | None:
        """The head that the buffer begins with and its size; None: not plain, or not complete.

        `last`: the fields of the connection's last plain request.
        """

    def answer(self, buffer: bytes) -> PlainAnswer | None:
        """The head that the buffer begins with; None: not plain, not complete, or not of a body of known length."""


# What a field's name means to a plain request. 0 is a field that passes.
_HOST, _COOKIE, _CONNECTION, _LENGTH, _BEARER, _AUTHORIZATION, _ODD = range(1, 8)

# Framing, hop-by-hop fields, and what proxies and handshakes say: rarely there, and then for the reference.
_ODD_NAMES = frozenset(
    {b"expect", b"forwarded", b"http2-settings", b"keep-alive", b"te", b"transfer-encoding", b"upgrade"}
)
_ODD_PREFIXES = (b"proxy-", b"sec-websocket-", b"x-forwarded-")
_KNOWN_NAMES = 4096  #: spellings of names remembered

_LINE = re.compile(rb"(GET|POST|HEAD|PUT|PATCH|DELETE|OPTIONS) (/[!\"$-~]*+) HTTP/1\.1")
_FIELDS = re.compile(FIELDS + rb"\r\n\r\n")
_PLAIN_TOKEN = re.compile(rb"[!#-:<-~]*")
_PROXY_BEARER = re.compile(rb"[ \t]*bearer[ \t]+wk-", re.IGNORECASE)


class Meanings(dict[bytes, int]):
    """The meaning of every spelling of a field's name."""

    def __init__(self, names: Names) -> None:
        self._plain = {
            b"host": _HOST,
            b"cookie": _COOKIE,
            b"connection": _CONNECTION,
            b"content-length": _LENGTH,
            names.authorization: _BEARER,
            b"authorization": _AUTHORIZATION,
        }
        self._odd = _ODD_NAMES | {*self._plain, names.key, names.secret}
        self._odd_prefixes = (*_ODD_PREFIXES, names.server_prefix)

    def __missing__(self, name: bytes) -> int:
        lower = name.lower()
        meaning = self._plain.get(lower)
        if meaning is None:
            lower = lower.replace(b"_", b"-")
            meaning = _ODD if lower in self._odd or lower.startswith(self._odd_prefixes) else 0
        if len(self) >= _KNOWN_NAMES:
            self.clear()
        self[name] = meaning
        return meaning


# 204, 205, 304 and 1xx have rules of their own.
_ANSWER = re.compile(
    rb"HTTP/1\.1 (2(?!0[45])[0-9]{2}|3(?!04)[0-9]{2}|[4-9][0-9]{2}) [\t -~\x80-\xff]*+(" + FIELDS + rb")\r\n\r\n"
)


def _any_case(name: bytes) -> bytes:
    # As sets, not by IGNORECASE, under which no search skips to the next CRLF.
    return b"".join(b"[%c%c]" % (letter - 32, letter) if 97 <= letter <= 122 else b"%c" % letter for letter in name)


_ANSWER_ODD = (b"transfer-encoding", b"connection", b"keep-alive", b"proxy-connection", b"upgrade", b"te")
_ANSWER_FIELD = re.compile(
    rb"\r\n(?:"
    + _any_case(b"content-length")
    + rb":[ \t]*+([^\r]*)|("
    + b"|".join(map(_any_case, _ANSWER_ODD))
    + rb"):)"
)


class PurePlain:
    """The reader in Python: one regular expression for the grammar, one look at each field's name."""

    def __init__(self, names: Names, limits: HeadLimits) -> None:
        self._names = names
        self._limits = limits
        self._meanings = Meanings(names)
        self._subprotocol = names.subprotocol
        self._query = names.query
        self._cookie = names.cookie + b"="
        self._cookie_name = names.insecure_cookie

    def request(self, buffer: bytes, last: PlainFields | None) -> tuple[PlainHead, int] | None:
        """See `Reader`."""
        at = buffer.find(b"\r\n")
        if last is not None and buffer.startswith(last.tail, at):
            fields: PlainFields | None = last
            end = at + len(last.tail)
        else:
            end = buffer.find(b"\r\n\r\n", at) + 4
            fields = self._fields(buffer[at:end]) if at >= 0 and end > 3 else None
        match = _LINE.fullmatch(buffer, 0, at)
        if fields is None or match is None:
            return None
        method, target = match.groups()
        limits = self._limits
        if (
            end > limits.head
            or at > limits.target + 10
            or target.find(self._query) >= 0  # `in` would first ask whether it is a number, and make an error of that
            or (b"%" in target and b"?" in target and strip_query_token(target, self._names) != target)
        ):
            return None
        return PlainHead(method, target, buffer[:at], fields), end

    def _fields(self, tail: bytes) -> PlainFields | None:
        if _FIELDS.fullmatch(tail) is None:
            return None
        block = tail[:-4]
        lines = block.split(b"\r\n")
        if len(lines) - 1 > self._limits.fields:
            return None
        host = token = bearer = connection = length = None
        dropped: list[int] = []
        meanings = self._meanings
        for nth, line in enumerate(lines):
            colon = line.find(b":")
            meaning = meanings[line[:colon]]
            if not meaning:
                continue
            value = line[colon + 1 :].strip(b" \t")
            if meaning == _HOST and host is None:
                if HOST.fullmatch(value) is None:
                    return None
                host = value
            elif meaning == _COOKIE:
                if self._cookie_name in value:
                    if token is not None:
                        return None
                    found = self._own_cookie(value)
                    if found is None:
                        return None
                    token, kept = found
                    if kept:
                        lines[nth] = line[: colon + 1] + b" " + kept
                    else:
                        dropped.append(nth)
            elif meaning == _CONNECTION and connection is None:
                connection = value.lower()
                if connection != b"keep-alive" and connection != b"close":
                    return None
                dropped.append(nth)
            elif meaning == _LENGTH and length is None:
                if LENGTH.fullmatch(value) is None:
                    return None
                length = value
            elif meaning == _BEARER and bearer is None:
                bearer = value[7:].lstrip(b" ")
                if value[:7].lower() != b"bearer " or _PLAIN_TOKEN.fullmatch(bearer) is None:
                    return None
                dropped.append(nth)
            elif meaning != _AUTHORIZATION or _PROXY_BEARER.match(value) is not None:
                return None
        if host is None:
            return None
        for nth in reversed(dropped):
            del lines[nth]
        outgoing = b"\r\n".join(lines)
        if self._subprotocol in outgoing or self._query in outgoing:
            return None
        credential: Credential | None = None
        if bearer is not None:
            credential = Credential(Source.HEADER, bearer)
        elif token is not None:
            credential = Credential(Source.COOKIE, token)
        return PlainFields(
            tail,
            block,
            host,
            Framing.NONE if length is None else Framing.LENGTH,
            0 if length is None else int(length),
            connection != b"close",
            credential,
            outgoing,
        )

    def _own_cookie(self, value: bytes) -> tuple[bytes, bytes] | None:
        """Our token in a Cookie's value, and the value without it."""
        before, found, after = value.partition(self._cookie)
        if not found or (before and before.rstrip(b" \t")[-1:] != b";") or self._cookie_name in before:
            return None
        token, semicolon, rest = after.partition(b";")
        token = token.rstrip(b" \t")
        if _PLAIN_TOKEN.fullmatch(token) is None:
            return None
        kept = before.rstrip(b" \t")[:-1] + semicolon + rest if before else rest
        return token, kept.strip(b" \t")

    def answer(self, buffer: bytes) -> PlainAnswer | None:
        """See `Reader`."""
        match = _ANSWER.match(buffer)
        if match is None:
            return None
        status, block = match.groups()
        end = match.end()
        limits = self._limits
        if end > limits.head or (end > 4 * limits.fields and block.count(b"\n") > limits.fields):
            return None
        found = _ANSWER_FIELD.findall(block)
        if len(found) != 1:
            return None
        length, odd = found[0]
        if odd or LENGTH.fullmatch(length) is None:
            return None
        return int(status), end, int(length)
