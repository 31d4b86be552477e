"""Values cross between processes unchanged, and what is not of their form is refused where it is read."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from sticky import errors
from sticky.core.values import ServerName
from sticky.edge.forwarding import TrustedProxies
from sticky.edge.handshake import RelayRules
from sticky.edge.limits import EdgeLimits, EdgeSettings
from sticky.edge.site import Site
from sticky.isticky import Answer, ControlRequest, TCPAddress, UNIXAddress
from sticky.workers.config import ProxyConfig
from sticky.workers.fields import address_of
from sticky.workers.values import _kinds, made, plain, refusal_of, refused


class ValueTests(SynchronousTestCase):
    def test_a_whole_configuration(self) -> None:
        networks = (ip_network("10.0.0.0/8"), ip_network("::1/128"))
        config = ProxyConfig(
            brand="modal",
            edge=EdgeSettings(
                limits=EdgeLimits(connections=10),
                trusted_proxies=TrustedProxies(networks, True),
            ),
            keys={"k": "00" * 32},
            sites=(
                Site(
                    name=ServerName("one"),
                    hosts=frozenset({"a.example", "b.example"}),
                    allowed_origins=frozenset({"https://a.example"}),
                    websocket=RelayRules(silent_timeout=5.0),
                    response_timeout=1,
                ),
                Site(name=ServerName("two")),
            ),
            serial=frozenset({"two"}),
            access_log="-",
            access_log_format="json",
        )
        self.assertEqual(made(ProxyConfig, plain(config)), config)

    @given(
        st.builds(
            ControlRequest,
            server=st.text(max_size=5),
            sessioned=st.booleans(),
            unauthenticated=st.booleans(),
            method=st.binary(max_size=5),
            path=st.binary(max_size=9),
            query=st.binary(max_size=9),
            headers=st.lists(st.tuples(st.binary(max_size=5), st.binary(max_size=5)), max_size=3).map(tuple),
            client=st.text(max_size=5),
            origin_allowed=st.booleans(),
            session_token=st.none() | st.binary(max_size=9),
            session_from_cookie=st.booleans(),
        )
    )
    def test_control_requests(self, request: ControlRequest) -> None:
        self.assertEqual(made(ControlRequest, plain(request)), request)

    def test_answers_and_addresses(self) -> None:
        answer = Answer(200, ((b"a", b"\xff"),), bytes(range(256)))
        self.assertEqual(made(Answer, plain(answer)), answer)
        for address in (TCPAddress("127.0.0.1", 80), TCPAddress("::1", 81, "net"), UNIXAddress("/a")):
            self.assertEqual(address_of(plain(address)), address)

    def test_every_refusal_is_itself_again(self) -> None:
        self.assertGreater(len(_kinds()), 30)
        for kind in _kinds().values():
            refusal = kind("POST") if kind is errors.MethodNotAllowed else kind()
            again = refusal_of(refused(refusal))
            self.assertIs(type(again), kind)
            self.assertEqual({**vars(again), "code": again.code}, {**vars(refusal), "code": refusal.code})
            self.assertEqual(str(again), str(refusal))
            self.assertEqual(again.status, refusal.status)

    def test_a_refusal_of_another_version_keeps_what_can_be_told(self) -> None:
        refusal = refusal_of({"kind": "Teapot", "status": 418, "code": "teapot", "message": "Short and stout."})
        self.assertEqual((refusal.status, refusal.code, refusal.message), (418, "teapot", "Short and stout."))

    def test_what_is_not_of_the_form_is_refused(self) -> None:
        good = plain(Answer(200))
        wrongs: list[Any] = [
            {**good, "status": "200"},
            {**good, "status": True},
            {**good, "more": 1},
            {**good, "headers": [["a"]]},
            {**good, "body": None},
            [],
        ]
        for wrong in wrongs:
            with self.assertRaises((TypeError, ValueError)):
                made(Answer, wrong)
