"""Strict HTTP/1.1 response heads: the same rigour towards containers as towards clients (RFC 9112). Imported through `parsing`.

Must not know brands or sockets. Every fault is a `BadGateway`.
"""

from __future__ import annotations

import re

import attrs

from sticky import errors
from sticky.edge.grammar import (
    CHUNKED_CODING,
    FIELDS,
    LENGTH,
    STANDARD_OPTIONS,
    STATUS_LINE,
    Field,
    Framing,
    HeadLimits,
    members,
    split_fields,
)
from sticky.edge.unfinished import RESPONSE, check_unfinished

MAX_INFORMATIONAL = 16  #: 1xx answers to one request


@attrs.define(repr=False)
class ResponseHead:
    """A response's head that has been found valid. Not changed after `parse_response` made it."""

    status: int
    minor: int
    reason: bytes
    framing: Framing
    length: int  #: of a LENGTH body, else 0
    keep_alive: bool  #: whether the container leaves its connection open after this response
    clean: bool  #: nothing in it is hop-by-hop: it may go to an HTTP/1.1 client as it is
    connection: tuple[bytes, ...]  #: fields named by Connection, lower case
    block: bytes  #: the field lines as sent, each preceded by CRLF
    raw: bytes  #: the whole head as sent

    @property
    def informational(self) -> bool:
        """A 1xx other than 101: the real answer is still to come."""
        return self.status < 200 and self.status != 101

    @property
    def fields(self) -> list[Field]:
        """All fields in order, names in the container's spelling. Split anew at each call."""
        return split_fields(self.block)

    def values(self, name: bytes) -> list[bytes]:
        """All values of a field (name in lower case), in order."""
        return [value for key, value in split_fields(self.block) if key.lower() == name]

    def value(self, name: bytes) -> bytes | None:
        """The first value of a field (name in lower case), or None."""
        return next(iter(self.values(name)), None)

    def __repr__(self) -> str:
        return f"<ResponseHead {self.status} {self.framing.value}>"


def find_response_end(buffer: bytes | bytearray, searched_from: int, limits: HeadLimits) -> int:
    """The same for a response's head. Every fault is an `errors.BadGateway`."""
    end = buffer.find(b"\r\n\r\n", searched_from - 3 if searched_from > 3 else 0)
    if end >= 0:
        return end + 4
    try:
        check_unfinished(bytes(buffer), searched_from, RESPONSE, limits)
    except errors.Refusal:
        raise errors.BadGateway
    return -1


_RESPONSE_HEAD = re.compile(STATUS_LINE + rb"(" + FIELDS + rb")\r\n\r\n")
_RESPONSE_FIELD = re.compile(
    rb"\r\n(content-length|transfer-encoding|connection|keep-alive|proxy-connection|upgrade|te):[ \t]*([^\r]*)",
    re.IGNORECASE,
)


def parse_response(
    head: bytes, request_method: bytes, limits: HeadLimits | None = None, *, upgrading: bool = False
) -> ResponseHead:
    """What a complete response head says, as an answer to this method.

    `upgrading`: the request was a WebSocket handshake, so that a 101 may come; what it must hold is for the caller to
    check. Raises `errors.BadGateway` for every fault; the container's connection is of no use any more then.
    """
    match = _RESPONSE_HEAD.fullmatch(head)
    if match is None:
        raise errors.BadGateway
    version, code, reason, block = match.groups()
    if limits is not None and (len(head) > limits.head or block.count(b"\n") > limits.fields):
        raise errors.BadGateway("The container's answer has a head that is too large.")
    minor = 1 if version == b"1" else 0
    status = int(code)
    clean = minor == 1 and reason is not None
    keep_alive = minor == 1
    length = -1
    chunked = False
    named: tuple[bytes, ...] = ()
    options: list[bytes] = []
    for name, value in _RESPONSE_FIELD.findall(block):
        field = name.lower()
        if field == b"content-length":
            if length >= 0 or LENGTH.fullmatch(value) is None:
                raise errors.BadGateway("The Content-Length of the container's answer is not one plain number.")
            length = int(value)
        elif field == b"transfer-encoding":
            if chunked or minor == 0 or CHUNKED_CODING.fullmatch(value) is None:
                raise errors.BadGateway("The container's answer has a transfer coding that is not understood.")
            chunked = True
        else:
            clean = False
            if field == b"connection":
                options += members(value)
    if chunked and length >= 0:
        raise errors.BadGateway("The container's answer has both Content-Length and Transfer-Encoding.")
    if options:
        keep_alive = b"close" not in options and (minor == 1 or b"keep-alive" in options)
        named = tuple(option for option in options if option not in STANDARD_OPTIONS)
    if status == 101 and not upgrading:
        raise errors.BadGateway("The container switched protocols without being asked.")
    bodiless = request_method == b"HEAD" or status < 200 or status == 204 or status == 304
    if bodiless:
        framing = Framing.NONE
        if chunked or (length >= 0 and (status < 200 or status == 204)):
            clean = False  # RFC 9110, 8.6; after HEAD and 304 a length stays: it tells of the body that is not there
            if status == 204 and length:
                keep_alive = False  # if the body that cannot be there comes, no later request shall get it
    elif chunked:
        framing = Framing.CHUNKED
    elif length >= 0:
        framing = Framing.LENGTH
    else:
        framing = Framing.CLOSE
        keep_alive = False
    return ResponseHead(
        status,
        minor,
        reason or b"",
        framing,
        length if framing is Framing.LENGTH else 0,
        keep_alive,
        clean,
        named,
        block,
        head,
    )
