"""What a client makes of the frames of an answer."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from sticky.sandbox.frames import Kind, TornFrame, document, frame
from sticky.sdk.calls import client
from sticky.sdk.calls.client import Outcome
from sticky.sdk.calls.outcomes import Sent, refused
from sticky.sdk.exception import ResourceExhaustedError
from sticky.sdk.steps import Reply


class Dribbling(io.BytesIO):
    """Gives a part at a time, as a socket does."""

    def readinto(self, view: Any) -> int:
        return super().readinto(memoryview(view)[:7])


def heard(data: bytes) -> Outcome:
    response: Any = Dribbling(data)
    return client._heard(response, lambda kind, payload: None)


def answer(parts: Sequence[bytes], size: int | None = None) -> bytes:
    said = {"outcome": "value", "size": sum(map(len, parts)) if size is None else size}
    return b"".join(frame(Kind.VALUE, part) for part in parts) + document(Kind.DONE, said)


class AnswerTests(SynchronousTestCase):
    @given(st.lists(st.binary(max_size=40)))
    def test_the_value_is_what_its_pieces_make(self, parts: list[bytes]) -> None:
        self.assertEqual(heard(answer(parts)).value, b"".join(parts))

    @given(st.lists(st.binary(min_size=1, max_size=40), min_size=1), st.data())
    def test_one_that_breaks_off_is_torn(self, parts: list[bytes], data: st.DataObject) -> None:
        whole = answer(parts)
        self.assertRaises(TornFrame, heard, whole[: data.draw(st.integers(0, len(whole) - 1))])

    def test_another_size_than_announced_is_torn(self) -> None:
        for size in (2, 4):
            self.assertRaises(TornFrame, heard, answer([b"abc"], size))

    def test_more_than_a_value_may_have_is_torn_before_it_is_all_there(self) -> None:
        self.patch(client, "LARGEST", 5)
        self.assertEqual(heard(answer([b"abc", b"de"])).value, b"abcde")
        self.assertRaises(TornFrame, heard, frame(Kind.VALUE, b"abc") * 2)


class RefusalTests(SynchronousTestCase):
    """What a call without a session says of a proxy's refusal."""

    def refused(self, code: str, message: str) -> ResourceExhaustedError:
        reply = Reply(503, json.dumps({"error": code, "message": message}).encode())
        sent = Sent(url="http://x", server=None, session=None, token=None)
        error: ResourceExhaustedError = self.assertRaises(ResourceExhaustedError, refused, sent, reply)
        self.assertEqual(error.code, code)
        return error

    def test_containers_that_fail_are_no_lack_of_room(self) -> None:
        text = f"Containers of this Server fail to start ({'x' * 300}). The next attempt is in 4 seconds"
        self.assertEqual(
            str(self.refused("containers_failing", f"{text}.")),
            f"http://x answered 503 containers_failing ({text}). On its machine `sticky status` has the reason,"
            " and `sticky logs` what containers have printed.",
        )

    def test_a_lack_of_room_is_one(self) -> None:
        self.assertEqual(
            str(self.refused("queue_timeout", "No container had room for the session in time.")),
            "http://x answered 503 queue_timeout (No container had room for the session in time)."
            " Raise max_containers or max_concurrency, or try later.",
        )
