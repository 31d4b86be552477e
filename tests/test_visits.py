"""Requests of plain Servers as the daemon lets them in, whoever brings them: judged, counted where they are, told before the end."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from zope.interface import implementer

from sticky import errors
from sticky.core.events import PolicyChanged
from sticky.core.values import ContainerId, EndReason, Policy
from sticky.daemon import Servers
from sticky.isticky import ControlRequest, IToldHolder, Visit
from tests.test_service import NAME, Holder, ServiceCase

SHOWN = ControlRequest(NAME, False, False, b"GET", b"/", b"", (), "::1", True)


@implementer(IToldHolder)
class FarHolder(Holder):
    """One in another process, that has acknowledged what it is told when `settled_by` fires."""

    settled_by: Deferred[None]

    def settled(self) -> Deferred[None]:
        return self.settled_by


class DoorTests(ServiceCase):
    def setUp(self) -> None:
        super().setUp()
        self.build(sessioned=False)
        self.servers = Servers([self.service])
        self.assertRaises(errors.NoContainerReady, self.servers.begin, Visit(NAME), Holder())
        self.ready()
        self.box = self.backend.spawned[0].id

    def requests(self) -> int:
        return sum(box.requests for box in self.service.fleet.capacity.containers.values())

    def test_what_nobody_has_judged_is_not_let_in(self) -> None:
        self.assertRaises(errors.Unavailable, self.servers.begin, Visit(NAME, b"", SHOWN), Holder())
        self.assertEqual(self.requests(), 0)

    def test_once_the_server_is_sessioned_nobody_new_comes_in_who_set_out_before(self) -> None:
        self.servers.begin(Visit(NAME), Holder())
        self.service.fleet.step(self.clock.seconds(), PolicyChanged(Policy()))
        self.assertRaises(errors.NoCredential, self.servers.begin, Visit(NAME), Holder())
        self.servers.begin(Visit(NAME, container=self.box), Holder())  # let in when it was plain, by an earlier daemon
        self.assertEqual(self.requests(), 2)

    def test_one_that_is_somewhere_already_counts_there(self) -> None:
        lease = self.service.visit(b"", Holder(), self.box)
        self.assertEqual((lease.container, lease.address), (self.box, self.backend.spawned[0].address))
        self.assertEqual((self.service.visitors(), self.requests()), ([lease], 1))
        lease.release()
        self.assertEqual((self.service.visitors(), self.requests()), ([], 0))

    def test_where_its_container_is_gone_it_is_over(self) -> None:
        self.assertRaises(errors.ContainerUnavailable, self.service.visit, b"", Holder(), ContainerId("ct-gone"))
        self.assertEqual(self.requests(), 0)

    def test_a_container_is_asked_to_go_when_holders_in_other_processes_know(self) -> None:
        far = FarHolder()
        far.settled_by = Deferred()
        self.service.visit(b"", far)
        self.service.stop_container(self.box)
        self.assertEqual(far.told, [(EndReason.SERVER_STOPPED, None)])
        self.assertEqual(self.backend.spawned[0].signals, [])
        far.settled_by.callback(None)
        self.assertEqual(self.backend.spawned[0].signals, ["TERM"])
        self.clock.advance(1)
