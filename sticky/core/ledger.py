"""The sessions of ONE container: the authority on which of them live. Knows no queue, no other container, no process.

It answers `Admit` and `Close`, counts requests, expires and ends. What it has to say to admission (`answers`) and to the
world (`effects`) goes to the two lists it is given, so that it can live beside its container, on another machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from heapq import heapify, heappop, heappush, heapreplace

from sticky import errors
from sticky.core.effects import Admit, EndSession
from sticky.core.events import Admitted, Closed, Full, HasSessions, LedgerAnswer, SessionDraining, SessionLeft
from sticky.core.session import Session, SessionInput, SessionState
from sticky.core.values import UNBOUNDED, ContainerId, EndReason, SessionId

# In the path of every request: Python 3.11 takes 0.1 µs to find a member through its class.
_ACTIVE = SessionState.ACTIVE
