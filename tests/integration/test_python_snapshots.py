"""Python Servers whose containers are forked from a process that has run their snap hooks: with a real daemon, from outside."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from sticky.cli.client import Admin
from tests.integration.children import alive
from tests.integration.daemon_case import PYTHON, DaemonCase
from tests.integration.running_daemon import Daemon, until

APP = """
import http.server, json, os, random, sys, threading
import sticky

app = sticky.App("heavy")


@app.server(port=None, preimport=["decimal"], max_containers=6, scaledown_window=2)
@sticky.sessioned(max_concurrency=1)
class Heavy:
    @sticky.enter(snap=True)
    async def load(self):
        self.loaded_in = os.getpid()
        self.known = [name for name in ("PORT", "STICKY_CONTAINER_ID", "STICKY_READY_FD") if name in os.environ]
        print("loaded")

    @sticky.enter()
    def serve(self):
        facts = json.dumps({
            "version": 1,
            "pid": os.getpid(),
            "parent": os.getppid(),
            "loaded_in": self.loaded_in,
            "known": self.known,
            "container": os.environ["STICKY_CONTAINER_ID"],
            "chance": random.random(),
            "decimal": "decimal" in sys.modules,
        }).encode()

        class Page(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.send_header("Content-Length", str(len(facts)))
                self.end_headers()
                self.wfile.write(facts)

            def log_message(self, *arguments): ...

        server = http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Page)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print("serves")

    @sticky.exit()
    def bye(self):
        print("bye")
"""


class SnapshotCase(DaemonCase):
    flags: tuple[str, ...] = ()
    text = APP
    timeout = 240

    def run_daemon(self, env: dict[str, str] | None = None) -> None:
        if not (self.folder / "game.py").exists():
            (self.folder / "game.py").write_text(self.text)
        self.daemon = Daemon(
            self.folder, "--app", "game.py", "--config", str(self.folder / "sticky.toml"), *self.flags, env=env
        )
        self.addCleanup(self.daemon.stop)
        self.url = self.daemon.url()
        self.bearer = (self.folder / "state" / "proxy-token").read_text().strip()

    def serve_app(self, text: str = APP, config: str = "", state: str = "warm") -> None:
        """A daemon with the app, once the process that forks is in this state."""
        self.text = text
        self.serve(config)
        self.until_snapshot(state)

    def serve_one(self) -> tuple[int, str, dict[str, Any]]:
        """A daemon with the app and one session. Returns the pid that forks, the session's token, and what its container says."""
        self.serve_app()
        pid = self.snapshot()["pid"]
        token = self.token()
        return pid, token, self.facts(token)

    def server(self) -> dict[str, Any]:
        """As `sticky status` has it."""
        return Admin(self.folder / "state").server("Heavy")

    def snapshot(self) -> dict[str, Any]:
        found: dict[str, Any] = self.server()["snapshot"] or {"state": None}
        return found

    def until_snapshot(self, state: str | None, but: int | None = None) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            found = self.snapshot()
            return found if found["state"] == state and (but is None or found["pid"] != but) else None

        found = until(f"the snapshot is {state}", look, within=60)
        assert found is not None
        return found

    def facts(self, token: str) -> dict[str, Any]:
        answer = self.get(token)
        self.assertEqual(answer.status_code, 200, answer.text)
        found: dict[str, Any] = answer.json()
        return found


class ForkedTests(SnapshotCase):
    def test_what_the_snap_hooks_did_is_there_and_each_container_is_its_own(self) -> None:
        self.serve_app()
        zygote = self.snapshot()["pid"]
        one, other = self.facts(self.token()), self.facts(self.token())
        for found in (one, other):
            self.assertEqual((found["parent"], found["loaded_in"], found["known"]), (zygote, zygote, []))
            self.assertTrue(found["decimal"])
            self.assertIn(
                f"STICKY_CONTAINER_ID={found['container']}".encode(),
                Path(f"/proc/{found['pid']}/environ").read_bytes().split(b"\0"),
            )
        self.assertNotEqual(one["pid"], other["pid"])
        self.assertNotEqual(one["chance"], other["chance"])

    def test_output_goes_to_its_log_once_and_exit_hooks_run(self) -> None:
        self.serve_app()
        token = self.token()
        found = self.facts(token)
        self.terminate(token)
        log = self.folder / "state" / "logs" / f"Heavy.{found['container']}.log"
        until("the exit hook has run", lambda: log.read_text() == "serves\nbye\n", within=30)
        self.assertEqual((self.folder / "state" / "logs" / "Heavy-snapshot.log").read_text(), "loaded\n")
        until("how it ended is known", lambda: [one["status"] for one in self.server()["ended"]] == [0], within=30)

    def test_status_says_how_much_memory_it_has(self) -> None:
        self.serve_app()
        self.assertGreater(self.snapshot()["memory"], 5 << 20)
        self.assertRegex(self.sticky("status"), r"SNAPSHOT OF +STATE +MEMORY +PID\s+Heavy +warm +\d+ MiB +\d+")

    def test_without_a_snapshot_the_same_hooks_run_in_each_container(self) -> None:
        self.serve("[servers.Heavy]\nsnapshot = false\n")
        found = self.facts(self.token())
        self.assertEqual(found["loaded_in"], found["pid"])
        self.assertEqual(found["known"], ["PORT", "STICKY_CONTAINER_ID"])
        self.assertTrue(found["decimal"])
        self.assertIsNone(self.snapshot()["state"])

    def test_an_enter_hook_that_raises_in_a_fork_is_told_as_of_any_container(self) -> None:
        self.serve_app(APP.replace('print("serves")', 'raise ValueError("no such map")'))
        self.assertEqual(self.start().status_code, 503)
        said = self.sticky("status")
        self.assertIn("exited with status 1 before it was ready", said)
        self.assertIn("ValueError: no such map", said)

    def test_another_interpreter_forks_its_own(self) -> None:
        self.serve_app(APP.replace("port=None,", f"port=None, python={PYTHON!r},"))
        zygote = self.snapshot()["pid"]
        self.assertIn(b"bootstrap.py", Path(f"/proc/{zygote}/cmdline").read_bytes())
        self.assertEqual(self.facts(self.token())["parent"], zygote)


class UnfitTests(SnapshotCase):
    def starts_all_the_same(self, why: str) -> None:
        self.assertEqual(self.snapshot()["problem"], why)
        self.assertIn(f"Heavy: containers start from scratch, there is no snapshot: {why}"[:60], self.sticky("status"))
        self.assertIn(f"there is no snapshot of Heavy, its containers start from scratch: {why}", self.daemon.output())
        found = self.facts(self.token())
        self.assertEqual(found["loaded_in"], found["pid"])

    def test_a_thread_is_named_and_containers_start_from_scratch(self) -> None:
        self.serve_app(
            APP.replace(
                'print("loaded")', 'threading.Thread(target=threading.Event().wait, name="ticker", daemon=True).start()'
            ),
            state="dead",
        )
        self.starts_all_the_same("what ran before the fork has started threads: ticker")

    def test_what_needs_the_port_too_early_says_so(self) -> None:
        self.serve_app(APP.replace('print("loaded")', 'self.port = os.environ["PORT"]'), state="dead")
        self.starts_all_the_same("the enter hook Heavy.load failed: KeyError: 'PORT'")
        log = (self.folder / "state" / "logs" / "Heavy-snapshot.log").read_text()
        self.assertIn("in load", log)
        self.assertIn("KeyError: 'PORT'", log)


class ChangeTests(SnapshotCase):
    def test_a_deploy_makes_a_new_one_with_the_new_code_and_old_sessions_stay(self) -> None:
        old, token, before = self.serve_one()
        (self.folder / "game.py").write_text(APP.replace('"version": 1', '"version": 2'))
        os.kill(self.daemon.pid, signal.SIGHUP)
        new = self.until_snapshot("warm", but=old)["pid"]
        self.assertFalse(alive(old))
        self.assertEqual(self.facts(token), before)
        after = self.facts(self.token())
        self.assertEqual((after["version"], after["parent"]), (2, new))

    def test_one_that_is_killed_comes_again_and_its_containers_go_on(self) -> None:
        old, token, before = self.serve_one()
        os.kill(old, signal.SIGKILL)
        new = self.until_snapshot("warm", but=old)["pid"]
        self.assertEqual(self.facts(token), before)
        self.assertEqual(self.facts(self.token())["parent"], new)
        self.assertIn("it has ended; it is started again in 1 s", self.daemon.output())

    def test_containers_outlive_a_crash_of_the_daemon_and_the_zygote_does_not(self) -> None:
        old, token, before = self.serve_one()
        self.daemon.kill()
        until("the zygote ends with its daemon", lambda: not alive(old), within=30)
        self.run_daemon()
        self.assertEqual(self.facts(token), before)
        self.until_snapshot("warm", but=old)
        self.terminate(token)
        until("it ends with its session", lambda: not alive(before["pid"]), within=60)

    def test_a_restart_hands_containers_over_and_makes_a_new_one(self) -> None:
        old, token, before = self.serve_one()
        self.sticky("restart")
        self.assertEqual(self.facts(token), before)
        new = self.until_snapshot("warm", but=old)["pid"]
        self.assertFalse(alive(old))
        self.assertEqual(self.facts(self.token())["parent"], new)
        self.assertNotIn("nobody knows", self.daemon.output())


class EphemeralTests(SnapshotCase):
    flags = ("--ephemeral",)

    def test_containers_die_with_the_daemon_and_not_with_the_zygote(self) -> None:
        old, token, before = self.serve_one()
        os.kill(old, signal.SIGKILL)
        new = self.until_snapshot("warm", but=old)["pid"]
        self.assertEqual(self.facts(token), before)
        other = self.facts(self.token())
        self.assertEqual(other["parent"], new)
        self.daemon.kill()
        for pid in (before["pid"], other["pid"], new):
            until("it ends with its daemon", lambda pid=pid: not alive(pid), within=30)  # type: ignore[misc]
