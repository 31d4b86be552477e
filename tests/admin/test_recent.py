"""The daemon's latest events."""

from __future__ import annotations

from twisted.logger import Logger, LogPublisher
from twisted.trial.unittest import SynchronousTestCase

from sticky.admin.recent import Recent
from sticky.observe.access import AccessLog, AccessRecord
from sticky.observe.watching import WithRequests


class RecentTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.recent = Recent(kept=3)
        self.log = Logger("sticky.test", observer=LogPublisher(self.recent))

    def test_events_are_shown_with_what_they_are_about(self) -> None:
        self.log.warn("session {session} ended", session="sd-1", server="game", container="-")
        (event,) = self.recent.after(0)
        self.assertEqual((event.level, event.text), ("warn", "session sd-1 ended"))
        self.assertEqual((event.session, event.server, event.container), ("sd-1", "game", None))

    def test_only_the_latest_are_kept(self) -> None:
        for number in range(5):
            self.log.info("{number}", number=number)
        self.assertEqual([event.text for event in self.recent.after(0)], ["2", "3", "4"])
        self.assertEqual([event.text for event in self.recent.after(4)], ["4"])

    def test_events_of_others_are_not_ours(self) -> None:
        Logger("twisted.web", observer=LogPublisher(self.recent)).info("noise")
        self.assertEqual(list(self.recent.after(0)), [])

    def test_requests_are_counted_by_server(self) -> None:
        for server in ("game", "echo", "game"):
            self.log.info("x", sticky_event="request", server=server)
        self.assertEqual(self.recent.requests, {"game": 2, "echo": 1})

    def test_requests_come_many_at_once_and_only_the_latest_are_shown_without_their_fields(self) -> None:
        access = AccessLog("modal")
        WithRequests(LogPublisher(), access).addObserver(self.recent)
        self.log.info("before")
        (tell,) = access.watchers
        over = [
            (1.0, AccessRecord("", b"GET", b"/%d" % number, 200, server="game", block=b"\r\nCookie: secret"))
            for number in range(4)
        ]
        tell(over)
        self.assertEqual(self.recent.requests, {"game": 4})
        self.assertEqual([event.number for event in self.recent.after(0)], [3, 4, 5])
        self.log.info("after")
        shown = list(self.recent.after(3))
        self.assertEqual([(event.number, event.server) for event in shown], [(4, "game"), (5, "game"), (6, None)])
        self.assertIn(" GET /2 200 ", shown[0].text)
        self.assertNotIn(
            "secret", repr([events._over for _, events in self.recent._events if hasattr(events, "_over")])
        )

    def test_a_failure_is_shown_at_once_and_its_frames_are_let_go(self) -> None:
        try:
            raise RuntimeError("boom")
        except RuntimeError:
            self.log.failure("it went wrong")
        ((_, (kept,)),) = self.recent._events
        self.assertIsNone(kept["log_failure"])
        (event,) = self.recent.after(0)
        self.assertIn("it went wrong", event.text)
        self.flushLoggedErrors(RuntimeError)
