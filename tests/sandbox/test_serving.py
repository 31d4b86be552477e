"""A connection of the interpreter's door, with an interpreter that only takes calls."""

from __future__ import annotations

import os
import socket
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from sticky.sandbox.frames import Kind, document
from sticky.sandbox.interpreter import Call
from sticky.sandbox.serving import _Connection


class Taking:
    """Keeps the calls; one that is interrupted says so to its client, as one does that has given in."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.interrupted: list[Call] = []

    def submit(self, call: Call) -> None:
        self.calls.append(call)

    def interrupt(self, call: Call, why: str) -> None:
        self.interrupted.append(call)
        call.tell(document(Kind.DONE, {"outcome": "error", "code": why}))


class LeavingTests(SynchronousTestCase):
    def test_a_client_that_leaves_costs_its_call_and_nothing_else(self) -> None:
        ends: list[int] = []
        self.patch(os, "_exit", ends.append)
        interpreter: Any = Taking()
        ours, theirs = socket.socketpair()
        body = document(Kind.CALL, {"sizes": {"function": 0, "arguments": 0}})
        with ours:
            ours.sendall(b"POST /_modal/calls HTTP/1.1\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        _Connection(theirs, interpreter).run()
        (call,) = interpreter.calls
        self.assertEqual(interpreter.interrupted, [call])
        call.tell(document(Kind.DONE, {"outcome": "error", "code": "cancelled"}))  # late as well
        self.assertEqual(ends, [])
