"""Answers of our own as bytes: refusals (JSON, or a page where preferred) and what control calls give. Decides nothing.

Must not know which refusal it is: status, code, text and retry are the error's own (`sticky.errors`).
"""

from __future__ import annotations

import html
import json
import math
from http import HTTPStatus

from sticky import errors
from sticky.edge.parsing import RequestHead
from sticky.isticky import Answer

#: The fields of every event stream.
EVENTS = ((b"content-type", b"text/event-stream"), (b"x-accel-buffering", b"no"))

_PAGE = (
    "<!doctype html>\n<html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
    "<title>{status} {phrase}</title>\n<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:36em;margin:15vh auto;"
    "padding:0 1em}}</style>\n<h1>{phrase}</h1>\n<p>{message}</p>\n<p><small>{code}</small></p>\n"
)


def refusal(error: errors.Refusal, *, page: bool = False, ended_status: int = 410) -> Answer:
    """A refusal as an answer. `page`: the client prefers HTML; `ended_status`: what the Server says for an ended session."""
    status = ended_status if isinstance(error, errors.SessionEnded) else error.status
    headers: list[tuple[bytes, bytes]] = []
    if page:
        headers.append((b"content-type", b"text/html; charset=utf-8"))
        body = _PAGE.format(
            status=status, phrase=_phrase(status), message=html.escape(error.message), code=html.escape(error.code)
        ).encode()
    else:
        headers.append((b"content-type", b"application/json"))
        body = json.dumps(error.fields()).encode()
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))  # RFC 9110, 15.5.2: at least one challenge
    if error.retry_after is not None or status == 503:
        headers.append((b"retry-after", b"%d" % max(1, math.ceil(error.retry_after or 1))))
    if isinstance(error, errors.MethodNotAllowed):
        headers.append((b"allow", ", ".join(error.allowed).encode("ascii")))
    if status == 426:  # RFC 6455, 4.2.2: the version that would do; RFC 9110, 15.5.22: what to upgrade to
        headers += [(b"upgrade", b"websocket"), (b"sec-websocket-version", b"13")]
    return Answer(status, tuple(headers), body)


def answer_bytes(answer: Answer, *, close: bool, minor: int = 1, head_only: bool = False) -> bytes:
    """A whole answer. `close`: the connection ends after it; `minor`: the client's HTTP/1.x; `head_only`: it asked with HEAD."""
    lines = _head(answer, close, minor)
    if answer.status != 204:
        lines.append(b"content-length: %d" % len(answer.body))
    lines += (b"", b"" if head_only else answer.body)
    return b"\r\n".join(lines)


def stream_head(answer: Answer, *, close: bool, minor: int) -> bytes:
    """The head of an answer whose body follows: in chunks, or until the connection closes for an HTTP/1.0 client."""
    lines = _head(answer, close, minor)
    if minor:
        lines.append(b"transfer-encoding: chunked")
    lines += (b"", b"")
    return b"\r\n".join(lines)


def prefers_page(head: RequestHead) -> bool:
    """Whether a client would rather have HTML than JSON: it names HTML and ranks it above JSON (RFC 9110, 12.5.1)."""
    page = plain = 0.0
    plain_rank = -1
    for value in head.values(b"accept"):
        for member in value.lower().split(b","):
            kind, _, parameters = member.partition(b";")
            kind = kind.strip()
            weight = _weight(parameters)
            rank = _JSON.index(kind) if kind in _JSON else -1
            if kind == b"text/html":
                page = max(page, weight)
            elif rank > plain_rank:  # the most specific range counts
                plain_rank, plain = rank, weight
    return page > plain


_JSON = (b"*/*", b"application/*", b"application/json")


def _weight(parameters: bytes) -> float:
    for parameter in parameters.split(b";"):
        name, _, value = parameter.partition(b"=")
        if name.strip() == b"q":
            try:
                weight = float(value)
            except ValueError:
                return 0.0
            return weight if 0.0 <= weight <= 1.0 else 0.0
    return 1.0


def _head(answer: Answer, close: bool, minor: int) -> list[bytes]:
    lines = [b"HTTP/1.1 %d %s" % (answer.status, _phrase(answer.status).encode("ascii"))]
    lines += [name + b": " + value for name, value in answer.headers]
    if not any(name == b"cache-control" for name, _ in answer.headers):
        lines.append(b"cache-control: no-store")
    if answer.status == 426:
        lines.append(b"connection: upgrade, close" if close else b"connection: upgrade")
    elif close:
        lines.append(b"connection: close")
    elif not minor:
        lines.append(b"connection: keep-alive")
    return lines


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Refused"
