"""The states of a container on an Engine, as data. Must not know what is done in them.

CREATING -> STARTING -> READY -> ENDING -> GONE        forward only; from each of the first three also to ENDING
"""

from __future__ import annotations

from enum import Enum


class State(Enum):
    CREATING = "creating"  # the Engine is asked to create and start it
    STARTING = "starting"  # it runs, as far as we know; not ready
    READY = "ready"  # said so to the listener
    ENDING = "ending"  # it ended, or never ran: its last words are collected
    GONE = "gone"  # said so to the listener


class Input(Enum):
    STARTED = "started"  # the Engine has started it
    ANSWERED = "answered"  # it is ready
    ENDED = "ended"  # it does not run any more, or will never run
    TOLD = "told"  # all is known that can be known


TRANSITIONS = {
    (State.CREATING, Input.STARTED): State.STARTING,
    (State.CREATING, Input.ENDED): State.ENDING,
    (State.STARTING, Input.ANSWERED): State.READY,
    (State.STARTING, Input.ENDED): State.ENDING,
    (State.READY, Input.ENDED): State.ENDING,
    (State.ENDING, Input.TOLD): State.GONE,
}
