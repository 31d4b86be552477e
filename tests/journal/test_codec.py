"""Records to text and back."""

from __future__ import annotations

import json
from collections.abc import Iterable
from math import ceil
from typing import Any, get_args

import attrs
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from sticky.core.container import ContainerState
from sticky.core.effects import EndSession
from sticky.core.memory import Memory
from sticky.core.records import (
    ContainerCreated,
    ContainerMoved,
    DeploymentMade,
    KeyBound,
    NameBound,
    NameExpired,
    NameReleased,
    Record,
    SessionCreated,
    SessionDrains,
)
from sticky.core.values import UNBOUNDED, Caller, ContainerId, DeploymentId, EndReason, SessionId
from sticky.journal.codec import Unreadable, decode, encode, lines_of

texts = st.text(max_size=8)
times = st.floats(0, 1e12) | st.just(float("inf"))
ids = st.sampled_from(["a", "b", "c"])
records: st.SearchStrategy[Any] = st.one_of(
    st.builds(DeploymentMade, texts),
    st.builds(ContainerCreated, texts, texts, times, times),
    st.builds(ContainerMoved, texts, st.sampled_from(ContainerState), st.sampled_from(EndReason)),
    st.builds(SessionCreated, texts, texts, texts, times, times),
    st.builds(SessionDrains, texts, texts, st.sampled_from(EndReason)),
    st.builds(KeyBound, texts, texts, texts, texts, texts, times, times),
    st.builds(NameBound, texts, texts, texts, texts, times),
    st.builds(NameExpired, texts, texts, st.sampled_from(EndReason), st.none() | texts),
    st.builds(NameReleased, texts, texts),
    st.builds(EndSession, texts, texts, st.sampled_from(EndReason), st.none() | texts, times),
)


class CodecTests(SynchronousTestCase):
    def test_every_kind_of_record_has_a_generator_here(self) -> None:
        self.assertEqual(len(get_args(Record)), 10)

    @given(records)
    def test_a_record_comes_back_as_it_was(self, record: Any) -> None:
        self.assertEqual(decode(encode(record)), [record])

    @given(records, st.data())
    def test_a_line_that_is_not_whole_is_unreadable(self, record: Any, data: st.DataObject) -> None:
        line = encode(record)
        cut = line[: data.draw(st.integers(0, len(line) - 1))]
        self.assertRaises(Unreadable, decode, cut)

    @given(records)
    def test_what_schema_1_wrote_is_read(self, record: Any) -> None:
        """Objects with the names of the fields."""
        kind, *values = json.loads(encode(record))
        names = [field.name for field in attrs.fields(type(record))]
        old = {"kind": kind} | dict(zip(names, values, strict=True))
        self.assertEqual(decode(json.dumps(old)), [record])
        for wrong in (old | {"more": 1}, {name: old[name] for name in list(old)[:-1]}, old | {"kind": "Unheard"}):
            self.assertRaises(Unreadable, decode, json.dumps(wrong))

    def test_what_this_version_does_not_know_is_unreadable(self) -> None:
        wrong: list[Any] = [
            ["Unheard", "dp-1"],
            ["DeploymentMade", "dp-1", 1],
            ["DeploymentMade"],
            ["DeploymentMade", 7],
            ["DeploymentMade", None],
            [["DeploymentMade"], "dp-1"],
            ["ContainerMoved", "ct", "floating", "container_lost"],
            ["ContainerCreated", "ct", "dp", True, 2.0],
            ["ContainerCreated", "ct", "dp", 1.0],
            ["Ended", ["a"], ["terminated"], [None]],
            ["Ended", ["a"], ["terminated"], [None], [1.0, 2.0]],
            ["Ended", ["a"], ["bored"], [None], [1.0]],
            ["Ended", ["a", 7], ["terminated", "terminated"], [None, None], [1.0, 1.0]],
            ["Ended", ["a"], ["terminated"], [None], ["soon"]],
            ["Ended", "a", "b", "c", "d"],
            [],
            None,
            7,
            "DeploymentMade",
        ]
        for value in wrong:
            self.assertRaises(Unreadable, decode, json.dumps(value))
        self.assertEqual(decode('["DeploymentMade","dp-1"]'), [DeploymentMade(DeploymentId("dp-1"))])

    def test_many_ends_are_one_line(self) -> None:
        self.assertEqual(
            decode('["Ended",["a","b"],["terminated","container_lost"],[null,"killed"],[1.5,null]]'),
            [
                EndSession(SessionId("a"), ContainerId(""), EndReason.TERMINATED, None, 1.5),
                EndSession(SessionId("b"), ContainerId(""), EndReason.CONTAINER_LOST, "killed", UNBOUNDED),
            ],
        )


def a_memory() -> Memory:
    """One with something of everything in it."""
    here, there = ContainerId("ct-1"), ContainerId("ct-2")
    return Memory.of(
        [
            DeploymentMade(DeploymentId("dp-1")),
            ContainerCreated(here, DeploymentId("dp-1"), 10.0, 1000.0),
            ContainerMoved(here, ContainerState.READY, EndReason.CONTAINER_LOST),
            SessionCreated(SessionId("sd-1"), here, Caller("ann"), 600.0, 11.0),
            KeyBound("ann", "k" * 16, Caller("ann"), SessionId("sd-1"), here, 600.0, float("inf")),
            SessionCreated(SessionId("sd-2"), here, Caller("bob"), 5.0, 12.0),
            SessionDrains(SessionId("sd-2"), here, EndReason.TERMINATED),
            SessionCreated(SessionId("sd-3"), here, Caller("bob"), 5.0, 12.0),
            EndSession(SessionId("sd-3"), here, EndReason.IDLE_TIMEOUT, None, 2000.0),
            NameBound("ann", "notebook", SessionId("sd-1"), here, 600.0),
            NameBound("bob", "gone", SessionId("sd-3"), here, 5.0),
            NameExpired("bob", "gone", EndReason.IDLE_TIMEOUT, None),
            NameExpired("bob", "released", EndReason.CONTAINER_LOST, "killed"),
            NameReleased("bob", "released"),
            NameExpired("bob", "lost", EndReason.CONTAINER_LOST, "killed"),
            ContainerCreated(there, DeploymentId("dp-1"), 20.0, 1000.0),
            SessionCreated(SessionId("sd-4"), there, Caller("bob"), 5.0, 30.0),
            ContainerMoved(there, ContainerState.DRAINING, EndReason.CONTAINER_MAX_AGE),
        ]
    )


class ShorteningTests(SynchronousTestCase):
    def fold(self, lines: Iterable[str]) -> Memory:
        return Memory.of(record for line in lines for record in decode(line))

    def test_the_shortest_log_gives_the_same_memory(self) -> None:
        memory = a_memory()
        self.assertEqual(self.fold(lines_of(memory)), memory)

    @given(st.integers(0, 3000), st.integers(0, 20))
    def test_what_ended_takes_few_lines_and_keeps_its_order(self, many: int, living: int) -> None:
        memory = Memory()
        for number in range(many):
            reason = EndReason.TERMINATED if number % 3 else EndReason.CONTAINER_LOST
            memory.add(EndSession(SessionId(f"sd-{number}"), ContainerId(""), reason, None, 10.0 * number))
        for number in range(living):
            memory.add(SessionCreated(SessionId(f"sl-{number}"), ContainerId("ct"), Caller("ann"), 5.0, -1.0))
        lines = list(lines_of(memory))
        self.assertEqual(len(lines), living + ceil(many / 500))
        again = self.fold(lines)
        self.assertEqual(again, memory)
        self.assertEqual(list(again.ended), list(memory.ended))
