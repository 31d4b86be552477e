"""Where the SDK looks for its daemon and its proxy token."""

from __future__ import annotations

import json
from pathlib import Path

from twisted.trial.unittest import TestCase

from sticky.exception import AuthError, ConnectionError, ExecutionError, InvalidError, NotFoundError
from sticky.sdk.calling import Call, Carriers
from sticky.sdk.daemon import Daemon, Place
from sticky.sdk.steps import Ask, Failure, Reply


def address(daemon: Daemon, server: str, *answers: Reply | Failure) -> str:
    return find(daemon, server, *answers)[0].url


def find(daemon: Daemon, server: str, *answers: Reply | Failure) -> tuple[Place, list[Ask]]:
    """What is found, and what was asked for it."""
    asked: list[Ask] = []
    left = list(answers)

    def send(ask: Ask) -> Reply | Failure:
        asked.append(ask)
        return left.pop(0)

    place = Call(lambda: daemon.find("app", server), Carriers(send))()
    assert not left
    return place, asked


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
        self.assertEqual("https://play.example.org", address(daemon, "Server"))
        self.assertEqual("wk-a.ws-env", daemon.proxy_token())

    def test_then_the_files_of_the_state_directory(self) -> None:
        (self.state / "url").write_text("http://127.0.0.1:8080/\n")
        (self.state / "proxy-token").write_text("wk-a.ws-b\nsecond line\n")
        self.assertEqual("http://127.0.0.1:8080", address(self.daemon(), "Server"))
        self.assertEqual("wk-a.ws-b", self.daemon().proxy_token())

    def test_the_state_directory_can_be_named(self) -> None:
        other = self.cwd / "other"
        other.mkdir()
        (other / "url").write_text("http://127.0.0.1:9\n")
        self.assertEqual("http://127.0.0.1:9", address(self.daemon(STICKY_STATE_DIR="other"), "Server"))

    def test_it_is_looked_up_anew_at_every_call(self) -> None:
        daemon = self.daemon()
        self.assertRaises(ConnectionError, address, daemon, "Server")
        (self.state / "url").write_text("http://127.0.0.1:9\n")
        self.assertEqual("http://127.0.0.1:9", address(daemon, "Server"))

    def test_no_daemon_says_where_it_looked_and_what_to_do(self) -> None:
        with self.assertRaises(ConnectionError) as caught:
            address(self.daemon(), "Server")
        text = str(caught.exception)
        for part in ("'Server'", "STICKY_URL is not set", str(self.state / "url"), "twistd -n --pidfile= sticky --app"):
            self.assertIn(part, text)

    def test_a_daemon_that_lists_its_servers_gives_each_its_url(self) -> None:
        (self.state / "url").write_text("http://127.0.0.1:8080\nGame http://game.localhost:8080\nEcho http://e:1\n")
        self.assertEqual("http://game.localhost:8080", address(self.daemon(), "Game"))
        with self.assertRaises(NotFoundError) as caught:
            address(self.daemon(), "Gaem")
        self.assertIn("http://127.0.0.1:8080 has no Server 'Gaem'; it has: Echo, Game", str(caught.exception))

    def test_inside_a_container_the_url_is_that_of_its_own_server(self) -> None:
        inside = self.daemon(STICKY_URL="https://g.example.org", STICKY_CONTAINER_ID="ct-1", STICKY_SERVER="Game")
        self.assertEqual("https://g.example.org", address(inside, "Game"))
        with self.assertRaisesRegex(ConnectionError, "STICKY_URL of this container is that of 'Game'"):
            address(inside, "Other")

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
                address(self.daemon(STICKY_URL=url), "Server")
            self.assertNotIn("pw", str(caught.exception))

    def test_an_empty_url_file_is_a_daemon_that_starts(self) -> None:
        (self.state / "url").write_text("")
        with self.assertRaisesRegex(ConnectionError, "is empty"):
            address(self.daemon(), "Server")

    def test_a_file_that_cannot_be_read_says_so(self) -> None:
        (self.state / "url").mkdir()
        with self.assertRaisesRegex(ConnectionError, "cannot be read: Is a directory"):
            address(self.daemon(), "Server")


class AdminTests(TestCase):
    """With an admin socket, which knows every Server and needs no token."""

    def setUp(self) -> None:
        self.cwd = Path(self.mktemp()).absolute()
        self.socket = self.cwd / "state" / "admin.sock"
        self.socket.parent.mkdir(parents=True)
        self.socket.touch()

    def daemon(self, **environ: str) -> Daemon:
        return Daemon(environ, self.cwd)

    def answer(self, status: int = 200, **fields: object) -> Reply:
        return Reply(status, json.dumps(fields).encode())

    def access(self, **fields: object) -> Reply:
        known: dict[str, object] = {
            "url": "http://game.localhost:8080",
            "brand": "acme",
            "proxy_token": "wk-op.ws-SECRET",
        }
        return self.answer(200, **{**known, **fields})

    def test_the_socket_gives_url_token_and_brand(self) -> None:
        place, (ask,) = find(self.daemon(), "Game", self.access())
        self.assertEqual("http://game.localhost:8080", place.url)
        self.assertEqual("wk-op.ws-SECRET", place.bearer)
        self.assertEqual("/_acme/sessions/start", place.names.start_path)
        self.assertEqual(("POST", "http://sticky/v1/access", self.socket), (ask.method, ask.url, ask.socket))
        self.assertEqual({"app": "app", "server": "Game"}, json.loads(ask.body))
        self.assertNotIn("SECRET", repr(place) + repr(ask))

    def test_a_token_of_the_environment_comes_first(self) -> None:
        place, _ = find(self.daemon(STICKY_PROXY_TOKEN="wk-a.ws-mine"), "Game", self.access())
        self.assertEqual("wk-a.ws-mine", place.bearer)

    def test_a_server_that_wants_no_token_has_none(self) -> None:
        self.assertIsNone(find(self.daemon(), "Game", self.access(proxy_token=None))[0].bearer)

    def test_a_url_of_the_environment_asks_nobody(self) -> None:
        place, asked = find(self.daemon(STICKY_URL="http://127.0.0.1:1"), "Game")
        self.assertEqual(("http://127.0.0.1:1", []), (place.url, asked))

    def test_an_unknown_name_lists_the_known_ones(self) -> None:
        refusal = self.answer(
            404, error="unknown_server", message="There is no Server 'app/Gaem'; there are: app/Game."
        )
        with self.assertRaisesRegex(NotFoundError, "there are: app/Game.*deploy the app"):
            find(self.daemon(), "Gaem", refusal)

    def test_a_session_token_in_the_place_of_a_proxy_token(self) -> None:
        daemon = self.daemon(STICKY_URL="http://127.0.0.1:8080", STICKY_PROXY_TOKEN="v4.public.SECRET")
        with self.assertRaisesRegex(
            AuthError, "^STICKY_PROXY_TOKEN holds a session token, not a proxy token"
        ) as caught:
            daemon.proxy_token()
        self.assertNotIn("SECRET", str(caught.exception))

    def test_what_else_the_admin_api_may_answer(self) -> None:
        for answer, kind, text in (
            (
                Failure("Connection refused"),
                ConnectionError,
                "no answer from the daemon at .*admin.sock: Connection refused",
            ),
            (self.answer(404, error="not_found"), ExecutionError, "of another version"),
            (self.answer(401, error="no_credential"), AuthError, "STICKY_ADMIN_TOKEN"),
            (self.answer(400, error="bad_request", message="why"), InvalidError, "why"),
            (self.answer(500), ExecutionError, "Look at the daemon's log"),
            (Reply(200, b"<html>"), ExecutionError, "of another version"),
            (self.access(url=""), ConnectionError, "listens nowhere"),
        ):
            with self.assertRaisesRegex(kind, text):
                find(self.daemon(), "Game", answer)

    def test_an_admin_url_is_asked_with_its_token(self) -> None:
        daemon = self.daemon(STICKY_ADMIN_URL="https://ops.example.org:9443/", STICKY_ADMIN_TOKEN="wk-ad.ws-SECRET")
        _, (ask,) = find(daemon, "Game", self.access())
        self.assertEqual(("https://ops.example.org:9443/v1/access", None), (ask.url, ask.socket))
        self.assertEqual("Bearer wk-ad.ws-SECRET", ask.headers["Authorization"])
        self.assertNotIn("SECRET", repr(ask))

    def test_an_admin_url_without_a_token_is_refused_here(self) -> None:
        with self.assertRaisesRegex(AuthError, "STICKY_ADMIN_TOKEN does not hold"):
            find(self.daemon(STICKY_ADMIN_URL="https://ops.example.org"), "Game")
