"""What a call of the SDK does, without doing it: a generator that yields what is to be sent or waited for and is given what came.

The blocking, the asyncio and the Twisted form carry out the same steps. Owns the values that cross; must not know sockets,
threads or loops, nor what a call means.
"""

from __future__ import annotations

import errno
import json
import os
import re
import ssl
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import TypeAlias, TypeVar

import attrs

LONGEST_ANSWER = 1 << 20  #: bytes that are read of an answer
LONGEST_TEXT = 500  #: characters of an error's text that are repeated
_CODE = re.compile(r"[a-z0-9_]{1,64}")


@attrs.frozen(kw_only=True)
class Ask:
    """One HTTP request. The repr shows neither fields nor body, where tokens are."""

    method: str
    url: str  #: whole, without user and fragment; its host counts for nothing where there is a `socket`
    headers: Mapping[str, str] = attrs.field(repr=False, factory=dict)  #: values are latin-1, as on the wire
    body: bytes = attrs.field(repr=False, default=b"")
    timeout: float  #: seconds of silence after which nothing is expected any more
    socket: Path | None = None  #: the Unix socket to ask, instead of the URL's host


@attrs.frozen
class Pause:
    """Time to let pass."""

    seconds: float


@attrs.frozen
class Reply:
    """A whole answer. The repr hides its body, where a token may be."""

    status: int
    body: bytes = attrs.field(repr=False)

    @property
    def fields(self) -> Mapping[str, object]:
        """Those of a JSON object; empty if the body is anything else."""
        try:
            fields = json.loads(self.body)
        except (ValueError, RecursionError):
            return {}
        return fields if isinstance(fields, dict) else {}

    @property
    def code(self) -> str:
        """The error's name, such as "queue_timeout"; empty if the answer has none."""
        code = self.fields.get("error")
        return code if isinstance(code, str) and _CODE.fullmatch(code) else ""

    @property
    def message(self) -> str:
        """The error's text, to be quoted: one line of at most LONGEST_TEXT characters, without a full stop; empty if there is none."""
        text = self.fields.get("message")
        return " ".join(text.split())[:LONGEST_TEXT].rstrip(".") if isinstance(text, str) else ""

    @property
    def quoted(self) -> str:
        """Status, code and text as a part of a sentence, such as `503 queue_timeout (No container had room in time)`."""
        code, text = self.code, self.message
        return f"{self.status}{f' {code}' if code else ''}{f' ({text})' if text else ''}"


@attrs.frozen
class Failure:
    """No whole answer came. The reason holds nothing of what was sent."""

    reason: str


BROKEN_OFF = Failure("the answer broke off or is too long")


def silent(ask: Ask) -> Failure:
    """Nothing came in time."""
    return Failure(f"silence for {ask.timeout:g} seconds")


def failed(error: OSError) -> Failure:
    """What the system says, without the address that it was asked for."""
    # asyncio puts a text of its own, with the address, where others have the system's; SSL has numbers of its own.
    if error.errno is not None and error.errno in errno.errorcode and not isinstance(error, ssl.SSLError):
        return Failure(os.strerror(error.errno))
    return Failure(error.strerror or type(error).__name__)


_Result = TypeVar("_Result")
#: A call: what it yields is carried out, a `Reply` or `Failure` is sent back for an `Ask`, and None for a `Pause`.
Steps: TypeAlias = Generator[Ask | Pause, Reply | Failure | None, _Result]


def asking(ask: Ask) -> Steps[Reply | Failure]:
    """One request."""
    outcome = yield ask
    assert outcome is not None, "an Ask is answered"
    return outcome


def pausing(seconds: float) -> Steps[None]:
    """One pause."""
    yield Pause(seconds)


def dialled(host: str) -> str:
    """The name to connect to. Names below localhost are this machine's (RFC 6761, 6.3), which not every resolver knows."""
    return "127.0.0.1" if host.lower().endswith(".localhost") else host
