"""WebSockets of a real browser through a real daemon: every way to bring the token, and what a page sees of the end."""

from __future__ import annotations

from typing import Any

from tests.integration.daemon_case import ECHO, DaemonCase, server
from tests.integration.other_site import OtherSite
from tests.integration.running_daemon import until
from tests.integration.test_game_browser import Window

#: Opens a WebSocket and tells everything that happens to it; `arguments`: name, URL, subprotocols.
OPEN = """
const [name, url, protocols] = arguments;
const seen = { opened: false, heard: [], failed: false };
window.sockets = { ...window.sockets, [name]: seen };
const socket = new WebSocket(url, protocols);
seen.socket = socket;
socket.onopen = () => { seen.opened = true; seen.protocol = socket.protocol; seen.extensions = socket.extensions; };
socket.onmessage = (event) => { seen.heard.push(event.data instanceof Blob ? event.data.size : event.data); };
socket.onerror = () => { seen.failed = true; };
socket.onclose = (event) => { seen.closed = [event.code, event.reason, event.wasClean]; };
"""
LOOK = "const { socket, ...seen } = window.sockets[arguments[0]]; return seen;"
SEND = "window.sockets[arguments[0]].socket.send(arguments[1]);"


class BrowserTests(DaemonCase):
    def setUp(self) -> None:
        self.serve(
            server("plain", ECHO, hosts=["frames.localhost"], ping_interval=1)
            + server("whole", ECHO, hosts=["messages.localhost"], websocket="messages", ping_interval=1)
        )
        self.port = self.url.rpartition(":")[2]
        self.elsewhere = OtherSite(self).url
        self.window = Window(self.folder / "profile")
        self.addCleanup(self.window.driver.quit)

    def open(self, name: str, url: str, protocols: list[str] | None = None) -> None:
        self.window.driver.execute_script(OPEN, name, url, protocols or [])

    def look(self, name: str) -> dict[str, Any]:
        seen: dict[str, Any] = self.window.driver.execute_script(LOOK, name)
        return seen

    def hears(self, name: str, count: int) -> list[Any]:
        """Wait until it has got so many messages."""

        def heard() -> list[Any] | None:
            seen = self.look(name)
            self.assertNotIn("closed", seen, name)
            return list(seen["heard"]) if len(seen["heard"]) >= count else None

        return until(f"{name} hears", heard) or []

    def closed(self, name: str) -> list[Any]:
        """Wait until it is closed: code, reason, clean."""

        def how() -> list[Any]:
            return list(self.look(name).get("closed", ()))

        return until(f"{name} is closed", how)

    def test_tokens_messages_and_ends(self) -> None:
        for host in ("frames.localhost", "messages.localhost"):
            with self.subTest(host):
                self.tokens_messages_and_ends(f"{host}:{self.port}", host)

    def tokens_messages_and_ends(self, address: str, host: str) -> None:
        token = self.token(host)
        there = f"ws://{address}"
        # From another origin there is no cookie.
        self.window.driver.get(self.elsewhere)
        self.open("nothing", f"{there}/ws")
        self.assertEqual(self.closed("nothing")[0], 1006)  # a 401
        self.open("query", f"{there}/ws?modal_session_token={token}")
        self.hears("query", 1)
        self.open("offer", f"{there}/ws", ["modal-session", f"modal-session-token.{token}"])
        self.hears("offer", 1)
        self.assertEqual(self.look("offer")["protocol"], "modal-session")
        self.window.driver.execute_script(SEND, "offer", "näher " * 20_000)
        self.assertEqual(self.hears("offer", 2)[1], "näher " * 20_000)
        self.open("refused", f"{there}/no-websocket?modal_session_token={token}")
        self.assertEqual(self.closed("refused")[0], 1006)  # the container's own answer, no WebSocket
        # A navigation with the token gives the page its cookie.
        self.window.driver.get(f"http://{address}/?modal_session_token={token}")
        self.assertNotIn("modal_session_token", self.window.driver.current_url)
        self.open("cookie", f"{there}/ws")
        self.hears("cookie", 1)
        self.window.driver.execute_script(SEND, "cookie", "hello")
        self.assertEqual(self.hears("cookie", 2)[1], "hello")
        # Several pings of ours have been answered by the browser meanwhile. Now the session ends.
        fields = {"Authorization": f"Bearer {self.bearer}", "x-modal-server-session-token": token, "Host": host}
        fields["x-modal-server-session-grace"] = "0"
        self.http.post(f"{self.url}/_modal/sessions/terminate", headers=fields, timeout=30)
        self.assertEqual(self.closed("cookie"), [4410, "terminated", True])
        self.open("again", f"{there}/ws")
        self.assertEqual(self.closed("again"), [4410, "terminated", True])
        self.assertTrue(self.look("again")["opened"])
        self.open("offered again", f"{there}/ws?modal_session_token={token}", ["chat", "other"])
        self.assertEqual(self.closed("offered again"), [4410, "terminated", True])

    def test_the_containers_end_is_told_by_its_code(self) -> None:
        for host in ("frames.localhost", "messages.localhost"):
            with self.subTest(host):
                token = self.token(host)
                self.window.driver.get(f"http://{host}:{self.port}/?modal_session_token={token}")
                self.open("one", f"ws://{host}:{self.port}/ws")
                container = self.hears("one", 1)[0]
                self.kill_container(str(container))
                self.assertEqual(self.closed("one"), [1011, "container_lost", True])

    def test_our_other_ends_are_clean_to_a_browser_too(self) -> None:
        hosts = ("frames.localhost", "messages.localhost")
        opened = []
        for host in hosts:
            self.window.driver.switch_to.new_window("tab")
            token = self.token(host)
            self.window.driver.get(f"http://{host}:{self.port}/?modal_session_token={token}")
            self.open("left", f"ws://{host}:{self.port}/ws")
            self.hears("left", 1)
            opened.append(self.window.driver.current_window_handle)
        self.daemon.stop()
        for tab in opened:
            self.window.driver.switch_to.window(tab)
            self.assertEqual(self.closed("left"), [1001, "server_stopped", True])

    def test_a_container_that_grows_too_old_ends_cleanly(self) -> None:
        self.serve(
            server("aged", ECHO, hosts=["aged.localhost"], container_max_age=4, idle_timeout=2, max_idle_timeout=2)
        )
        port = self.url.rpartition(":")[2]
        token = self.token("aged.localhost")
        self.window.driver.get(f"http://aged.localhost:{port}/?modal_session_token={token}")
        self.open("aged", f"ws://aged.localhost:{port}/ws")
        self.hears("aged", 1)
        self.assertEqual(self.closed("aged"), [4408, "container_max_age", True])
