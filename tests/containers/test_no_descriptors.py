"""Without descriptors nobody can be looked at, and nobody is taken for dead."""

from __future__ import annotations

import os
from pathlib import Path

from twisted.internet import reactor
from twisted.trial.unittest import TestCase

from sticky.containers import adopted
from sticky.containers.adopted import Stranger
from sticky.containers.census import Census, boot_id, environ, look
from sticky.containers.cgroups import Group
from sticky.containers.knocking import Knocker, http_status
from sticky.containers.place import Place
from sticky.core.values import ContainerId
from sticky.exhaustion import is_ours
from sticky.isticky import Address, TCPAddress, UNIXAddress
from tests.fakes.descriptors import no_descriptors_left
from tests.integration.process_case import REACTOR

TCP = TCPAddress("127.0.0.1", 1)


def place() -> Place:
    """Where this very process is."""
    process = look(os.getpid())
    assert process is not None
    return Place(boot_id(), os.getpid(), process.started, 1, (TCP,), False)


class NoDescriptorsTests(TestCase):
    def test_looking_fails_instead_of_finding_nothing(self) -> None:
        (folder := Path(self.mktemp())).mkdir()
        (folder / "cgroup.procs").write_text("1\n")
        us = os.getpid()
        for look_at in (boot_id, Census.take, Group((folder,)).members, lambda: look(us), lambda: environ(us)):
            look_at()
            with no_descriptors_left():
                error = self.assertRaises(OSError, look_at)
            self.assertTrue(is_ours(error), error)

    def test_a_container_is_not_taken_for_lost(self) -> None:
        ours = place()
        with no_descriptors_left():
            error = self.assertRaises(OSError, adopted.find, REACTOR, ContainerId("ct-1"), ours, "")
        self.assertTrue(is_ours(error))

    def test_nor_where_the_last_descriptor_goes_to_its_pidfd(self) -> None:
        ours = place()
        opened: list[int] = []

        def the_last(pid: int) -> int:
            opened.append(os.pidfd_open(pid))
            limited.__enter__()
            return opened[0]

        limited = no_descriptors_left()
        try:
            error = self.assertRaises(OSError, adopted.find, REACTOR, ContainerId("ct-1"), ours, "", the_last)
        finally:
            limited.__exit__(None, None, None)
        self.assertTrue(is_ours(error))
        self.assertRaises(OSError, os.fstat, opened[0])

    def test_one_that_is_watched_without_a_pidfd_still_runs(self) -> None:
        stranger = Stranger(REACTOR, place(), None)
        with no_descriptors_left():
            self.assertTrue(stranger.running())

    async def test_neither_port_nor_probe_says_that_nobody_answers(self) -> None:
        addresses: list[Address] = [TCP, UNIXAddress(self.mktemp())]
        for address in addresses:
            self.assertFalse(Knocker().knock(address))
            with no_descriptors_left():
                error = self.assertRaises(OSError, Knocker().knock, address)
                failing = http_status(REACTOR, address, "/")
            self.assertTrue(is_ours(error))
            try:
                await failing
            except Exception as problem:
                self.assertTrue(is_ours(problem), repr(problem))
            else:
                self.fail("nobody was asked, and yet there is a status")

    def tearDown(self) -> None:
        self.assertEqual(reactor.getDelayedCalls(), [])
