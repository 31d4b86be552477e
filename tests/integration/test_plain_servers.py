"""A plain Server of a real daemon: requests without sessions, led by affinity keys, scaled by their number in flight."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import requests
from twisted.trial.unittest import SynchronousTestCase
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from sticky.cli.client import Admin
from tests.integration.daemon_case import APPS, ECHO, PYTHON, DaemonCase, server
from tests.integration.running_daemon import Daemon, until

#: Says which container it is and what it got; waits while a file `hold` is there.
SHOWS = """
import json, os, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class H(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        while os.path.exists("hold"):
            time.sleep(0.01)
        body = json.dumps(dict(container=os.environ["STICKY_CONTAINER_ID"], fields=[*map(list, self.headers.items())])).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_POST = do_GET
    def log_message(self, *_):
        pass
ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), H).serve_forever()
"""
COMMAND = json.dumps([PYTHON, "-c", SHOWS])


class PlainServerTests(DaemonCase):
    def ask(self, path: str = "/", **headers: str) -> requests.Response:
        return requests.get(self.url + path, headers=headers, timeout=30)

    def up(self, **headers: str) -> requests.Response:
        """The first answer that is not 503."""
        answers = []

        def served() -> bool:
            answers.append(self.ask(**headers))
            return answers[-1].status_code != 503

        until("it serves", served, within=120)
        return answers[-1]

    def status(self) -> dict[str, object]:
        (one,) = Admin(self.folder / "state").status()["servers"]
        return dict(one)

    def in_flight(self) -> int:
        sessions: Any = self.status()["sessions"]
        return int(sessions["in_flight"])

    def in_background(self, call: Callable[[], object]) -> threading.Thread:
        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        self.addCleanup(thread.join, 30)
        return thread

    def test_it_asks_for_a_proxy_token_and_passes_on_all_but_that(self) -> None:
        self.serve(server("one", COMMAND, sessioned=False))
        refused = self.ask()
        self.assertEqual((refused.status_code, refused.json()["error"]), (401, "no_credential"))
        wrong = self.ask(Authorization="Bearer wk-wrong.ws-wrong")
        self.assertEqual((wrong.status_code, wrong.json()["error"]), (401, "bad_credential"))
        bearer = {"Authorization": f"Bearer {self.bearer}"}
        answer = self.up(**bearer, **{"Modal-Session-ID": "room", "X-Modal-Server-Session-Id": "sd-forged"})
        self.assertEqual(answer.status_code, 200)
        fields = {name.lower(): value for name, value in answer.json()["fields"]}
        self.assertEqual((fields["modal-session-id"], fields["x-forwarded-for"]), ("room", "127.0.0.1"))
        self.assertFalse({"authorization", "x-modal-server-session-id"} & fields.keys())
        token_id, _, secret = self.bearer.partition(".")
        self.assertEqual(self.ask(**{"Modal-Key": token_id, "Modal-Secret": secret}).status_code, 200)

    def test_the_first_request_is_503_and_starts_a_container_which_goes_when_none_come(self) -> None:
        self.serve(server("one", COMMAND, sessioned=False, unauthenticated=True, scaledown_window=2))
        first = self.ask()
        self.assertEqual((first.status_code, first.json()["error"]), (503, "no_container"))
        self.assertEqual(first.headers["retry-after"], "1")
        self.up()
        self.assertEqual(self.status()["sessioned"], False)
        until("it is gone", lambda: not self.children())

    def test_a_key_leads_to_one_container_and_no_key_to_all(self) -> None:
        self.serve(server("one", COMMAND, sessioned=False, unauthenticated=True, min_containers=3))
        self.up()
        until("all are ready", lambda: [c["state"] for c in self.status()["containers"]] == ["ready"] * 3)  # type: ignore[attr-defined]
        homes = {}
        for key in map(str, range(12)):
            found = {self.ask(**{"Modal-Routing-Affinity-Key": key}).json()["container"] for _ in range(3)}
            self.assertEqual(len(found), 1)
            homes[key] = found.pop()
        self.assertGreater(len(set(homes.values())), 1)
        for key, home in homes.items():
            self.assertEqual(self.ask(**{"Modal-Session-ID": key}).json()["container"], home)

    def test_beyond_max_concurrency_it_is_429_and_another_container_starts(self) -> None:
        self.serve(server("one", COMMAND, sessioned=False, unauthenticated=True, max_concurrency=1, max_containers=2))
        self.up()
        hold = self.folder / "hold"
        hold.touch()
        held = [self.in_background(self.ask)]
        until("it is in flight", lambda: self.in_flight() == 1)
        refused = self.ask()
        self.assertEqual((refused.status_code, refused.json()["error"]), (429, "server_busy"))
        self.assertIn("retry-after", refused.headers)
        until("another one starts", lambda: len(self.children()) == 2)
        hold.unlink()
        for thread in held:
            thread.join(20)
        until("nothing is in flight", lambda: self.in_flight() == 0)

    def test_websockets_are_relayed_and_count(self) -> None:
        self.serve(server("one", ECHO, sessioned=False, unauthenticated=True, scaledown_window=2))
        self.up()
        opened = connect(self.url.replace("http", "ws") + "/ws")
        self.addCleanup(opened.close)
        opened.recv(timeout=60)
        self.assertEqual(self.in_flight(), 1)
        opened.send("hello")
        self.assertEqual(opened.recv(timeout=60), "hello")
        (pid,) = self.children()
        os.kill(pid, signal.SIGKILL)
        with self.assertRaises(ConnectionClosed) as caught:
            opened.recv(timeout=60)
        assert caught.exception.rcvd is not None
        self.assertEqual(caught.exception.rcvd.code, 1011)
        until("nothing is in flight", lambda: self.in_flight() == 0)

    def test_a_container_that_dies_under_a_request_is_5xx_and_counts_no_longer(self) -> None:
        self.serve(server("one", COMMAND, sessioned=False, unauthenticated=True))
        self.up()
        (self.folder / "hold").touch()
        answers: list[requests.Response] = []
        thread = self.in_background(lambda: answers.append(self.ask()))
        until("it is in flight", lambda: self.in_flight() == 1)
        (pid,) = self.children()
        os.kill(pid, signal.SIGKILL)
        thread.join(20)
        # Whether its connection or its process is seen to end first is chance; a GET is tried on another connection before.
        self.assertIn(answers[0].json()["error"], ("bad_gateway", "container_unavailable"))
        self.assertIn(answers[0].status_code, (502, 503))
        until("nothing is in flight", lambda: self.in_flight() == 0)

    def test_control_calls_are_404(self) -> None:
        self.serve(server("one", COMMAND, sessioned=False))
        for call in ("sessions/start", "sessions/terminate"):
            answer = requests.post(
                f"{self.url}/_modal/{call}", headers={"Authorization": f"Bearer {self.bearer}"}, timeout=30
            )
            self.assertEqual((answer.status_code, answer.json()["error"]), (404, "not_sessioned"))

    def test_a_live_server_becomes_sessioned_and_plain_again(self) -> None:
        plain = server("one", ECHO, sessioned=False, unauthenticated=True)
        self.serve(plain)
        container = self.up().text
        opened = connect(self.url.replace("http", "ws") + "/ws")
        self.addCleanup(opened.close)
        opened.recv(timeout=60)
        self.change(plain.replace("sessioned = false", "sessioned = true"))
        until("a session is needed", lambda: self.ask().status_code == 401)
        with self.assertRaises(InvalidStatus):
            connect(self.url.replace("http", "ws") + "/ws")
        self.echoes(opened)
        token = self.token()
        self.assertEqual(self.get(token).text, container, "the container goes on")
        self.change(plain)
        until("none is needed", lambda: self.ask().status_code == 200)
        self.assertEqual(self.ask().text, container)
        self.echoes(opened)

    def test_a_new_deployment_takes_over_without_a_refusal(self) -> None:
        plain = server("one", COMMAND, sessioned=False, unauthenticated=True, scaledown_window=30)
        self.serve(plain)
        old = self.up().json()["container"]
        self.change(plain + '[servers.one.env]\nLEVEL = "2"\n')

        def new_one() -> bool:
            answer = self.ask()
            self.assertEqual(answer.status_code, 200, answer.text)
            return bool(answer.json()["container"] != old)

        until("the new one serves", new_one)
        until("the old one is gone", lambda: len(self.children()) == 1)

    def change(self, config: str) -> None:
        (self.folder / "sticky.toml").write_text(config)
        os.kill(self.daemon.pid, signal.SIGHUP)

    def echoes(self, opened: ClientConnection) -> None:
        opened.send("still here")
        self.assertEqual(opened.recv(timeout=60), "still here")


APP = f"""
import os, subprocess, sys
import sticky

app = sticky.App("plain")


@app.server(unauthenticated=True)
class Server:
    @sticky.enter()
    def start(self):
        subprocess.Popen([sys.executable, {str(APPS / "counter.py")!r}, os.environ["PORT"]])
"""


class PlainAppTests(SynchronousTestCase):
    def test_a_python_server_without_sessioned_is_plain(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix="sticky-test-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        (folder / "app.py").write_text(APP)
        daemon = Daemon(folder, "--app", "app.py", "--ephemeral")
        self.addCleanup(daemon.stop)
        url = daemon.url()
        until("it serves", lambda: requests.get(url, timeout=30).status_code == 200)
        self.assertEqual(requests.post(f"{url}/_modal/sessions/start", timeout=30).status_code, 404)
