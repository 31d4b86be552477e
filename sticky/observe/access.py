"""The access log: one line a request, nothing secret in it, and the counts that metrics are made of. Knows nothing of serving.

Lines do not pass through `twisted.logger`: an event of its costs more than all the rest of a request. They are made and
written in batches (`lines`), as `access_forms` has them.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import repeat
from time import time
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote

from sticky.observe.lines import Lines

EVENT = "request"  #: value of the field `sticky_event` of log events about single requests
COUNTED = "requests"  #: the same of events that say how many there were elsewhere, by Server

# Anything that looks like a secret of ours, wherever it stands: a signed token, a proxy token's secret.
_SECRET = re.compile(r"v4\.public\.[\w-]+(?:\.[\w-]+)?|\bws-[\w-]+")
_FACTS = re.compile(rb"\r\n(referer|user-agent):[ \t]*([^\r]*)", re.IGNORECASE)

BATCH = 64  #: records made into lines and written together

#: Upper bounds of the counted times, seconds.
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Keeper(Protocol):
    """Something with the same field lines as the request: what is made of them need not be made again."""

    shown: str | None

    @property
    def block(self) -> bytes:
        """These field lines."""


_ORDINARY = frozenset({b"GET", b"POST", b"HEAD", b"PUT", b"DELETE", b"PATCH", b"OPTIONS", b"-"})
_LIKE_A_METHOD = re.compile(rb"[A-Z]{1,16}(?:-[A-Z]{1,16})?")


class AccessRecord(NamedTuple):
    """What is known of a request when it is over. Times are seconds since its head was complete; None: it never came to that.

    A tuple, because one is made for each request: it may be made by `tuple.__new__`.
    """

    client: str
    method: bytes
    target: bytes  #: as sent; redacted by the log
    status: int  #: 499: the client left before the answer was complete
    bytes_in: int = 0  #: of the body, framing included
    bytes_out: int = 0  #: head and body
    session: str = "-"
    container: str = "-"
    server: str = "-"
    queue: float | None = None  #: until the request was put in flight
    connect: float | None = None  #: until it had a connection to its container
    first_byte: float | None = None  #: until the answer's first byte
    total: float = 0.0
    reason: str = "-"  #: why it was refused or broken off
    minor: int = 1  #: of its HTTP/1.x
    block: bytes = b""  #: the request's field lines, for referrer and user agent; empty if `keeper` has them
    keeper: Keeper | None = None

    def __repr__(self) -> str:
        return f"<AccessRecord {self.status} of {self.session}>"  # neither target nor fields


def self_contained(record: AccessRecord) -> AccessRecord:
    """The same with nothing but what its line needs: for one that is kept until a WebSocket ends."""
    block = record.block or (b"" if record.keeper is None else record.keeper.block)
    fields = b"".join(b"\r\n%b: %b" % found for found in _FACTS.findall(block))
    return record._replace(block=fields, keeper=None)


_STATUS, _BYTES_IN, _BYTES_OUT, _TOTAL = map(AccessRecord._fields.index, ("status", "bytes_in", "bytes_out", "total"))
KEPT = AccessRecord._fields.index("block")  #: the first so many fields: what may be kept after the line is made

Over = tuple[float, AccessRecord]  #: Unix time of a request's end, and what is known of it


class Counts:
    """Counts since the start, for whoever shows them."""

    __slots__ = ("by_status", "by_time", "bytes_in", "bytes_out", "requests", "seconds")

    def __init__(self) -> None:
        self.requests = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.seconds = 0.0  #: of all requests together, but for WebSockets
        self.by_status: Counter[int] = Counter()
        self.by_time = [0] * (len(BUCKETS) + 1)  #: requests that took at most each of `BUCKETS`, and longer

    def add(self, over: Sequence[Over]) -> None:
        """These, too."""
        if not over:
            return
        columns = list(zip(*[record for _, record in over], strict=True))  # what is added up so costs a tenth
        statuses, times = columns[_STATUS], columns[_TOTAL]
        self.requests += len(over)
        self.bytes_in += sum(columns[_BYTES_IN])
        self.bytes_out += sum(columns[_BYTES_OUT])
        self.by_status.update(statuses)
        if 101 in statuses:  # a WebSocket's life is no answer's time
            times = tuple(total for total, status in zip(times, statuses, strict=True) if status != 101)
        self.seconds += sum(times)
        for place, many in Counter(map(bisect_left, repeat(BUCKETS), times)).items():
            self.by_time[place] += many


class Redaction:
    """Makes texts of clients fit to be seen."""

    def __init__(self, brand: str) -> None:
        # The query parameter, the cookie and the subprotocol form, as they could stand in a target or a referrer.
        name = re.escape(brand) + "[_-]session[_-]token"
        self._ours = re.compile(rf"({name})([=.]|%3[dD]|%2[eE])[^&;#\s]*", re.IGNORECASE)
        self._hidden = re.compile(rf"{name}[=.][^&;#\s]", re.IGNORECASE)

    def __call__(self, text: bytes) -> str:
        """The text without anything that is, or may be, a secret."""
        shown = text.decode("latin-1")
        if "token" in shown.lower():
            shown = self._ours.sub(r"\1\2REDACTED", shown)
        if "v4.public." in shown or "ws-" in shown:
            shown = _SECRET.sub("REDACTED", shown)
        if "%" in shown:
            plain = unquote(shown.replace("REDACTED", ""), "latin-1")
            if _SECRET.search(plain) or self._hidden.search(plain):
                # Escapes hide it: rather no query at all than one that tells.
                shown = shown.partition("?")[0].partition("%")[0] + "?REDACTED"
        return shown


class Form(Protocol):
    """How a line is written."""

    def facts(self, referer: str | None, agent: str | None) -> str:
        """The part of a line that a connection's requests often share; the texts are redacted."""

    def plain_lines(self, over: list[Over]) -> list[str | None]:
        """What `line` gives for each of these with a keeper that has its facts, and a target that needs no redaction.

        None for those of which that is not known, or for which `line` is as quick.
        """

    def line(self, wall: float, record: AccessRecord, target: str, facts: str) -> str:
        """A whole line with its end; `wall`: Unix time of the request's end, `target`: redacted."""


class Watcher(Protocol):
    """Sees requests that are over."""

    observer: Any

    def __call__(self, over: Sequence[Over]) -> None:
        """Some more, in order. Whoever keeps records keeps no more than their first `KEPT` fields."""


class AccessLog:
    """Counts requests, and writes a line about each, a moment later."""

    def __init__(
        self, brand: str, form: Form | None = None, lines: Lines | None = None, wall: Callable[[], float] = time
    ) -> None:
        """Without `lines` nothing is written. `wall`: the Unix time."""
        self._wall = wall
        self.redacted = Redaction(brand)
        self._counts = Counts()
        self._counted = 0  # of the records that are waiting for their lines
        self._form = form
        self._lines = lines
        self._records: list[Over] = []
        self.watchers: list[Watcher] = []  #: told of each request, a moment later
        if lines is not None:
            lines.fill = self._make_lines

    @property
    def counts(self) -> Counts:
        """What there was until now."""
        self._count()
        return self._counts

    def write(self, record: AccessRecord) -> None:
        """A request is over. What is done about it is done for many together: a turn of the loop is mostly cold code."""
        if record[1] not in _ORDINARY and not _LIKE_A_METHOD.fullmatch(record[1]):
            record = record._replace(method=b"?")  # any token is a method to HTTP, and so would one of ours be
        records = self._records
        records.append((self._wall(), record))
        lines = self._lines
        if lines is None:
            self._count()
            records.clear()
            self._counted = 0
        elif len(records) >= BATCH:
            lines.flush()
        elif not lines.expected:
            lines.expect()

    def close(self) -> None:
        """Write what there is."""
        if self._lines is not None:
            self._lines.close()

    def _count(self) -> None:
        records = self._records
        if self._counted < len(records):
            fresh, self._counted = records[self._counted :], len(records)
            self._counts.add(fresh)
            for watcher in self.watchers:
                watcher(fresh)

    def _make_lines(self) -> list[str]:
        self._count()
        records, self._records = self._records, []
        self._counted = 0
        form, redacted = self._form, self.redacted
        assert form is not None
        made: list[str] = []
        for (ended_at, record), plain in zip(records, form.plain_lines(records), strict=True):
            if plain is not None:
                made.append(plain)
                continue
            keeper = record.keeper
            facts = None if keeper is None else keeper.shown
            if facts is None:
                facts = form.facts(*self.senders_texts(record))
                if keeper is not None:
                    keeper.shown = facts
            made.append(form.line(ended_at, record, redacted(record.target), facts))
        return made

    def senders_texts(self, record: AccessRecord) -> tuple[str | None, str | None]:
        """Referrer and user agent, fit to be seen; None: there was no such field."""
        referer = agent = None
        for name, value in _FACTS.findall(record.block or (record.keeper.block if record.keeper is not None else b"")):
            if len(name) == 7:
                referer = self.redacted(value)
            else:
                agent = self.redacted(value)
        return referer, agent
