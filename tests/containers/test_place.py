"""What a journal keeps of a container finds it again, and damage is seen."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from sticky.containers.isolation import Descendants
from sticky.containers.place import Place
from sticky.isticky import TCPAddress, UNIXAddress

numbers = st.integers(1, 2**62)
addresses = st.builds(TCPAddress, st.text(), st.integers(1, 65_535)) | st.builds(UNIXAddress, st.text())
places = st.builds(
    Place, st.text(), numbers, numbers, numbers, st.lists(addresses).map(tuple), st.booleans(),
    st.booleans(), st.booleans(), st.sampled_from([each.value for each in Descendants]),
)  # fmt: skip
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


class PlaceTests(SynchronousTestCase):
    @given(places)
    def test_it_comes_back_from_the_journal_as_it_was(self, place: Place) -> None:
        self.assertEqual(Place.parse(json.loads(json.dumps(place.document()))), place)

    @given(places, st.sampled_from(["boot", "pid", "started", "port", "candidates"]))
    def test_a_missing_part_is_said(self, place: Place, key: str) -> None:
        document = {name: value for name, value in place.document().items() if name != key}
        self.assertRaises(ValueError, Place.parse, document)

    @given(places, st.sampled_from(["boot", "pid", "started", "port", "candidates"]), json_values)
    def test_whatever_is_in_it_gives_a_place_or_a_value_error(self, place: Place, key: str, value: object) -> None:
        try:
            found = Place.parse({**place.document(), key: value})
        except ValueError:
            return
        self.assertEqual(found.document()[key], value)

    def test_one_of_an_earlier_version_is_a_plain_child(self) -> None:
        place = Place("b", 1, 2, 3, (), False, True, True, "cgroup")
        new = ("own_network", "wrapped", "descendants")
        document = {name: value for name, value in place.document().items() if name not in new}
        self.assertEqual(Place.parse(document), Place("b", 1, 2, 3, (), False))
        self.assertRaises(ValueError, Place.parse, {**document, "descendants": "magic"})

    def test_a_later_versions_additions_are_left_alone(self) -> None:
        place = Place("b", 1, 2, 3, (), False)
        self.assertEqual(Place.parse({**place.document(), "cgroup": "/x"}), place)
