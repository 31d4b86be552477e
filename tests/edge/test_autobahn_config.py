"""Everything of Autobahn that the relay relies on, by name; and that a connection of ours keeps nothing of its own."""

from __future__ import annotations

import inspect
from typing import Any, cast

from autobahn.twisted import websocket as twisted_websocket
from autobahn.websocket import protocol
from autobahn.websocket.protocol import WebSocketProtocol
from twisted.internet.task import Clock
from twisted.logger import ILogObserver, globalLogPublisher
from twisted.trial.unittest import TestCase

from sticky.edge.autobahn_config import (
    CLIENT,
    SERVER,
    Quiet,
    Quietly,
    client_factory,
    configured,
    plain_names,
    server_factory,
)
from sticky.edge.legs import ClientLeg, ContainerLeg

BOTH = (twisted_websocket.WebSocketServerProtocol, twisted_websocket.WebSocketClientProtocol)


class NamesTests(TestCase):
    def test_what_colours_names_for_logs_is_where_we_put_something_plain_in_its_place(self) -> None:
        self.assertTrue(plain_names())
        self.assertTrue(plain_names())
        for module in (twisted_websocket, protocol):
            self.assertEqual(module.hltype(self.setUp), "<method>")

    def test_the_methods_that_we_call_or_replace_exist(self) -> None:
        for leg in BOTH:
            for name in (
                "processHandshake",
                "failHandshake",
                "sendData",
                "sendPing",
                "sendCloseFrame",
                "dropConnection",
                "onConnect",
                "onOpen",
                "dataReceived",
                "connectionLost",
                "_connectionMade",
            ):
                self.assertTrue(callable(getattr(leg, name)), name)
        self.assertTrue(callable(BOTH[0].succeedHandshake))
        self.assertEqual(
            list(inspect.signature(WebSocketProtocol.sendData).parameters)[1:], ["data", "sync", "chopsize"]
        )
        self.assertEqual(
            list(inspect.signature(WebSocketProtocol.sendCloseFrame).parameters)[1:3], ["code", "reasonUtf8"]
        )

    def test_the_states_that_we_read_exist(self) -> None:
        states = [WebSocketProtocol.STATE_CONNECTING, WebSocketProtocol.STATE_OPEN, WebSocketProtocol.STATE_CLOSING]
        self.assertEqual(len(set(states)), 3)

    def test_what_a_class_has_to_hold_in_place_of_its_instances_is_what_autobahn_reads(self) -> None:
        source = inspect.getsource(WebSocketProtocol.__init__)
        for name in ("is_open", "is_closed", "_transport_details"):
            self.assertIn(f"self.{name}", source)
        for leg in BOTH:
            self.assertIn("log", vars(leg))
            self.assertTrue(leg.CONFIG_ATTRS)

    def test_what_message_mode_replaces_or_reads_exists(self) -> None:
        for name in (
            "consumeData",
            "processData",
            "onMessageBegin",
            "onMessageFrameBegin",
            "onMessageFrameData",
            "onMessageFrameEnd",
            "onMessageEnd",
            "onPing",
            "onPong",
            "onCloseFrame",
            "sendMessage",
            "sendPing",
            "sendPong",
            "_fail_connection",
            "_protocol_violation",
            "_invalid_payload",
            "_parseExtensionsHeader",
        ):
            self.assertTrue(callable(getattr(WebSocketProtocol, name)), name)
        source = inspect.getsource(WebSocketProtocol)
        for name in (
            "failedByMe",
            "current_frame_masker",
            "utf8validator",
            "_perMessageCompress",
            "maxMessagePayloadSize",
        ):
            self.assertIn(f"self.{name}", source)
        self.assertIn(1011, WebSocketProtocol.CLOSE_STATUS_CODES_ALLOWED)

    def test_the_accelerated_unmasking_is_there(self) -> None:
        # Without it message mode unmasks in Python: 77 messages of 64 KiB a second.
        from autobahn.websocket.xormasker import create_xor_masker

        self.assertIn("nvx", create_xor_masker.__module__)

    def test_all_options_are_known(self) -> None:
        server, client = server_factory(Clock()), client_factory(Clock())
        for factory, options in ((server, SERVER), (client, CLIENT)):
            for name, value in options.items():
                self.assertEqual(getattr(factory, name), value, name)
        self.assertTrue(server.allowNullOrigin)


class ConfiguredTests(TestCase):
    def test_a_class_of_ours_holds_every_option_and_start_value(self) -> None:
        for leg, factory in ((ClientLeg, server_factory(Clock())), (ContainerLeg, client_factory(Clock()))):
            made = configured(leg, factory)
            for name in leg.CONFIG_ATTRS:
                self.assertIn(name, vars(made))
            for name in ("closedByMe", "wasClean", "closeHandshakeTimeoutCall", "trafficStats", "current_frame"):
                self.assertIn(name, vars(made))
            self.assertEqual(made.CONFIG_ATTRS, ())
            self.assertIs(made.factory, factory)
            self.assertNotIn("closedByMe", vars(leg))

    def test_autobahn_says_nothing_but_errors_and_those_without_what_a_peer_sent(self) -> None:
        events: list[dict[str, Any]] = []
        observer = cast(ILogObserver, events.append)
        globalLogPublisher.addObserver(observer)
        self.addCleanup(globalLogPublisher.removeObserver, observer)
        quiet = Quiet()
        quiet.info("a head: {head}", head="secret")
        quiet.warn("it is {why}", why="secret")
        self.assertEqual(events, [])
        quiet.error("failed with {fail}", fail="secret")
        (event,) = events
        self.assertEqual(event["text"], "failed with {fail}")
        self.assertNotIn("secret", str(event))

    def test_each_look_at_is_open_gives_a_fresh_deferred(self) -> None:
        leg = Quietly()
        self.assertIsNot(leg.is_open, leg.is_open)
