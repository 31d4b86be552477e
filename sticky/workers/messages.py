"""The words of the protocol between a proxy and its daemon, and its times. docs/protocol.md says what they mean. No behaviour."""

from __future__ import annotations

from typing import Final

#: Of the protocol; a proxy offers those that it speaks, the daemon takes the highest that it speaks too.
VERSIONS: Final = (1, 2)
VERSION: Final = VERSIONS[-1]
#: Entries of a list in one message at most: 1.6 kB for each, of which the longest names need less than half.
AT_ONCE: Final = 10_000
#: The same of what a welcome says is over: a name and a reason each. To tell them one by one afterwards takes both sides much longer.
OVER_AT_ONCE: Final = 50_000

#: Seconds after the last request that a proxy keeps a lease at most (semantics.md, Workers and wardens).
KEEP: Final = 1.0
SILENCE: Final = 1.0  #: seconds in which a proxy must be heard of when it has been told something
STARVED: Final = 5.0  #: the same for one whose process works, and only gets too little of the processor
REPORT: Final = 1.0  #: seconds between two reports of a proxy
STALLED: Final = 10.0  #: seconds without a report after which a proxy is taken for dead

TRY_FOR: Final = 10.0  #: seconds in which a proxy has to reach the daemon that it is sent to; else it ends

# From the proxy.
HELD: Final = "held"
HELLO: Final = "hello"
LEASE: Final = "lease"
BACK: Final = "back"
SUSPEND: Final = "suspend"
RESUME: Final = "resume"
TURN: Final = "turn"
DONE: Final = "done"
VISIT: Final = "visit"
VISITED: Final = "visited"
QUIET: Final = "quiet"
AGAIN: Final = "again"
CONTROL: Final = "control"
STREAM: Final = "stream"
CANCEL: Final = "cancel"
DOUBT: Final = "doubt"
REPORTED: Final = "report"
LOG: Final = "log"

# From the daemon.
CONFIGURE: Final = "configure"
CLOSE: Final = "close"
DRAIN: Final = "drain"
END: Final = "end"
CUT: Final = "cut"
EVENT: Final = "event"
FINISH: Final = "finish"
MOVE: Final = "move"
STOP: Final = "stop"
