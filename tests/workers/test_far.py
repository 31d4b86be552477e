"""A proxy that reaches a daemon: what it cannot make sense of ends the link, so that nobody waits for an answer that never comes."""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from sticky.workers import messages
from sticky.workers.far import TRY_EVERY, FarDaemon
from sticky.workers.frames import _LENGTH, LEAVES_WITHIN, LONGEST
from sticky.workers.messages import TRY_FOR
from tests.fakes.links import End


class FakeReactor(Clock):
    """Connects nowhere, and remembers to whom."""

    factory: Any = None

    def __init__(self) -> None:
        super().__init__()
        self.attempts: list[tuple[str, Any]] = []

    def connectUNIX(self, path: str, factory: Any, timeout: float) -> None:
        self.factory = factory
        self.attempts.append((path, factory))


class Transport(End):
    """One that remembers how it was closed."""

    how = ""

    def loseConnection(self) -> None:
        self.how = "left"
        self.closed = True

    def abortConnection(self) -> None:
        self.how = "cut"
        self.closed = True


class FarDaemonTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.reactor = FakeReactor()
        self.welcomes: list[Any] = []
        self.lost = 0
        self.far = FarDaemon(
            self.reactor,
            "p",
            welcomed=self.welcomed,
            lost=self.on_lost,
            close=self.close,
            stop=lambda: None,
            moved=lambda within: None,
            tally=dict,
        )
        self.addCleanup(self.far.leave)
        self.far.connect("\0there")
        self.link = self.reactor.factory.buildProtocol(None)
        self.transport = Transport()
        self.link.makeConnection(self.transport)

    def welcomed(self, config: Any) -> object:
        if config == "nonsense":
            raise ValueError("it has no such field")
        self.welcomes.append(config)
        return config

    def on_lost(self) -> None:
        self.lost += 1

    def close(self, code: int, reason: str) -> Deferred[None]:
        return succeed(None)

    def answer(self, **fields: object) -> None:
        data = json.dumps({"re": 1, **fields}).encode()
        self.link.dataReceived(_LENGTH.pack(len(data)) + data)

    def test_one_that_is_welcome_stays(self) -> None:
        self.answer(config={}, over=[])
        self.assertEqual((self.welcomes, self.transport.closed), ([{}], False))

    def test_another_configuration_is_taken_and_acknowledged(self) -> None:
        self.answer(config={}, over=[])
        self.transport.sent = b""
        data = json.dumps({"do": "configure", "id": 7, "config": {"more": 1}}).encode()
        self.link.dataReceived(_LENGTH.pack(len(data)) + data)
        self.assertEqual((self.welcomes[1:], self.transport.sent[4:]), ([{"more": 1}], b'{"re":7}'))

    def test_a_configuration_that_cannot_be_read_ends_the_link_and_is_why(self) -> None:
        self.answer(config="nonsense", over=[])
        self.assertEqual(self.transport.how, "left")
        self.link.connectionLost()
        self.assertEqual((self.lost, self.far.ended_for), (1, "the daemon takes no proxy: it has no such field"))

    def test_a_daemon_that_refuses_ends_the_link_and_is_why(self) -> None:
        self.answer(refused={"kind": "BadRequest", "status": 400, "code": "bad_request", "message": "no"})
        self.assertEqual((self.transport.how, self.far.ended_for), ("left", "the daemon takes no proxy: no"))

    def test_a_daemon_that_takes_nothing_any_more_is_not_waited_for(self) -> None:
        self.answer(config="nonsense", over=[])
        self.reactor.advance(LEAVES_WITHIN)
        self.assertEqual(self.transport.how, "cut")

    def test_nonsense_of_a_daemon_ends_the_link_when_the_line_about_it_has_gone_out(self) -> None:
        self.answer(config={}, over=[])
        with capturedLogs() as lines:
            self.link.dataReceived(_LENGTH.pack(2) + b"[]")
        self.assertEqual(([formatEvent(line) for line in lines], self.transport.how), (
            ["a link between processes is closed: a message that is no object"], "left"
        ))  # fmt: skip
        self.link.connectionLost()
        self.assertEqual(self.far.ended_for, "the daemon has said what it must not: a message that is no object")

    def test_a_daemon_that_is_gone_needs_no_words(self) -> None:
        self.answer(config={}, over=[])
        self.link.connectionLost()
        self.assertEqual((self.lost, self.far.ended_for), (1, ""))

    def test_one_that_is_gone_before_it_has_answered_has_turned_nobody_away(self) -> None:
        with capturedLogs() as lines:
            self.link.connectionLost()
        self.assertEqual((self.lost, self.far.ended_for, lines), (1, "", []))
        self.assertEqual(self.transport.how, "")

    def say(self, **message: object) -> None:
        data = json.dumps(message).encode()
        self.link.dataReceived(_LENGTH.pack(len(data)) + data)

    def hello(self) -> Any:
        """What the daemon that was reached last has been told first."""
        return json.loads(self.reach(self.reactor.factory).sent[4:])

    def test_one_that_is_sent_on_comes_as_one_that_the_next_daemon_expects(self) -> None:
        self.answer(config={}, over=[])
        self.say(do="move", socket="\0next", within=5.0)
        self.assertEqual((self.reactor.attempts[-1][0], self.hello()["moved"]), ("\0next", True))

    def test_one_that_is_sent_on_unheard_comes_as_it_came_to_the_daemon_that_has_not_heard_it(self) -> None:
        """That one counts those whom it has heard, and those whom it has been told to expect."""
        self.say(do="move", socket="\0next", within=5.0)
        self.assertFalse(self.hello()["moved"])
        self.far.connect("\0another", moved=True)
        self.link = self.reactor.factory.buildProtocol(None)
        self.link.makeConnection(End())
        self.say(do="move", socket="\0next", within=5.0)
        self.assertTrue(self.hello()["moved"])

    def said(self) -> list[Any]:
        """What a daemon that is reached now is told at once."""
        self.far.connect("\0next", moved=True)
        told, said = self.reach(self.reactor.factory).sent, []
        while told:
            (length,) = _LENGTH.unpack_from(told)
            said.append(json.loads(told[4 : 4 + length]))
            told = told[4 + length :]
        return said

    def test_what_is_held_is_told_in_so_many_messages_as_it_takes(self) -> None:
        self.patch(messages, "AT_ONCE", 2)
        self.patch(self.far.routing, "held", lambda: ["a", "b", "c"])
        self.patch(self.far.visits, "held", lambda: ["v", "w"])
        first, second, hello = self.said()
        self.assertEqual(first, {"do": "held", "holds": ["a", "b"], "turns": [], "visits": []})
        self.assertEqual(second, {"do": "held", "holds": ["c"], "turns": [], "visits": ["v"]})
        self.assertEqual((hello["do"], hello["holds"], hello["turns"], hello["visits"]), ("hello", [], [], ["w"]))
        self.assertEqual(hello["versions"], [2], "one of version 1 would take what it does not know of for free")

    def test_what_fits_is_told_with_the_hello_and_so_to_a_daemon_of_the_first_version_too(self) -> None:
        self.patch(messages, "AT_ONCE", 2)
        self.patch(self.far.routing, "held", lambda: ["a", "b"])
        (hello,) = self.said()
        self.assertEqual((hello["do"], hello["holds"], hello["versions"]), ("hello", ["a", "b"], [1, 2]))

    def test_a_message_has_room_for_that_much_with_the_longest_names(self) -> None:
        hold = {"session": 64 * "x", "server": 128 * "x", "container": 200 * "x", "in_flight": 10**6, "idle_for": 1e-17}
        self.assertLess(messages.AT_ONCE * len(json.dumps({**hold, "counts": False})), LONGEST / 2)

    def test_a_daemon_that_sends_a_proxy_on_unheard_has_not_turned_it_away(self) -> None:
        with capturedLogs() as lines:
            self.say(do="move", socket="\0next", within=5.0)
            self.answer(refused={"kind": "BadRequest", "status": 400, "code": "bad_request", "message": "too late"})
            self.link.connectionLost()
        self.assertEqual((lines, self.lost), ([], 0))

    def reach(self, factory: Any) -> End:
        link, transport = factory.buildProtocol(None), End()
        link.makeConnection(transport)
        return transport

    def test_one_that_is_sent_on_before_it_has_reached_a_daemon_is_the_next_ones_alone(self) -> None:
        self.far.connect("\0first")
        self.far.connect("\0second")
        (_, first), (_, second) = self.reactor.attempts[1:]
        chosen = self.reach(second)
        late = self.reach(first)
        self.assertTrue(late.closed)
        self.assertEqual(late.sent, b"", "no hello where it is nobody's proxy")
        self.assertIn(b"hello", chosen.sent)
        self.assertFalse(chosen.closed)
        first.clientConnectionFailed(None, None)
        self.reactor.advance(60)
        self.assertEqual((len(self.reactor.attempts), self.lost), (3, 0))

    def test_one_that_has_left_reaches_nobody(self) -> None:
        self.far.connect("\0again")
        self.far.leave()
        self.assertTrue(self.reach(self.reactor.factory).closed)
        self.reactor.factory.clientConnectionFailed(None, None)
        self.reactor.advance(60)
        self.assertEqual((len(self.reactor.attempts), self.lost), (2, 0))

    def test_a_daemon_that_cannot_be_reached_is_tried_for_a_while(self) -> None:
        self.far.connect("\0nowhere")
        while not self.lost:
            self.reactor.attempts[-1][1].clientConnectionFailed(None, None)
            self.reactor.advance(TRY_EVERY)
            self.assertLess(self.reactor.seconds(), 2 * TRY_FOR)
        self.assertGreaterEqual(self.reactor.seconds(), TRY_FOR)
        self.assertEqual(self.far.ended_for, "the daemon could not be reached within 10 s")
