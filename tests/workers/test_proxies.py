"""All proxies of a daemon at once: what they must know reaches each, or it is cut off, and those on their way are waited for."""

from __future__ import annotations

import os
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from sticky import errors
from sticky.core.values import EndReason
from sticky.edge.forwarding import TrustedProxies
from sticky.edge.limits import EdgeLimits, EdgeSettings
from sticky.workers import messages, proxies
from sticky.workers.config import ProxyConfig
from sticky.workers.frames import LinkLost
from sticky.workers.pool import Seat
from sticky.workers.proxies import Proxies
from sticky.workers.views import views
from tests.fakes.links import Wire

CONFIG = ProxyConfig(
    brand="modal",
    edge=EdgeSettings(limits=EdgeLimits(), trusted_proxies=TrustedProxies()),
    keys={},
    sites=(),
    serial=frozenset(),
    access_log="off",
    access_log_format="text",
)


class ProxiesCase(SynchronousTestCase):
    def setUp(self) -> None:
        self.uid = os.geteuid()
        self.patch(proxies, "peer", lambda transport: (os.getpid(), self.uid))
        self.clock = Clock()
        nobody: Any = None
        self.proxies = Proxies(self.clock, nobody, nobody, nobody, lambda: CONFIG, lambda address: None)
        self.configured: list[str] = []

    def enter(self, name: str, *, moved: bool = False) -> Wire:
        """A proxy says hello; what it is told after that waits on its wire."""
        wire = Wire(self.clock)
        wire.far.serves = {messages.CONFIGURE: lambda message: self.configured.append(name)}
        self.proxies.enter(wire.near)
        hello = wire.far.ask(messages.HELLO, versions=[messages.VERSION], name=name, moved=moved, holds=[], turns=[])
        wire.run()
        self.successResultOf(hello)
        self.clock.advance(0)
        return wire


class HelloTests(ProxiesCase):
    def test_one_that_speaks_another_version_is_refused_and_told_which_is_spoken_here(self) -> None:
        wire = Wire(self.clock)
        self.proxies.enter(wire.near)
        hello = wire.far.ask(messages.HELLO, versions=[98, 99], name="newer", moved=False, holds=[], turns=[])
        wire.run()
        refused = self.failureResultOf(hello, errors.BadRequest)
        self.assertIn("versions 1 and 2 of the protocol, not [98, 99]", refused.getErrorMessage())
        self.assertEqual(self.proxies.members, [])

    def test_the_log_says_that_one_was_refused(self) -> None:
        """It cannot itself: of one that is not let in no line for the log is taken."""
        wire = Wire(self.clock)
        self.proxies.enter(wire.near)
        wire.far.ask(messages.HELLO, versions=[99], name="newer", moved=False, holds=[], turns=[]).addErrback(str)
        with capturedLogs() as lines:
            wire.run()
        self.assertEqual([line["versions"] for line in lines if "versions" in line], [[99]])

    def test_one_that_speaks_this_one_too_is_let_in(self) -> None:
        for versions, spoken in (([messages.VERSION, 99], messages.VERSION), ([1], 1)):
            wire = Wire(self.clock)
            self.proxies.enter(wire.near)
            hello = wire.far.ask(messages.HELLO, versions=versions, name="newer", moved=False, holds=[], turns=[])
            wire.run()
            self.assertEqual(self.successResultOf(hello)["version"], spoken)


class PartsTests(ProxiesCase):
    """What a proxy holds may take several messages, and so may what of it is over."""

    def setUp(self) -> None:
        super().setUp()
        self.patch(messages, "OVER_AT_ONCE", 2)
        routing: Any = self
        self.proxies._routing = routing
        self.proxies._resume = self.begin
        self.wire = Wire(self.clock)
        self.proxies.enter(self.wire.near)

    def begin(self, asked: Any, holder: object, websocket: bool = False) -> Any:
        raise errors.SessionEnded("terminated")

    def lists(self, number: int) -> dict[str, list[dict[str, object]]]:
        one = {"request": number, "server": "s", "container": "c"}
        held = {"in_flight": 0, "idle_for": 0.0, "counts": True}
        return {
            "holds": [{"session": f"hold-{number}", **one, **held}],
            "turns": [{"session": f"turn-{number}", **one}],
            "visits": [{**one, "counts": True}],
        }

    def test_all_of_it_is_taken_up_and_what_is_over_is_told_in_its_order(self) -> None:
        told: list[object] = []
        self.wire.far.serves = {
            messages.END: lambda message: told.append((message["session"], message["reason"], message["detail"])),
            messages.CUT: lambda message: told.append((message["request"], message["reason"])),
        }
        for number in (1, 2):
            self.wire.far.tell(messages.HELD, **self.lists(number))
        hello = self.wire.far.ask(messages.HELLO, versions=[2], name="p", moved=False, **self.lists(3))
        self.wire.run()
        welcome = self.successResultOf(hello)
        self.assertEqual([one["session"] for one in welcome["over"]], ["hold-1", "turn-1"])
        self.assertEqual([one["request"] for one in welcome["cut"]], [1, 2])
        self.clock.advance(0)
        self.wire.run()
        ended = [(session, "terminated", None) for session in ("hold-2", "turn-2", "hold-3", "turn-3")]
        self.assertEqual(told, [*ended, (3, EndReason.CONTAINER_LOST.value)])
        self.assertEqual(self.clock.getDelayedCalls(), [])


class StrangerTests(ProxiesCase):
    def knock(self) -> Wire:
        wire = Wire(self.clock)
        self.proxies.enter(wire.near)
        return wire

    def test_nothing_is_kept_of_one_of_another_user_and_it_is_told_nothing(self) -> None:
        self.uid = os.geteuid() + 1
        wire = self.knock()
        self.assertTrue(wire._ends[wire.near].closed)
        self.assertEqual((wire.near.serves, self.proxies._entering), ({}, set()))

    def test_root_is_taken_as_our_own_user_is_and_forgotten_when_it_has_gone(self) -> None:
        for self.uid in (0, os.geteuid()):
            wire = self.knock()
            self.assertEqual(self.proxies._entering, {wire.near})
            wire.lose()
            self.assertEqual(self.proxies._entering, set())

    def test_a_line_a_minute_says_how_many_there_were(self) -> None:
        self.uid = os.geteuid() + 1
        with capturedLogs() as lines:
            for seconds in (0.0, 1.0, 58.0, 1.0, 1.0):
                self.clock.advance(seconds)
                self.knock()
        said = [(line["uid"], line["count"]) for line in lines if "count" in line]
        self.assertEqual(said, [(self.uid, 1), (self.uid, 3)])


class SilenceTests(ProxiesCase):
    def report(self, wire: Wire) -> None:
        wire.far.tell(messages.REPORTED, counts=[])

    def test_one_that_does_not_report_is_cut_off_and_others_are_not(self) -> None:
        silent, other = (self.enter(f"worker-{number}") for number in (1, 2))
        self.report(other)
        self.clock.advance(messages.STALLED - 1)
        other.run()
        self.proxies._look()
        self.assertEqual(len(self.proxies.members), 2)
        self.clock.advance(1)
        silent.run()
        self.assertEqual([member.name for member in self.proxies.members], ["worker-2"])

    def test_one_whose_report_has_come_while_this_process_stood_still_is_left_in_peace(self) -> None:
        wire = self.enter("worker-1")
        self.report(wire)
        self.clock.rightNow += messages.STALLED + 1
        self.proxies._look()
        wire.run()  # as a reactor reads before it calls what is due next
        self.clock.advance(0)
        self.assertEqual([member.name for member in self.proxies.members], ["worker-1"])


class ConfigureTests(ProxiesCase):
    def test_it_fires_when_the_last_one_has_acknowledged(self) -> None:
        wires = [self.enter(f"worker-{number}") for number in (1, 2)]
        told = self.proxies.configure()
        wires[0].run()
        self.assertNoResult(told)
        wires[1].run()
        self.assertEqual(self.successResultOf(told), ())
        self.assertEqual(self.configured, ["worker-1", "worker-2"])

    def test_one_that_is_silent_is_named_and_cut_off(self) -> None:
        wires = [self.enter(f"worker-{number}") for number in (1, 2)]
        told = self.proxies.configure()
        wires[0].run()
        self.clock.advance(messages.SILENCE)
        self.clock.advance(messages.STARVED)
        self.assertEqual(self.successResultOf(told), ("worker-2",))
        self.assertTrue(wires[1]._ends[wires[1].near].closed)
        again = self.proxies.configure()
        wires[0].run()
        self.assertEqual(self.successResultOf(again), (), "it was named already")

    def test_one_that_dies_is_named(self) -> None:
        wire = self.enter("worker-1")
        told = self.proxies.configure()
        wire.lose()
        self.assertEqual(self.successResultOf(told), ("worker-1",))

    def test_one_that_had_it_and_dies_before_others_have_it_is_not(self) -> None:
        wires = [self.enter(f"worker-{number}") for number in (1, 2)]
        told = self.proxies.configure()
        wires[0].run()
        wires[0].lose()
        wires[1].run()
        self.assertEqual(self.successResultOf(told), ())

    def test_where_there_is_none_it_fires_at_once(self) -> None:
        self.assertEqual(self.successResultOf(self.proxies.configure()), ())


class ExpectedTests(ProxiesCase):
    def test_those_on_their_way_are_waited_for_until_they_go_by_what_they_were_told(self) -> None:
        self.proxies.expect(2)
        complete, told = self.proxies.complete(), self.proxies.configure()
        assert complete is not None
        wires = [self.enter("worker-1", moved=True), self.enter("earlier daemon", moved=True)]
        self.enter("worker-1 of ours")
        wires[0].run()
        self.assertNoResult(complete)
        wires[1].run()
        self.successResultOf(complete)
        self.assertEqual(self.successResultOf(told), ())
        self.assertIsNone(self.proxies.complete())

    def test_one_that_does_not_come_is_waited_for_as_long_as_it_may_serve(self) -> None:
        self.proxies.expect(1)
        complete, gathered = self.proxies.complete(), self.proxies.gathered(1.0)
        assert complete is not None
        self.clock.advance(1.0)
        self.successResultOf(gathered)
        self.assertNoResult(complete)
        self.clock.advance(messages.TRY_FOR)
        self.successResultOf(complete)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_one_that_dies_on_its_way_in_is_not_waited_for(self) -> None:
        self.proxies.expect(1)
        complete = self.proxies.complete()
        assert complete is not None
        self.enter("worker-1", moved=True).lose()
        self.successResultOf(complete)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_where_none_is_expected_nobody_waits(self) -> None:
        self.proxies.expect(0)
        self.assertIsNone(self.proxies.complete())
        self.successResultOf(self.proxies.gathered(1.0))


class RestingTests(ProxiesCase):
    """While this daemon rests for the next one it decides nothing, for those who come in that moment either."""

    def setUp(self) -> None:
        super().setUp()
        self.member = self.enter("worker-1")
        self.proxies.rest()

    def hello(self, wire: Wire, *, moved: bool = False) -> Deferred[Any]:
        """Somebody comes and says hello, and it is sent."""
        self.proxies.enter(wire.near)
        hello = wire.far.ask(messages.HELLO, versions=[messages.VERSION], name="late", moved=moved, holds=[], turns=[])
        wire.run()
        return hello

    def sent_to(self, wire: Wire) -> list[tuple[str, float]]:
        sent: list[tuple[str, float]] = []
        wire.far.serves = {messages.MOVE: lambda message: sent.append((message["socket"], message["within"]))}
        wire.run()
        return sent

    def test_one_that_comes_meanwhile_is_let_in_when_this_daemon_goes_on(self) -> None:
        wire = Wire(self.clock)
        hello = self.hello(wire)
        self.assertNoResult(hello)
        self.assertEqual(len(self.proxies.members), 1)
        self.proxies.wake()
        wire.run()
        self.successResultOf(hello)
        self.assertEqual([member.name for member in self.proxies.members], ["worker-1", "late"])

    def test_one_that_is_connected_and_has_not_said_hello_rests_too(self) -> None:
        self.proxies.wake()
        wire = Wire(self.clock)
        self.proxies.enter(wire.near)
        self.proxies.rest()
        wire.far.ask(messages.HELLO, versions=[messages.VERSION], name="late", moved=False, holds=[], turns=[])
        wire.run()
        self.assertEqual(len(self.proxies.members), 1)

    def test_one_that_comes_meanwhile_is_sent_on_unheard_and_this_one_is_over_when_all_have_left(self) -> None:
        wire = Wire(self.clock)
        hello = self.hello(wire)
        left = self.proxies.move("\0there", 5.0)
        self.assertEqual([self.sent_to(wire), self.sent_to(self.member)], [[("\0there", 5.0)], [("\0there", 5.0)]])
        self.assertNoResult(hello)
        self.assertEqual(len(self.proxies.members), 1)
        self.member.lose()
        self.assertNoResult(left)
        wire.lose()
        self.failureResultOf(hello, LinkLost)
        self.successResultOf(left)

    def test_one_that_comes_when_the_other_one_is_in_charge_is_not_taken(self) -> None:
        self.proxies.move("\0there", 5.0)
        wire = Wire(self.clock)
        self.proxies.enter(wire.near)
        self.assertTrue(wire._ends[wire.near].closed)

    def test_how_many_move_does_not_grow_meanwhile(self) -> None:
        self.assertEqual(self.proxies.moving, 1)
        self.hello(Wire(self.clock))
        self.assertEqual(self.proxies.moving, 1)

    def test_those_that_an_earlier_daemon_has_sent_here_move_too_each_of_them_once(self) -> None:
        self.proxies.wake()
        self.proxies.expect(2)
        acknowledges_later = self.enter("earlier worker", moved=True)
        self.proxies.rest()
        self.assertEqual(self.proxies.moving, 3)
        self.proxies.wake()
        acknowledges_later.run()
        self.proxies.rest()
        self.assertEqual(self.proxies.moving, 3)

    def test_those_on_their_way_here_are_not_given_up_while_they_cannot_be_heard(self) -> None:
        self.proxies.wake()
        self.proxies.expect(1)
        complete = self.proxies.complete()
        assert complete is not None
        self.proxies.rest()
        self.assertEqual(self.clock.getDelayedCalls(), [])
        wire = Wire(self.clock)
        self.hello(wire, moved=True)
        self.clock.advance(messages.TRY_FOR + 1)
        self.assertNoResult(complete)
        wire.far.serves = {messages.CONFIGURE: lambda message: None}
        self.proxies.wake()
        wire.run()
        self.clock.advance(0)
        wire.run()
        self.successResultOf(complete)

    def test_those_on_their_way_here_have_their_time_from_the_moment_when_they_can_be_heard(self) -> None:
        self.proxies.wake()
        self.proxies.expect(1)
        complete = self.proxies.complete()
        assert complete is not None
        self.proxies.rest()
        self.proxies.wake()
        self.clock.advance(messages.TRY_FOR - 1)
        self.assertNoResult(complete)
        self.clock.advance(1)
        self.successResultOf(complete)

    def test_whoever_waits_for_those_on_their_way_goes_on_though_another_daemon_is_in_charge_by_then(self) -> None:
        self.proxies.wake()
        self.proxies.expect(1)
        complete = self.proxies.complete()
        assert complete is not None
        self.proxies.rest()
        self.proxies.move("\0there", 5.0)
        self.clock.advance(messages.TRY_FOR)
        self.successResultOf(complete)

    def test_one_that_has_just_come_in_is_not_cut_off_for_what_it_is_told_then(self) -> None:
        self.proxies.wake()
        self.proxies.expect(1)
        wire = Wire(self.clock)
        self.hello(wire, moved=True)
        self.proxies.rest()  # in the same turn
        for seconds in (0.0, messages.SILENCE, messages.STARVED, messages.STALLED):
            self.clock.advance(seconds)
        self.assertFalse(wire._ends[wire.near].closed)

    def test_to_go_on_where_it_has_not_rested_changes_nothing(self) -> None:
        """Something else could not rest."""
        self.proxies.socket = "\0here"
        self.proxies.wake()
        timers = len(self.clock.getDelayedCalls())
        self.proxies.wake()
        self.assertEqual(len(self.clock.getDelayedCalls()), timers)


class SeatStub:
    """As much of `pool.Worker` as an operator sees."""

    def __init__(self, name: str, member: Any, state: Seat, starts: int) -> None:
        self.name, self.member, self.state, self.starts = name, member, state, starts
        self.pid = None if member is None else 51
        self.born = 2.0


class ViewsTests(ProxiesCase):
    def test_workers_then_whoever_came_from_an_earlier_daemon(self) -> None:
        self.enter("worker-1").far.tell(
            messages.REPORTED, counts=[], clients=4, websockets=1, answered=9, bytes_in=0, bytes_out=0, requests={}
        )
        self.enter("earlier daemon", moved=True)
        self.clock.advance(5.0)
        ours = self.proxies.members[0]
        seats: Any = [SeatStub("worker-1", ours, Seat.SERVING, 3), SeatStub("worker-2", None, Seat.EMPTY, 1)]
        first, second, third = views(seats, self.proxies.members, self.clock.seconds())
        self.assertEqual(
            (first.name, first.state, first.pid, first.age, first.restarts), ("worker-1", "serving", 51, 3.0, 2)
        )
        self.assertEqual((second.state, second.pid, second.age, second.restarts), ("empty", None, None, 0))
        self.assertEqual((third.name, third.state, third.pid), ("earlier daemon", "leaving", os.getpid()))
        assert third.age is not None
        self.assertGreater(third.age, 0.0)
        self.assertEqual((first.in_flight, first.sessions), (0, 0))
