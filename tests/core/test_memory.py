"""Folding records into what a restart must find."""

from __future__ import annotations

from twisted.trial.unittest import TestCase

from sticky.core import memory as memories
from sticky.core.container import ContainerState
from sticky.core.effects import EndSession
from sticky.core.memory import Memory, RememberedContainer, RememberedSession
from sticky.core.records import (
    ContainerCreated,
    ContainerMoved,
    DeploymentMade,
    KeyBound,
    Record,
    SessionCreated,
    SessionDrains,
)
from sticky.core.values import Caller, ContainerId, DeploymentId, EndReason, SessionId

DEPLOYMENT, HOME, ANN = DeploymentId("dp-1"), ContainerId("ct-1"), Caller("ann")
A, B, C, D = (SessionId(f"sd-{number}") for number in range(1, 5))
BOUND = KeyBound("ann", "k" * 16, ANN, A, HOME, 20.0, 99.0)
STORY: list[Record] = [
    DeploymentMade(DEPLOYMENT),
    ContainerCreated(HOME, DEPLOYMENT, 10.0, 100.0),
    ContainerMoved(HOME, ContainerState.READY, EndReason.CONTAINER_LOST),
    SessionCreated(A, HOME, ANN, 20.0, 11.0),
    KeyBound("ann", "k" * 16, ANN, A, HOME, 20.0, 99.0),
    SessionCreated(B, HOME, ANN, 30.0, 12.0),
    SessionDrains(B, HOME, EndReason.TERMINATED),
    ContainerMoved(HOME, ContainerState.DRAINING, EndReason.CONTAINER_MAX_AGE),
    EndSession(A, HOME, EndReason.CONTAINER_MAX_AGE, None, 410.0),
    EndSession(B, HOME, EndReason.TERMINATED, None, 410.0),
    ContainerMoved(HOME, ContainerState.GONE, EndReason.CONTAINER_MAX_AGE),
]


class MemoryTests(TestCase):
    def test_every_prefix_of_a_journal_can_be_folded(self) -> None:
        for length in range(len(STORY) + 1):
            grown = Memory.of(STORY[: length // 2])
            for record in STORY[length // 2 : length]:
                grown.add(record)
            self.assertEqual(grown, Memory.of(STORY[:length]))

    def test_a_live_session_is_remembered_with_its_key(self) -> None:
        memory = Memory.of(STORY[:6])
        self.assertEqual(
            memory.sessions,
            {A: RememberedSession(HOME, ANN, 20.0, 11.0), B: RememberedSession(HOME, ANN, 30.0, 12.0)},
        )
        self.assertEqual(memory.keys, {A: BOUND})
        self.assertEqual(memory.containers, {HOME: RememberedContainer(DEPLOYMENT, 10.0, 100.0, ContainerState.READY)})

    def test_a_container_that_drains_takes_its_sessions_along_but_not_those_with_a_reason_of_their_own(self) -> None:
        memory = Memory.of(STORY[:8])
        self.assertEqual(
            {session: kept.drains for session, kept in memory.sessions.items()},
            {A: EndReason.CONTAINER_MAX_AGE, B: EndReason.TERMINATED},
        )

    def test_in_the_end_there_are_tombstones_and_nothing_else(self) -> None:
        memory = Memory.of(STORY)
        self.assertEqual((memory.containers, memory.sessions, memory.keys), ({}, {}, {}))
        self.assertEqual(
            memory.ended,
            {A: (EndReason.CONTAINER_MAX_AGE, None, 410.0), B: (EndReason.TERMINATED, None, 410.0)},
        )

    def test_a_tombstone_is_forgotten_once_its_token_has_expired(self) -> None:
        memory = Memory.of(STORY[:9])
        memory.add(SessionCreated(C, HOME, ANN, 30.0, 409.9))
        self.assertEqual(list(memory.ended), [A])
        memory.add(SessionCreated(D, HOME, ANN, 30.0, 410.0))
        self.assertEqual(memory.ended, {})
        self.assertEqual(set(memory.sessions), {B, C, D})

    def test_beyond_their_number_the_oldest_tombstones_go(self) -> None:
        self.patch(memories, "CAPACITY", 2)
        ends = [EndSession(session, HOME, EndReason.TERMINATED, None, 410.0) for session in (A, B, C)]
        self.assertEqual(list(Memory.of(ends).ended), [B, C])

    def test_keys_are_not_shown(self) -> None:
        memory = Memory.of(STORY[:6])
        self.assertNotIn("kkkk", repr(memory) + repr(BOUND))
