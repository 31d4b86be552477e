"""The access log: one event a request, with named fields and nothing secret in it. Must not know how a request is served.

Whoever wants lines, combined or JSON, formats the event; `EVENT` marks it.
"""

from __future__ import annotations

import re

import attrs
from twisted.logger import Logger

EVENT = "request"  #: value of the field `sticky_event`

_FORMAT = (
    "{client} {session} {container} {method} {target} {status} in={bytes_in} out={bytes_out}"
    " queue={queue:.6f} connect={connect:.6f} first={first_byte:.6f} total={total:.6f} {reason}"
)

# Anything that looks like a secret of ours, wherever it stands: a signed token, a proxy token's secret.
_FACTS = re.compile(rb"\r\n(referer|user-agent):[ \t]*([^\r]*)", re.IGNORECASE)
_SECRET = re.compile(r"v4\.public\.[\w-]+(?:\.[\w-]+)?|\bws-[\w-]+")


@attrs.define
class AccessRecord:
    """What is known of a request when it is over. Times are seconds since its head was complete; None: it never came to that."""

    client: str
    method: bytes
    target: bytes = attrs.field(repr=False)  #: as sent; redacted by the log
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
    block: bytes = attrs.field(repr=False, default=b"")  #: the request's field lines, for referrer and user agent


class AccessLog:
    """Writes access records as log events."""

    def __init__(self, brand: str, log: Logger | None = None) -> None:
        self._log = Logger(namespace="sticky.access") if log is None else log
        # The query parameter, the cookie and the subprotocol form, as they could stand in a target or a referrer.
        self._ours = re.compile(
            rf"({re.escape(brand)}[_-]session[_-]token)([=.]|%3[dD]|%2[eE])[^&;#\s]*", re.IGNORECASE
        )

    def redacted(self, text: bytes) -> str:
        """A target, a referrer or any other text of a client's, fit to be logged."""
        shown = text.decode("latin-1")
        if "token" in shown.lower():
            shown = self._ours.sub(r"\1\2REDACTED", shown)
        if "v4.public." in shown or "ws-" in shown:
            shown = _SECRET.sub("REDACTED", shown)
        return shown

    def write(self, record: AccessRecord) -> None:
        """Emit one event."""
        facts = {name.decode("ascii").lower(): self.redacted(value) for name, value in _FACTS.findall(record.block)}
        self._log.info(
            _FORMAT,
            sticky_event=EVENT,
            client=record.client,
            server=record.server,
            session=record.session,
            container=record.container,
            method=record.method.decode("latin-1"),
            target=self.redacted(record.target),
            status=record.status,
            bytes_in=record.bytes_in,
            bytes_out=record.bytes_out,
            queue=record.queue or 0.0,
            connect=record.connect or 0.0,
            first_byte=record.first_byte or 0.0,
            total=record.total,
            reason=record.reason,
            referer=facts.get("referer"),
            agent=facts.get("user-agent"),
        )
