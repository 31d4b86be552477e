"""What the journal says of where a container is, and what it was spawned with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from sticky.core.values import ContainerId, DeploymentId, ServerName
from sticky.isticky import Address, ContainerSpec, TCPAddress, UNIXAddress
from sticky.journal.places import address_in, as_spawned, found_by, place_of, spawned_by

SPEC = ContainerSpec(
    container=ContainerId("ct-1"),
    server=ServerName("echo"),
    deployment=DeploymentId("dp-1"),
    app="echo",
    command=("echo",),
    directory=Path("/"),
    log=Path("/log"),
    scratch=Path("/state/run/ct-1"),
    backend="docker",
)
addresses = st.sampled_from(
    [None, TCPAddress("127.0.0.1", 8000, "7/4026532281"), TCPAddress("127.0.0.1", 8000), UNIXAddress("/run/it.sock")]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=5,
)


def written(place: Mapping[str, Any]) -> Mapping[str, Any]:
    """As the journal reads it again."""
    read: Mapping[str, Any] = json.loads(json.dumps(place))
    return read


class PlaceTests(SynchronousTestCase):
    @given(addresses, st.dictionaries(st.text(max_size=3), values, max_size=3))
    def test_all_of_it_is_found_again(self, address: Address | None, options: dict[str, object]) -> None:
        place = written(place_of(attrs.evolve(SPEC, options=options), {"pid": 7}, address))
        self.assertEqual((found_by(place), address_in(place)), ({"pid": 7}, address))
        self.assertEqual(spawned_by(place), ("docker", options))

    def test_options_that_are_no_json_become_json(self) -> None:
        options = {"mounts": ("/usr", "/lib"), "rlimits": MappingProxyType({"nofile": 10}), "where": Path("/x")}
        place = written(place_of(attrs.evolve(SPEC, options=options), {}, None))
        self.assertEqual(spawned_by(place)[1], {"mounts": ["/usr", "/lib"], "rlimits": {"nofile": 10}, "where": "/x"})

    def test_a_container_is_taken_over_as_it_was_spawned_whatever_its_server_runs_now(self) -> None:
        old = attrs.evolve(SPEC, options={"image": "app:1"}, scratch=Path("/run/sticky/ct-1"))
        place = written(place_of(old, {}, None))
        newest = attrs.evolve(SPEC, backend="process", options={"memory": 5}, command=("other",))
        taken = as_spawned(newest, place)
        self.assertEqual((taken.backend, taken.options, taken.scratch), ("docker", old.options, old.scratch))
        self.assertEqual(taken.command, ("other",))

    def test_what_an_earlier_version_wrote_says_less(self) -> None:
        place: Mapping[str, Any] = {"found_by": {"pid": 7}, "address": {"host": "::1", "port": 1}}
        self.assertEqual(address_in(place), TCPAddress("::1", 1))
        self.assertEqual(address_in({"address": {"host": "::1", "port": 1, "network": 3}}), TCPAddress("::1", 1))
        self.assertEqual(spawned_by(place), ("", {}))
        self.assertIs(as_spawned(SPEC, place), SPEC)
        self.assertEqual(spawned_by({"backend": 7, "options": {}}), ("", {}))
        self.assertEqual(spawned_by({"backend": "docker", "options": []}), ("", {}))
