"""Records to text and back."""

from __future__ import annotations

import json
from typing import Any, get_args

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
from sticky.core.values import Caller, ContainerId, DeploymentId, EndReason, SessionId
from sticky.journal.codec import Unreadable, decode, encode, records_of

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
        self.assertEqual(decode(encode(record)), record)

    @given(records, st.data())
    def test_a_line_that_is_not_whole_is_unreadable(self, record: Any, data: st.DataObject) -> None:
        line = encode(record)
        cut = line[: data.draw(st.integers(0, len(line) - 1))]
        self.assertRaises(Unreadable, decode, cut)

    def test_what_this_version_does_not_know_is_unreadable(self) -> None:
        good = json.loads(encode(DeploymentMade(DeploymentId("dp-1"))))
        wrong: list[Any] = [
            good | {"kind": "Unheard"},
            good | {"more": 1},
            {"kind": "DeploymentMade"},
            good | {"deployment": 7},
            good | {"deployment": None},
            ["DeploymentMade"],
            None,
        ]
        for value in wrong:
            self.assertRaises(Unreadable, decode, json.dumps(value))
        moved = json.loads(encode(ContainerMoved(ContainerId("ct"), ContainerState.READY, EndReason.CONTAINER_LOST)))
        self.assertRaises(Unreadable, decode, json.dumps(moved | {"state": "floating"}))
        created = json.loads(encode(ContainerCreated(ContainerId("ct"), DeploymentId("dp"), 1.0, 2.0)))
        self.assertRaises(Unreadable, decode, json.dumps(created | {"born": True}))


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
    def test_the_shortest_log_gives_the_same_memory(self) -> None:
        memory = a_memory()
        self.assertEqual(Memory.of(records_of(memory)), memory)
        self.assertEqual(Memory.of(decode(encode(record)) for record in records_of(memory)), memory)
