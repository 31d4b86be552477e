"""One POST without a body, with the standard library. Owns sockets and time-outs; must not know what a call means.

No redirect is followed and no proxy of the environment is used: a token goes where it was sent, or nowhere.
"""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Mapping
from typing import Protocol
from urllib.parse import urlsplit

import attrs

LONGEST_ANSWER = 1 << 20  #: bytes that are read of an answer
_CODE = re.compile(r"[a-z0-9_]{1,64}")


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
        except ValueError:
            return {}
        return fields if isinstance(fields, dict) else {}

    @property
    def code(self) -> str:
        """The error's name, such as "queue_timeout"; empty if the answer has none."""
        code = self.fields.get("error")
        return code if isinstance(code, str) and _CODE.fullmatch(code) else ""

    @property
    def message(self) -> str:
        """The error's text, one line of at most 200 characters; empty if the answer has none."""
        text = self.fields.get("message")
        return " ".join(text.split())[:200] if isinstance(text, str) else ""


@attrs.frozen
class Failure:
    """No whole answer came. The reason holds nothing of what was sent."""

    reason: str


class Transport(Protocol):
    """How a call is sent."""

    def __call__(self, url: str, headers: Mapping[str, str], timeout: float) -> Reply | Failure:
        """POST; `timeout` is the longest silence in seconds. Never raises for what the network or the peer does."""


def post(url: str, headers: Mapping[str, str], timeout: float) -> Reply | Failure:
    """A `Transport` on http.client, with a connection of its own."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    try:
        connection = kind(parts.hostname or "", parts.port, timeout=timeout)
        try:
            connection.request("POST", parts.path or "/", headers=dict(headers))
            response = connection.getresponse()
            body = response.read(LONGEST_ANSWER)
            # A read of a given size is silent about a body that broke off; http.client counts what is missing.
            if response.length:
                return Failure("the answer broke off or is too long")
            return Reply(response.status, body)
        finally:
            connection.close()
    except TimeoutError:
        return Failure(f"silence for {timeout:g} seconds")
    except OSError as error:
        return Failure(error.strerror or type(error).__name__)
    except http.client.HTTPException as error:
        return Failure(f"the answer is not HTTP or broke off ({type(error).__name__})")
