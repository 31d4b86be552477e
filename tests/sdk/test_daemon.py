"""Where the SDK looks for its daemon and its proxy token."""

from __future__ import annotations

from pathlib import Path

from twisted.trial.unittest import TestCase

from sticky.exception import AuthError, ConnectionError, NotFoundError
from sticky.sdk.daemon import Daemon


class DaemonTests(TestCase):
    def setUp(self) -> None:
        self.cwd = Path(self.mktemp()).absolute()
        self.state = self.cwd / "state"
        self.state.mkdir(parents=True)

    def daemon(self, **environ: str) -> Daemon:
        return Daemon(environ, self.cwd)

    def test_the_environment_comes_first(self) -> None:
        (self.state / "url").write_text("http://127.0.0.1:1\n")
        (self.state / "proxy-token").write_text("wk-a.ws-file\n")
        daemon = self.daemon(STICKY_URL="https://play.example.org/", STICKY_PROXY_TOKEN="wk-a.ws-env")
        self.assertEqual("https://play.example.org", daemon.url("Server"))
        self.assertEqual("wk-a.ws-env", daemon.proxy_token())

    def test_then_the_files_of_the_state_directory(self) -> None:
        (self.state / "url").write_text("http://127.0.0.1:8080/\n")
        (self.state / "proxy-token").write_text("wk-a.ws-b\nsecond line\n")
        self.assertEqual("http://127.0.0.1:8080", self.daemon().url("Server"))
        self.assertEqual("wk-a.ws-b", self.daemon().proxy_token())

    def test_the_state_directory_can_be_named(self) -> None:
        other = self.cwd / "other"
        other.mkdir()
        (other / "url").write_text("http://127.0.0.1:9\n")
        self.assertEqual("http://127.0.0.1:9", self.daemon(STICKY_STATE_DIR="other").url("Server"))

    def test_it_is_looked_up_anew_at_every_call(self) -> None:
        daemon = self.daemon()
        self.assertRaises(ConnectionError, daemon.url, "Server")
        (self.state / "url").write_text("http://127.0.0.1:9\n")
        self.assertEqual("http://127.0.0.1:9", daemon.url("Server"))

    def test_no_daemon_says_where_it_looked_and_what_to_do(self) -> None:
        with self.assertRaises(ConnectionError) as caught:
            self.daemon().url("Server")
        text = str(caught.exception)
        for part in ("'Server'", "STICKY_URL is not set", str(self.state / "url"), "twistd -n sticky --app"):
            self.assertIn(part, text)

    def test_a_daemon_that_lists_its_servers_gives_each_its_url(self) -> None:
        (self.state / "url").write_text("http://127.0.0.1:8080\nGame http://game.localhost:8080\nEcho http://e:1\n")
        self.assertEqual("http://game.localhost:8080", self.daemon().url("Game"))
        with self.assertRaises(NotFoundError) as caught:
            self.daemon().url("Gaem")
        self.assertIn("http://127.0.0.1:8080 has no Server 'Gaem'; it has: Echo, Game", str(caught.exception))

    def test_inside_a_container_the_url_is_that_of_its_own_server(self) -> None:
        inside = self.daemon(STICKY_URL="https://g.example.org", STICKY_CONTAINER_ID="ct-1", STICKY_SERVER="Game")
        self.assertEqual("https://g.example.org", inside.url("Game"))
        with self.assertRaisesRegex(ConnectionError, "STICKY_URL of this container is that of 'Game'"):
            inside.url("Other")

    def test_no_token_is_none(self) -> None:
        self.assertIsNone(self.daemon().proxy_token())

    def test_a_malformed_token_is_not_repeated(self) -> None:
        for token in ("hunter2", "wk-a", "wk-a.hunter2", "wk-a.ws-hunter2\r\nX: y", "wk-ä.ws-hunter2"):
            with self.assertRaises(AuthError) as caught:
                self.daemon(STICKY_PROXY_TOKEN=token).proxy_token()
            self.assertNotIn("hunter2", str(caught.exception))
            self.assertIn("STICKY_PROXY_TOKEN", str(caught.exception))

    def test_a_malformed_url_is_refused(self) -> None:
        for url in (
            "8080",
            "ftp://x",
            "http://",
            "http://a b",
            "http://u:pw@host",
            "http://host:99999",
            "http://h?x=1",
        ):
            with self.assertRaises(ConnectionError) as caught:
                self.daemon(STICKY_URL=url).url("Server")
            self.assertNotIn("pw", str(caught.exception))

    def test_an_empty_url_file_is_a_daemon_that_starts(self) -> None:
        (self.state / "url").write_text("")
        with self.assertRaisesRegex(ConnectionError, "is empty"):
            self.daemon().url("Server")

    def test_a_file_that_cannot_be_read_says_so(self) -> None:
        (self.state / "url").mkdir()
        with self.assertRaisesRegex(ConnectionError, "cannot be read: Is a directory"):
            self.daemon().url("Server")
