"""Fields of messages: what is missing or of another kind is the other side's fault, and named as such."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from sticky.core.values import EndReason
from sticky.isticky import TCPAddress, UNIXAddress
from sticky.workers.fields import address_of, age_of, claims_of, list_of, number_of, reason_of, text_of, value_of
from sticky.workers.frames import BadMessage


class FieldTests(SynchronousTestCase):
    def test_what_is_there_is_read(self) -> None:
        self.assertEqual(number_of({"n": 7}, "n"), 7)
        self.assertEqual(text_of({"t": "x"}, "t"), "x")
        self.assertEqual(list_of({"l": [1]}, "l"), [1])
        self.assertEqual([age_of({"idle_for": age}) for age in (0, 1.5)], [0.0, 1.5])
        self.assertEqual(value_of(bytes, "\xff"), b"\xff")
        self.assertEqual(address_of({"host": "::1", "port": 80, "network": ""}), TCPAddress("::1", 80))
        self.assertEqual(address_of({"path": "/run/x"}), UNIXAddress("/run/x"))
        claims = claims_of({"session": "s", "server": "v", "container": "c", "more": 1})
        self.assertEqual((claims.session, claims.server, claims.container), ("s", "v", "c"))

    def test_anything_else_is_a_bad_message(self) -> None:
        def number(message: Any) -> int:
            return number_of(message, "n")

        def text(message: Any) -> str:
            return text_of(message, "t")

        def items(message: Any) -> list[Any]:
            return list_of(message, "l")

        def octets(data: Any) -> bytes:
            return value_of(bytes, data)

        ages: list[Any] = [{}, *({"idle_for": age} for age in ("1", None, -0.1, float("nan"), float("inf")))]
        wrong: dict[Callable[[Any], object], list[Any]] = {
            number: [{}, {"n": "7"}, {"n": None}],
            text: [{}, {"t": 7}],
            items: [{}, {"l": "abc"}, {"l": {}}],
            age_of: ages,
            octets: [None, 7, "\u20ac"],
            address_of: [None, "here", {}, {"port": 80}, {"host": "h", "port": "80"}, {"way": 1}],
            claims_of: [{}, {"session": "s", "server": "v", "container": None}],
        }
        for read, those in wrong.items():
            for given in those:
                self.assertRaises(BadMessage, read, given)

    def test_a_reason_of_another_version_is_an_end(self) -> None:
        self.assertIs(reason_of("terminated"), EndReason.TERMINATED)
        self.assertIs(reason_of("of_tomorrow"), EndReason.UNKNOWN)
