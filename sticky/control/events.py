"""How a control answer that goes on is written, Server-Sent Events. Must not know what they tell."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

INTERVAL: Final = 1.0  #: seconds between two looks at what is told, so that there is at most one event in each
QUIET: Final = 15.0  #: seconds after which a comment shows proxies on the way that the answer still goes on


def event(name: str, data: Mapping[str, object]) -> bytes:
    """One event."""
    # JSON has no line breaks as json.dumps writes it, so it is one `data` line.
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode("ascii")
