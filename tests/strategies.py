"""The catalogue of generators. HTTP: messages built from their meaning, so that a test knows what they say without parsing.

Nothing here comes from the code under test, the names on the wire are written out.
"""

from __future__ import annotations

from typing import TypeVar

import attrs
from hypothesis import strategies as st

T = TypeVar("T")
Lines = list[tuple[bytes, bytes]]

TOKEN_CHARACTERS = b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
TARGET_CHARACTERS = bytes(byte for byte in range(0x21, 0x7F) if byte != 0x23)
VALUE_CHARACTERS = bytes([0x09, *range(0x20, 0x7F), *range(0x80, 0x100)])


def octets(alphabet: bytes, min_size: int = 0, max_size: int = 12) -> st.SearchStrategy[bytes]:
    """Bytes of an alphabet."""
    text = st.text(alphabet.decode("latin-1"), min_size=min_size, max_size=max_size)
    return text.map(lambda characters: characters.encode("latin-1"))


def cuts(size: int = 2_000) -> st.SearchStrategy[list[int]]:
    """Places at which to cut what a peer sends."""
    return st.lists(st.integers(0, size), max_size=12)


tokens = octets(TOKEN_CHARACTERS, 1)
values = octets(VALUE_CHARACTERS, 0, 20).map(lambda value: value.strip(b" \t"))
white_space = octets(b" \t", 0, 2)
session_tokens = octets(b"ABCDEFabcdef0123456789-_.", 24, 40).map(lambda text: b"v4.public." + text)


def spellings(name: bytes) -> st.SearchStrategy[bytes]:
    """A field name in several cases, with `_` for some of its `-`."""
    other = name.replace(b"-", b"_")
    return st.sampled_from(
        [
            name,
            name.upper(),
            name.title(),
            other,
            other.title(),
            name.replace(b"-", b"_", 1),
            name[:3] + other[3:].upper(),
        ]
    )


def cased(name: bytes) -> st.SearchStrategy[bytes]:
    """A field name in any of the usual cases."""
    return st.sampled_from([name.lower(), name.upper(), name.title(), name.swapcase()])


# --- chunked bodies --------------------------------------------------------------------------------------------------


@attrs.frozen
class Chunked:
    """A chunked body and what it means."""

    data: bytes
    content: bytes
    trailers: Lines


extensions = st.sampled_from([b"", b"", b"", b";a", b";a=b", b'; q="a;b\\"c"', b";x=1;y", b"; name=value"])


@st.composite
def chunked(draw: st.DrawFn, trailers: st.SearchStrategy[Lines] = st.just([])) -> Chunked:  # noqa: B008
    """A valid chunked body."""
    contents = draw(st.lists(st.binary(min_size=1, max_size=40) | st.just(b"\r\n0\r\n\r\n"), max_size=4))
    data = b""
    for content in contents:
        size = draw(st.sampled_from([b"%x", b"%X", b"0%x", b"000%x"])) % len(content)
        data += size + draw(extensions) + b"\r\n" + content + b"\r\n"
    lines = draw(trailers)
    data += draw(st.sampled_from([b"0", b"00", b"0000"])) + draw(extensions) + b"\r\n"
    data += b"".join(name + b":" + draw(white_space) + value + b"\r\n" for name, value in lines) + b"\r\n"
    return Chunked(data, b"".join(contents), lines)


# --- requests --------------------------------------------------------------------------------------------------------


@attrs.frozen
class Sent:
    """A valid request and what it means to the container: fields in order, without what we add and without framing."""

    data: bytes
    method: bytes
    target: bytes
    fields: Lines  #: names in lower case
    content: bytes
    trailers: Lines
    secrets: tuple[bytes, ...]  #: none of these may reach the container


ordinary_names = st.sampled_from(
    [b"X-A", b"x-b", b"Accept", b"USER-AGENT", b"q", b"X_Under", b"Sec-Fetch-Site"]
) | tokens.map(lambda name: b"Q-" + name)
cookie_pairs = octets(b"abcXYZ09._-", 1, 6).flatmap(
    lambda name: octets(b'abcXYZ09=_-.", {}', 0, 8).map(lambda value: name + b"=" + value.strip(b" "))
)


@st.composite
def requests(draw: st.DrawFn) -> Sent:
    """A valid HTTP/1.1 request with credentials, hop-by-hop fields and forged facts among ordinary fields."""
    tail = draw(session_tokens)
    secrets = [tail + b".%d" % number for number in range(4)]
    method = draw(st.sampled_from([b"GET", b"POST", b"PUT", b"DELETE", b"PROPFIND", b"M-X!#$"]))
    path = b"/" + draw(octets(TARGET_CHARACTERS.replace(b"?", b"")))
    parts = draw(st.lists(octets(TARGET_CHARACTERS.replace(b"&", b"").replace(b"%", b"")), max_size=4))
    sent_parts = list(parts)
    for _ in range(draw(st.integers(0, 2))):
        name = draw(st.sampled_from([b"modal_session_token", b"modal%5fsession_token", b"%6Dodal_session_toke%6e"]))
        sent_parts.insert(draw(st.integers(0, len(sent_parts))), name + b"=" + secrets[0])
    had_query = len(sent_parts) > 0
    target = path + (b"?" + b"&".join(sent_parts) if had_query else b"")
    kept_target = target if len(parts) == len(sent_parts) else path + (b"?" + b"&".join(parts) if parts else b"")

    lines: list[tuple[bytes, bytes, bool]] = []  # name, value as sent, whether it passes as it is
    lines += [(name, value, True) for name, value in draw(st.lists(st.tuples(ordinary_names, values), max_size=6))]
    named = draw(st.lists(ordinary_names, max_size=2))
    hidden = {name.lower().replace(b"_", b"-") for name in named}
    lines = [(name, value, name.lower().replace(b"_", b"-") not in hidden) for name, value, _ in lines]
    if draw(st.booleans()) or named:
        lines.append((draw(cased(b"connection")), b", ".join([*named, b"keep-alive"]), False))
    never = [
        (b"modal-key", b"wk-" + secrets[1]),
        (b"modal-secret", b"ws-" + secrets[1]),
        (b"x-modal-server-session-id", b"sd-evil-" + secrets[1]),
        (b"x-modal-server-anything", secrets[1]),
        (b"x-forwarded-for", b"192.0.2.66"),
        (b"x-forwarded-port", b"192.0.2.66"),
        (b"forwarded", b"for=192.0.2.66"),
        (b"keep-alive", b"timeout=192.0.2.66"),
        (b"proxy-connection", b"192.0.2.66"),
        (b"upgrade", b"h2c192.0.2.66"),
    ]
    for name, value in draw(st.lists(st.sampled_from(never), max_size=5)):
        lines.append((draw(spellings(name)), value, False))
    if draw(st.booleans()):
        lines.append((draw(cased(b"modal-authorization")), b"Bearer " + secrets[0], False))
    kind = draw(st.integers(0, 3))
    if kind == 0:
        lines.append((b"Authorization", b"Bearer wk-1.ws-" + secrets[2], False))
    elif kind == 1:
        lines.append((b"Authorization", b"Basic dTpw", True))
    lines = draw(st.permutations(lines))

    cookies = draw(st.lists(cookie_pairs, max_size=3))
    ours = draw(st.integers(0, 2))
    glue = draw(st.sampled_from([b"; ", b";", b" ;"]))
    cookie_line: tuple[bytes, bytes | None] | None = None
    if cookies or ours:
        mixed = list(cookies)
        for _ in range(ours):
            mixed.insert(draw(st.integers(0, len(mixed))), b"__Host-modal-session-token=" + secrets[3])
        cookie_line = (glue.join(mixed), glue.join(cookies) if cookies else None)

    data = method + b" " + target + b" HTTP/1.1\r\n"
    kept: Lines = [(b"host", b"game.example:8080")]
    data += draw(cased(b"host")) + b":" + draw(white_space) + b"game.example:8080\r\n"
    for name, value, passes in lines:
        data += name + b":" + draw(white_space) + value + draw(white_space) + b"\r\n"
        if passes:
            kept.append((name.lower(), value))
    if cookie_line is not None:
        data += b"Cookie: " + cookie_line[0] + b"\r\n"
        if cookie_line[1] is not None:
            kept.append((b"cookie", cookie_line[1].strip(b" ")))
    content = b""
    trailers: Lines = []
    framing = draw(st.sampled_from(["none", "length", "chunked"]))
    if framing == "length":
        content = draw(st.binary(max_size=60))
        data += draw(cased(b"content-length")) + b": %d\r\n\r\n" % len(content) + content
    elif framing == "chunked":
        forged = st.sampled_from(
            [
                (b"X-Modal_Server-Session-ID", secrets[1]),
                (b"Content-Length", secrets[1]),
                (b"Modal_Key", secrets[1]),
                (b"X-Forwarded-For", secrets[1]),
            ]
        )
        body = draw(chunked(st.lists(st.tuples(ordinary_names, values) | forged, max_size=3)))
        content = body.content
        trailers = [
            (name.lower(), value)
            for name, value in body.trailers
            if value != secrets[1] and name.lower().replace(b"_", b"-") not in hidden
        ]
        data += b"Transfer-Encoding: " + draw(st.sampled_from([b"chunked", b"Chunked"])) + b"\r\n\r\n" + body.data
    else:
        data += b"\r\n"
    return Sent(data, method, kept_target, kept, content, trailers, (*secrets, b"192.0.2.66"))


DAMAGE = (
    *(b"", b"\r", b"\n", b"\r\n", b"\r\n\r\n", b" ", b"\t", b"\x00", b":", b",", b";", b"0", b"5", b"\x0b", b"\xa0"),
    *(b"\r\nContent-Length: 3", b"\r\nTransfer-Encoding: chunked", b"\r\n x", b"\x7f", b"_", b"+", b"-", b"0x"),
)


@st.composite
def damaged(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> bytes:
    """Something valid with a few bytes put in, taken out or replaced by what attackers like."""
    data = draw(whole)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        to = draw(st.integers(at, min(len(data), at + 3)))
        put = draw(st.sampled_from(DAMAGE))
        data = data[:at] + put + data[to:]
    return data
