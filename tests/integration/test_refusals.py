"""docs/errors.md promises a code for each thing that goes wrong: each is met here, against a real daemon, as its client meets it.

What cannot be brought about like that, or is by a test that is about it, is in `ELSEWHERE`.
"""

from __future__ import annotations

import json
import re
import signal
import socket
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import requests
from twisted.trial.unittest import SynchronousTestCase
from websockets.sync.client import connect

from sticky.cli.advice import advice_for
from sticky.cli.client import Admin, path
from sticky.cli.document import refusals
from sticky.cli.problems import Problem
from sticky.core.values import EndReason
from tests.integration.daemon_case import ECHO, PYTHON, DaemonCase, server
from tests.integration.running_daemon import until

ROOT = Path(__file__).resolve().parents[2]
#: Code -> (file, test).
ELSEWHERE = {
    "misdirected_request": (
        "tests/integration/test_tls.py",
        "test_each_has_its_own_host_and_another_one_is_404_or_421_where_tls_named_one",
    ),
    "storage_failed": (
        "tests/integration/test_crash.py",
        "test_starts_are_refused_while_the_disk_is_full_and_sessions_go_on",
    ),
    "server_busy": (
        "tests/integration/test_plain_servers.py",
        "test_beyond_max_concurrency_it_is_429_and_another_container_starts",
    ),
    "restart_under_way": (
        "tests/integration/test_restart_stops.py",
        "test_a_second_restart_and_changes_are_refused_and_nothing_is_lost",
    ),
    # Ours are not to be had on purpose.
    "internal_error": ("tests/admin/test_web.py", "test_our_own_fault_is_500_and_in_the_log"),
}

Met = tuple[int, str]  #: status and code


def container(program: str) -> str:
    """A command: a program that has a listening socket, `s`."""
    head = "import os, socket, sys, time\ns = socket.create_server(('127.0.0.1', int(os.environ['PORT'])))\n"
    return json.dumps([PYTHON, "-c", head + program])


GARBAGE = container(
    "while True:\n    c, _ = s.accept()\n    c.recv(1)\n    c.sendall(b'SSH-2.0-garbage\\r\\n\\r\\n')\n    c.close()\n"
)
SILENT = container("held = []\nwhile True: held.append(s.accept())\n")
#: Closes its port once it has been asked for something; a knock at its port is no question.
DEAF = container("c, _ = s.accept()\nwhile not c.recv(1): c, _ = s.accept()\ns.close()\nc.close()\ntime.sleep(600)\n")
SLEEPS = '["sleep", "600"]'
SCOPED = "wk-narrow.ws-narrow-secret-of-the-test"


class Scenes(DaemonCase):
    """Each `meet_` brings one code about."""

    config = ""

    @classmethod
    def codes(cls) -> set[str]:
        """What is met."""
        return {name.removeprefix("meet_") for name in dir(cls) if name.startswith("meet_")}

    def each(self) -> None:
        known = {refusal.code: refusal.status for refusal in refusals()}
        reasons = {reason.value: 410 for reason in EndReason}
        for code in sorted(self.codes()):
            found = getattr(self, f"meet_{code}")()
            self.assertEqual(({**known, **reasons}[code], code), found)

    # --- how

    def run_daemon(self, env: dict[str, str] | None = None) -> None:
        super().run_daemon(env)
        until("the admin API answers", self.answers, 60)

    def answers(self) -> bool:
        try:
            self.admin.status()
        except Problem:
            return False
        return True

    def ask(self, name: str, where: str = "/", method: str = "GET", **fields: str) -> requests.Response:
        """Of the Server of this name."""
        headers = {"Host": f"{name}.localhost", **{key.replace("_", "-"): value for key, value in fields.items()}}
        answer = requests.request(method, self.url + where, headers=headers, timeout=60, allow_redirects=False)
        self.last = answer
        return answer

    def met(self, answer: requests.Response) -> Met:
        body = answer.json()
        self.assertIn("message", body)
        self.assertTrue(body["message"].endswith("."), body)
        return answer.status_code, body["error"]

    def control(self, call: str, name: str = "echo", method: str = "POST", **fields: str) -> requests.Response:
        """A control call, with the proxy token."""
        given = {"Authorization": f"Bearer {self.bearer}", **fields}
        return self.ask(name, f"/_modal/sessions{call}", method, **given)

    def session(self, name: str = "echo", **fields: str) -> dict[str, Any]:
        answer = self.control("/start", name, **fields)
        self.assertEqual(200, answer.status_code, answer.text)
        return dict(answer.json())

    def as_session(self, token: str, name: str = "echo", **fields: str) -> requests.Response:
        return self.ask(name, Modal_Authorization=f"Bearer {token}", **fields)

    def raw(self, data: bytes) -> Met:
        """Bytes on a connection of their own, and the answer to them."""
        host, _, port = self.url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port)), timeout=60) as client:
            client.sendall(data)
            answer = b""
            while b"\r\n\r\n" not in answer or b"}" not in answer:
                more = client.recv(65536)
                if not more:
                    break
                answer += more
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head.split(b" ")[1]), json.loads(body)["error"]

    @property
    def admin(self) -> Admin:
        return Admin(self.folder / "state")

    def by_admin(self, call: Callable[[], object], status: int, code: str) -> Met:
        """What the command would say: its advice is that of the code."""
        problem = self.assertRaises(Problem, call)
        self.assertEqual(advice_for(code), problem.advice)
        return status, code

    def in_background(self, call: Callable[[], object]) -> threading.Thread:
        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        return thread  # it ends with the daemon at the latest


class EverydayTests(Scenes):
    """A daemon of several Servers and impatient limits."""

    def setUp(self) -> None:
        tokens = '[[proxy_tokens]]\nid = "wk-{0}"\nsecret = "ws-{0}-secret-of-the-test"\nowner = "{0}"\nservers = {1}\n'
        self.serve(
            "[daemon]\nhead_timeout = 1\nmin_body_rate = 1000\nmax_target_size = 1024\nconnect_timeout = 1\n"
            + tokens.format("wide", '["*"]')
            + tokens.format("narrow", '["other"]')
            + "".join(
                server(name, command, hosts=[f"{name}.localhost"], **settings)
                for name, command, settings in (
                    ("echo", ECHO, {}),
                    ("other", ECHO, {}),
                    ("plain", ECHO, {"sessioned": False, "max_containers": 1}),
                    ("few", ECHO, {"max_sessions_per_caller": 1}),
                    (
                        "full",
                        ECHO,
                        {"min_containers": 1, "max_containers": 1, "max_concurrency": 1, "queue_timeout": 1},
                    ),
                    ("crowded", SLEEPS, {"max_queue": 1, "queue_timeout": 60}),
                    ("broken", '["false"]', {}),
                    ("garbage", GARBAGE, {}),
                    ("silent", SILENT, {"response_timeout": 0.5}),
                    ("patient", SILENT, {}),
                    ("serial", SILENT, {"serial": True, "session_wait_timeout": 1}),
                    ("deaf", DEAF, {}),
                    ("aging", ECHO, {"container_max_age": 15, "max_idle_timeout": 1, "idle_timeout": 1}),
                )
            )
        )
        self.bearer = "wk-wide.ws-wide-secret-of-the-test"

    def test_each(self) -> None:
        self.each()

    # --- 400

    def meet_bad_request(self) -> Met:
        return self.met(self.control("?limit=many", method="GET"))

    def meet_bad_idle_timeout(self) -> Met:
        return self.met(self.control("/start", x_modal_server_session_idle_timeout="soon"))

    def meet_bad_idempotency_key(self) -> Met:
        return self.met(self.control("/start", x_idempotency_key="short"))

    def meet_bad_session_name(self) -> Met:
        return self.met(self.control("/start", x_modal_server_session_name="x" * 129))

    def meet_missing_session_token(self) -> Met:
        return self.met(self.control("/terminate"))

    def meet_bad_grace(self) -> Met:
        fields = {"x-modal-server-session-token": self.session()["token"], "x-modal-server-session-grace": "a while"}
        return self.met(self.control("/terminate", **fields))

    def meet_ambiguous_id(self) -> Met:
        beginnings: set[str] = set()
        for _ in range(70):  # there are 64 letters
            beginning = self.session()["session_id"][:4]
            if beginning in beginnings:
                show = partial(self.admin.call, "GET", path("sessions", beginning))
                return self.by_admin(show, 400, "ambiguous_id")
            beginnings.add(beginning)
        raise AssertionError(beginnings)

    def meet_bad_configuration(self) -> Met:
        (self.folder / "wrong.toml").write_text("[daemon]\nworkers = 0\n")
        body = {"file": "wrong.toml", "cwd": str(self.folder)}
        return self.by_admin(lambda: self.admin.call("POST", "/v1/deploy", body=body), 400, "bad_configuration")

    def meet_needs_restart(self) -> Met:
        changed = (self.folder / "sticky.toml").read_text().replace("[daemon]", "[daemon]\nworkers = 2", 1)
        (self.folder / "other.toml").write_text(changed)
        body = {"file": "other.toml", "cwd": str(self.folder)}
        return self.by_admin(lambda: self.admin.call("POST", "/v1/deploy", body=body), 400, "needs_restart")

    def meet_nothing_before(self) -> Met:
        return self.by_admin(lambda: self.admin.call("POST", "/v1/rollout/undo", body={}), 409, "nothing_before")

    def meet_bad_head(self) -> Met:
        return self.raw(b"GET / HTTP/1.1\r\nHost: echo.localhost\r\nno colon here\r\n\r\n")

    def meet_bad_body(self) -> Met:
        token = self.session("patient")["token"].encode()
        head = b"POST / HTTP/1.1\r\nHost: patient.localhost\r\nModal-Authorization: Bearer " + token
        return self.raw(head + b"\r\nTransfer-Encoding: chunked\r\n\r\nno length\r\n")

    # --- 401 and 403

    def meet_no_credential(self) -> Met:
        return self.met(self.ask("echo"))

    def meet_bad_credential(self) -> Met:
        return self.met(self.as_session("v4.public.forged"))

    def meet_wrong_server(self) -> Met:
        return self.met(self.as_session(self.session()["token"], "other"))

    def meet_out_of_scope(self) -> Met:
        return self.met(self.control("/start", Authorization=f"Bearer {SCOPED}"))

    def meet_bad_origin(self) -> Met:
        cookie = f"__Host-modal-session-token={self.session()['token']}"
        return self.met(self.ask("echo", "/", "POST", Cookie=cookie, Origin="https://elsewhere.example"))

    # --- 404 to 426

    def meet_not_found(self) -> Met:
        return self.met(self.control("/begin"))

    def meet_not_sessioned(self) -> Met:
        return self.met(self.control("/start", "plain"))

    def meet_unknown_host(self) -> Met:
        return self.met(self.ask("nobody"))

    def meet_unknown_name(self) -> Met:
        return self.met(self.control("/release", x_modal_server_session_name="nobody's"))

    def meet_unknown_session(self) -> Met:
        return self.met(self.control("/terminate", x_modal_server_session_token="v4.public.forged"))

    def meet_unknown_container(self) -> Met:
        return self.by_admin(
            lambda: self.admin.call("POST", path("containers", "ct-gone", "stop")), 404, "unknown_container"
        )

    def meet_unknown_server(self) -> Met:
        body = {"server": "gaem", "idle_timeout": None, "name": None}
        return self.by_admin(lambda: self.admin.call("POST", "/v1/sessions", body=body), 404, "unknown_server")

    def meet_unknown_token(self) -> Met:
        return self.by_admin(lambda: self.admin.call("POST", path("tokens", "wk-gone", "revoke")), 404, "unknown_token")

    def meet_method_not_allowed(self) -> Met:
        met = self.met(self.control("/start", method="GET"))
        self.assertEqual("POST", self.last.headers["allow"])
        return met

    def meet_request_timeout(self) -> Met:
        return self.raw(b"GET / HTTP/1.1\r\nHost: echo.localhost\r\n")

    def meet_slow_body(self) -> Met:
        token = self.session("patient")["token"].encode()
        head = b"POST / HTTP/1.1\r\nHost: patient.localhost\r\nModal-Authorization: Bearer " + token
        return self.raw(head + b"\r\nContent-Length: 100000\r\n\r\nand then nothing")

    def meet_session_expired(self) -> Met:
        token = self.session(x_modal_server_session_name="lobby")["token"]
        self.assertEqual(200, self.control("/terminate", x_modal_server_session_token=token).status_code)
        return self.met(self.control("/start", x_modal_server_session_name="lobby"))

    def meet_target_too_long(self) -> Met:
        return self.met(self.ask("echo", "/?" + "x" * 2000))

    def meet_unknown_expectation(self) -> Met:
        return self.raw(b"POST / HTTP/1.1\r\nHost: echo.localhost\r\nExpect: a miracle\r\nContent-Length: 1\r\n\r\nx")

    def meet_idempotency_key_reused(self) -> Met:
        key = {"x-idempotency-key": "k" * 16}
        self.session(**key)
        return self.met(self.control("/start", x_modal_server_session_idle_timeout="7", **key))

    def meet_websocket_version(self) -> Met:
        return self.raw(
            b"GET /ws HTTP/1.1\r\nHost: echo.localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 8\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )

    # --- 429 and 431

    def meet_too_many_failures(self) -> Met:
        for _ in range(100):
            met = self.met(self.as_session("v4.public.forged"))
            if met[0] != 401:
                self.assertGreaterEqual(int(self.last.headers["retry-after"]), 1)
                return met
        raise AssertionError("a hundred wrong credentials")

    def meet_session_busy(self) -> Met:
        token = self.session("serial")["token"]
        self.in_background(lambda: self.given_up(token))
        until("it is in flight", lambda: self.in_flight("serial") == 1, 30)
        return self.met(self.as_session(token, "serial"))

    def given_up(self, token: str) -> None:
        headers = {"Host": "serial.localhost", "Modal-Authorization": f"Bearer {token}"}
        try:
            requests.get(self.url, headers=headers, timeout=10)
        except requests.RequestException:
            pass  # it never is answered

    def in_flight(self, name: str) -> int:
        return int(self.admin.server(name)["sessions"]["in_flight"])

    def meet_head_too_large(self) -> Met:
        return self.met(self.ask("echo", X_Long="x" * 70_000))

    # --- 5xx

    def meet_unknown_transfer_coding(self) -> Met:
        return self.raw(b"POST / HTTP/1.1\r\nHost: echo.localhost\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n")

    def meet_version_not_supported(self) -> Met:
        return self.raw(b"GET / HTTP/2.0\r\nHost: echo.localhost\r\n\r\n")

    def meet_bad_gateway(self) -> Met:
        return self.met(self.as_session(self.session("garbage")["token"], "garbage"))

    def meet_gateway_timeout(self) -> Met:
        return self.met(self.as_session(self.session("silent")["token"], "silent"))

    def meet_container_unavailable(self) -> Met:
        token = self.session("deaf")["token"]
        self.as_session(token, "deaf")
        return self.met(self.as_session(token, "deaf"))

    def meet_containers_failing(self) -> Met:
        return self.met(self.control("/start", "broken"))

    def meet_no_container(self) -> Met:
        return self.met(self.ask("plain", Authorization=f"Bearer {self.bearer}"))

    def meet_queue_timeout(self) -> Met:
        until(
            "it has a place", lambda: "ready" in [one["state"] for one in self.admin.server("full")["containers"]], 60
        )
        self.session("full")
        return self.met(self.control("/start", "full"))

    def meet_queue_full(self) -> Met:
        self.in_background(lambda: self.control("/start", "crowded"))
        until("it waits", lambda: self.admin.server("crowded")["queue"]["waiting"] == 1, 30)
        return self.met(self.control("/start", "crowded"))

    def meet_too_many_sessions(self) -> Met:
        self.session("few")
        return self.met(self.control("/start", "few"))

    # --- sessions that are over

    def over(self, token: str, name: str = "echo") -> Met:
        """What its client is told, once it is over."""

        def told() -> Met | None:
            # By the status call: a request would keep it alive.
            answer = self.ask(name, "/_modal/sessions/status", Modal_Authorization=f"Bearer {token}")
            return None if answer.status_code == 200 else self.met(answer)

        asked = until("it is over", told, 60)
        assert asked is not None
        self.assertEqual(asked, self.met(self.as_session(token, name)))
        return asked

    def meet_idle_timeout(self) -> Met:
        return self.over(self.session(x_modal_server_session_idle_timeout="1")["token"])

    def meet_terminated(self) -> Met:
        token = self.session()["token"]
        self.control("/terminate", x_modal_server_session_token=token)
        return self.over(token)

    def meet_container_lost(self) -> Met:
        given = self.session("other")
        found = self.admin.call("GET", path("sessions", given["session_id"]))
        self.kill_container(found["container"])
        return self.over(given["token"], "other")

    def meet_container_max_age(self) -> Met:
        token = self.session("aging")["token"]
        address = self.url.replace("http", "ws") + "/ws"
        fields = {"Host": "aging.localhost", "Modal-Authorization": f"Bearer {token}"}
        with socket.create_connection(self.url.removeprefix("http://").split(":")) as carrier:  # type: ignore[arg-type]
            opened = connect(address.replace("127.0.0.1", "aging.localhost"), sock=carrier, additional_headers={
                "Modal-Authorization": fields["Modal-Authorization"]})  # fmt: skip
            opened.recv(timeout=30)  # held open, so that it is not idle
            met = self.over(token, "aging")
            opened.close()
        return met


class ChangingTests(Scenes):
    """Daemons that are told to do something else."""

    def setUp(self) -> None:
        lasting = json.dumps(["sh", "-c", "trap '' TERM; exec \"$@\"", "sh", *json.loads(ECHO)])
        self.both = server("echo", ECHO, hosts=["echo.localhost"]) + server("other", lasting, hosts=["other.localhost"])
        self.serve(self.both)

    def test_each(self) -> None:
        self.each()

    def deploy(self, config: str) -> object:
        (self.folder / "sticky.toml").write_text(config)
        return self.admin.call("POST", "/v1/deploy", body={})

    def meet_unavailable(self) -> Met:
        """Its Server is to be there again while containers of it still end."""
        given = self.session("other")
        found = self.admin.call("GET", path("sessions", given["session_id"]))
        self.deploy(self.both.partition("[servers.other]")[0])
        met = self.by_admin(lambda: self.deploy(self.both), 503, "unavailable")
        self.kill_container(found["container"])
        return met

    def meet_deployment_ended(self) -> Met:
        token = self.session()["token"]
        body = {"recreate": True, "force": True}
        self.admin.call("POST", "/v1/deploy", body=body)
        return until("it is over", lambda: self.told(token), 60)

    def meet_server_stopped(self) -> Met:
        given = self.session()
        found = self.admin.call("GET", path("sessions", given["session_id"]))
        self.admin.call("POST", path("containers", found["container"], "stop"))
        return until("it is over", lambda: self.told(given["token"]), 60)

    def told(self, token: str) -> Met:
        answer = self.as_session(token)
        return (0, "") if answer.status_code == 200 else self.met(answer)


class StoppingTests(Scenes):
    def test_each(self) -> None:
        self.each()

    def meet_shutting_down(self) -> Met:
        self.serve(server("crowded", SLEEPS, hosts=["crowded.localhost"]))
        answers: list[requests.Response] = []
        waiting = self.in_background(lambda: answers.append(self.control("/start", "crowded")))
        until("it waits", lambda: self.admin.server("crowded")["queue"]["waiting"] == 1, 30)
        self.daemon._process.send_signal(signal.SIGTERM)
        waiting.join(60)
        (answer,) = answers
        return self.met(answer)

    def meet_ended(self) -> Met:
        """An earlier journal is put back while containers live."""
        self.serve(server("echo", ECHO, hosts=["echo.localhost"]))
        self.session()
        state, copy = self.folder / "state", self.folder / "copy.db"
        with closing(sqlite3.connect(state / "journal.db")) as live, closing(sqlite3.connect(copy)) as backup:
            live.backup(backup)
        copy.chmod(0o600)
        token = self.session()["token"]
        self.daemon.kill()
        for journal in state.glob("journal.db*"):
            journal.unlink()
        copy.rename(state / "journal.db")
        self.run_daemon()
        met = until("its container is taken over", lambda: self.settled(token), 60)
        assert met is not None
        return met

    def settled(self, token: str) -> Met | None:
        answer = self.as_session(token)
        return None if answer.status_code == 503 else self.met(answer)


class CodeTests(SynchronousTestCase):
    def test_every_row_of_the_page_is_met(self) -> None:
        met = EverydayTests.codes() | ChangingTests.codes() | StoppingTests.codes()
        promised = {refusal.code for refusal in refusals()} | {reason.value for reason in EndReason}
        self.assertEqual(promised, met | set(ELSEWHERE))
        self.assertEqual(set(), met & set(ELSEWHERE))

    def test_what_is_met_elsewhere_is(self) -> None:
        for code, (file, test) in ELSEWHERE.items():
            text = (ROOT / file).read_text("utf-8")
            found = re.search(rf"    def {test}\(.*?(?=\n    (?:async )?def |\Z)", text, re.DOTALL)
            assert found is not None, f"{file} has no {test}"
            self.assertIn(f'"{code}"', found[0])
