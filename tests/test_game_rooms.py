"""The example game's rooms: seats, scores of those who are away, and what pages hear."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from examples.game.glowworms import rooms
from examples.game.glowworms.arena import Steering
from examples.game.glowworms.rooms import FORGET_AFTER, REMEMBERED, REPLACED, ROOM_FULL, SEATS, Room, Rooms, Seat
from examples.game.glowworms.server import LONGEST_MESSAGE, BadMessage, Player, parsed, steering, tidy


class FakePage:
    """A connection that keeps what it hears."""

    def __init__(self) -> None:
        self.congested = False
        self.heard: list[dict[str, Any]] = []
        self.closed: tuple[int, str] | None = None

    def send(self, text: str) -> None:
        self.heard.append(json.loads(text))

    def close(self, code: int, reason: str) -> None:
        self.closed = (code, reason)

    def kinds(self) -> list[str]:
        return [message["t"] for message in self.heard]


def key(name: str) -> str:
    return name.ljust(32, "-")


def join(room: Room, name: str) -> tuple[FakePage, Seat]:
    page = FakePage()
    seat = room.join(page, key(name), name)
    assert seat is not None
    return page, seat


def roster(page: FakePage) -> dict[str, dict[str, Any]]:
    """The last one that the page heard."""
    last = next(message["p"] for message in reversed(page.heard) if "p" in message)
    return {entry["name"]: entry for entry in last}


class RoomTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.room = Room("sd-1", "ct-1", Random(1), company=0)

    def test_a_player_is_welcomed_with_the_room_and_the_container(self) -> None:
        page, seat = join(self.room, "ann")
        welcome = page.heard[0]
        self.assertEqual((welcome["t"], welcome["room"], welcome["container"]), ("welcome", "sd-1", "ct-1"))
        self.assertEqual(welcome["you"], seat.number)
        self.assertEqual([worm[0] for worm in welcome["w"]], [seat.number])

    def test_all_pages_hear_each_step_with_everybody_in_it(self) -> None:
        ann, first = join(self.room, "ann")
        bob, second = join(self.room, "bob")
        self.room.advance()
        for page in (ann, bob):
            self.assertEqual(page.heard[-1]["t"], "step")
            self.assertEqual({worm[0] for worm in page.heard[-1]["w"]}, {first.number, second.number})

    def test_the_key_of_a_player_is_told_to_nobody(self) -> None:
        ann, _ = join(self.room, "ann")
        bob, seat = join(self.room, "bob")
        self.room.advance()
        self.assertNotIn(key("bob"), json.dumps(ann.heard + bob.heard))
        self.assertNotIn(key("bob"), repr(seat))

    def test_who_comes_back_has_number_and_score_and_others_saw_the_absence(self) -> None:
        ann, _ = join(self.room, "ann")
        page, seat = join(self.room, "bob")
        self.room._arena.worms[seat.number].score = 17
        self.room.leave(seat, page)
        self.assertEqual((roster(ann)["bob"]["here"], roster(ann)["bob"]["score"]), (False, 17))
        again, same = join(self.room, "bob")
        self.assertIs(same, seat)
        self.assertEqual((roster(again)["bob"]["here"], roster(again)["bob"]["score"]), (True, 17))

    def test_the_newest_connection_of_a_player_wins_and_the_old_ones_end_changes_nothing(self) -> None:
        old, seat = join(self.room, "ann")
        new, same = join(self.room, "ann")
        self.assertIs(same, seat)
        assert old.closed is not None
        self.assertEqual(old.closed[0], REPLACED)
        self.room.leave(seat, old)
        self.assertEqual(self.room.players(), [seat])
        self.assertTrue(roster(new)["ann"]["here"])

    def test_a_full_room_turns_the_next_player_away_but_not_one_who_is_in_it(self) -> None:
        for number in range(SEATS):
            join(self.room, f"p{number}")
        late = FakePage()
        self.assertIsNone(self.room.join(late, key("late"), "late"))
        assert late.closed is not None
        self.assertEqual(late.closed[0], ROOM_FULL)
        join(self.room, "p3")

    def test_nothing_moves_while_nobody_is_here(self) -> None:
        page, seat = join(self.room, "ann")
        self.room.advance()
        self.room.leave(seat, page)
        for _ in range(100):
            self.room.advance()
        again, _ = join(self.room, "ann")
        self.assertEqual(again.heard[0]["k"], 1)

    def test_scores_of_those_away_are_kept_up_to_a_bound(self) -> None:
        for number in range(REMEMBERED + 5):
            page, seat = join(self.room, f"p{number}")
            self.room.leave(seat, page)
        page, _ = join(self.room, "ann")
        names = roster(page)
        self.assertEqual(len(names), REMEMBERED + 1)
        self.assertNotIn("p0", names)
        self.assertIn(f"p{REMEMBERED + 4}", names)

    def test_a_congested_page_misses_steps_and_then_gets_a_whole_picture(self) -> None:
        page, _ = join(self.room, "ann")
        page.congested = True
        self.room.advance()
        self.room.advance()
        self.assertNotIn("step", page.kinds())
        page.congested = False
        self.room.advance()
        self.room.advance()
        self.assertEqual(page.kinds()[-2:], ["welcome", "step"])
        self.assertEqual(page.heard[-2]["k"], 3)

    def test_steering_and_names_reach_the_others(self) -> None:
        ann, first = join(self.room, "ann")
        self.room.advance()
        self.room.steer(first, Steering(turn=1))
        self.room.rename(first, "Anna")
        before = ann.heard[-1]["w"][0][3]
        self.room.advance()
        self.assertNotEqual(ann.heard[-1]["w"][0][3], before)
        self.assertIn("Anna", roster(ann))


class AnyOrderTests(SynchronousTestCase):
    @settings(max_examples=40, deadline=None)
    @given(st.lists(st.tuples(st.sampled_from(["join", "leave", "steer", "step"]), st.integers(0, 15)), max_size=80))
    def test_whatever_order_players_come_and_go_in_the_roster_is_right(self, orders: list[tuple[str, int]]) -> None:
        room = Room("sd-1", "ct-1", Random(1))
        inside: dict[int, tuple[FakePage, Seat]] = {}
        for what, who in orders:
            if what == "join" and (who in inside or len(inside) < SEATS):
                inside[who] = join(room, f"p{who}")
            elif what == "leave" and who in inside:
                page, seat = inside.pop(who)
                room.leave(seat, page)
            elif what == "steer" and who in inside:
                room.steer(inside[who][1], Steering(turn=1, boost=True))
            elif what == "step":
                for _ in range(20):
                    room.advance()
            for page, _seat in inside.values():
                here = {name for name, entry in roster(page).items() if entry["here"] and not entry["robot"]}
                self.assertEqual(here, {f"p{number}" for number in inside})


class CompanyTests(SynchronousTestCase):
    def test_robots_fill_a_room_and_make_place_for_players(self) -> None:
        room = Room("sd-1", "ct-1", Random(1), company=3)

        def machines(page: FakePage) -> int:
            return sum(entry["robot"] for entry in roster(page).values())

        ann, first = join(room, "ann")
        self.assertEqual(machines(ann), 2)
        others = [join(room, name) for name in ("bob", "cem")]
        self.assertEqual(machines(ann), 0)
        for page, seat in others:
            room.leave(seat, page)
        self.assertEqual(machines(ann), 2)
        for _ in range(60):
            room.advance()
        room.leave(first, ann)
        self.assertEqual([seat for seat in room._seats.values() if seat.robot], [])


class RoomsTests(SynchronousTestCase):
    def test_each_session_has_a_room_of_its_own(self) -> None:
        all_rooms = Rooms("ct-1", Random(1), company=0)
        ann, _ = join(all_rooms.room("sd-1"), "ann")
        bob, _ = join(all_rooms.room("sd-2"), "bob")
        all_rooms.advance()
        self.assertEqual((len(ann.heard[-1]["w"]), len(bob.heard[-1]["w"]), len(all_rooms)), (1, 1, 2))
        self.assertIs(all_rooms.room("sd-1"), all_rooms.room("sd-1"))

    def test_a_room_is_forgotten_when_its_session_cannot_live_any_more(self) -> None:
        self.patch(rooms, "FORGET_AFTER", 10)
        self.assertGreaterEqual(FORGET_AFTER, 43_200 * 30)
        all_rooms = Rooms("ct-1", Random(1), company=0)
        page, seat = join(all_rooms.room("sd-1"), "ann")
        for _ in range(20):
            all_rooms.advance()
        self.assertEqual(len(all_rooms), 1)
        all_rooms.room("sd-1").leave(seat, page)
        for _ in range(11):
            all_rooms.advance()
        self.assertEqual(len(all_rooms), 0)


class MessageTests(SynchronousTestCase):
    def test_what_is_not_a_message_is_refused(self) -> None:
        for payload in (b"", b"[]", b"\xff", b"{", b"[" * LONGEST_MESSAGE, b'{"t":"' + b"x" * LONGEST_MESSAGE + b'"}'):
            self.assertRaises(BadMessage, parsed, payload)

    def test_steering_takes_what_a_page_sends_and_nothing_else(self) -> None:
        self.assertEqual(steering({"turn": -1, "aim": 1.5, "boost": True}), Steering(-1, 1.5, True))
        for message in ({"turn": 2}, {"turn": "1"}, {"turn": [1]}, {"boost": 1}, {"aim": float("nan")}, {"aim": "1"}):
            self.assertRaises(BadMessage, steering, message)

    def test_a_name_is_one_short_printable_line(self) -> None:
        self.assertEqual(tidy(" Ann\n\t Bee\x00 "), "Ann Bee")
        self.assertEqual(tidy("x" * 99), "x" * 16)
        self.assertEqual(tidy(" \u200b"), "Worm")


class PlayerTests(SynchronousTestCase):
    def test_a_page_that_is_closing_is_sent_nothing_and_does_not_stop_the_loop(self) -> None:
        room = Room("sd-1", "ct-1", Random(1), company=0)
        closing, ann = Player(), FakePage()
        closing.state = Player.STATE_CLOSING
        room.join(closing, key("bob"), "bob")
        room.join(ann, key("ann"), "ann")
        room.advance()
        self.assertEqual(ann.kinds()[-1], "step")
