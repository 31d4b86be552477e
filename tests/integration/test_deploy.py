"""New definitions for a real daemon that runs: nobody who is connected may notice, and what is wrong changes nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from sticky.cli.problems import Status
from tests.integration.daemon_case import APPS, ECHO, PYTHON, DaemonCase, server
from tests.integration.running_daemon import ROOT, TWISTD, until

ONE = server("one", ECHO)
CHANGED = ONE.rstrip() + '\nenv = { VERSION = "2" }\n'


class DeployCase(DaemonCase):
    def write(self, config: str) -> None:
        (self.folder / "sticky.toml").write_text(config)

    def asked(self, *arguments: str) -> Any:
        return json.loads(self.sticky(*arguments, "--json"))

    def deployed(self, *arguments: str) -> dict[str, str]:
        """What `sticky deploy` says of each Server."""
        return {one["name"]: one["what"] for one in self.asked("deploy", *arguments)["servers"]}

    def where(self, token: str) -> str:
        answer = self.get(token)
        self.assertEqual(answer.status_code, 200, answer.text)
        return answer.text

    def opened(self, token: str, host: str | None = None) -> tuple[ClientConnection, str]:
        """A WebSocket, and the container that it is with."""
        opened = self.websocket(token, host)
        return opened, str(opened.recv(timeout=60))

    def echoes(self, socket: ClientConnection, text: str) -> None:
        socket.send(text)
        self.assertEqual(socket.recv(timeout=60), text)

    def closed_with(self, socket: ClientConnection) -> int:
        with self.assertRaises(ConnectionClosed) as caught:
            socket.recv(timeout=15)
        assert caught.exception.rcvd is not None
        return int(caught.exception.rcvd.code)

    def sessions_by_age(self) -> list[tuple[bool, int]]:
        """(newest, sessions) of each deployment."""
        return [(one["newest"], one["sessions"]) for one in self.asked("rollout", "status")["deployments"]]


class RollingTests(DeployCase):
    def test_old_containers_keep_sessions_and_websockets_and_new_sessions_go_to_new_ones(self) -> None:
        self.serve(ONE)
        old = self.token()
        socket, home = self.opened(old)
        self.write(CHANGED)
        self.assertEqual(self.deployed(), {"one": "rolling"})
        self.echoes(socket, "still here")
        new = self.token()
        self.assertNotEqual(self.where(new), home)
        self.assertEqual(self.where(old), home)
        self.assertEqual(self.sessions_by_age(), [(True, 1), (False, 1)])
        self.assertRegex(self.sticky("rollout", "status"), r"one +dp-\S+ +old +ready +1 +1")
        self.echoes(socket, "and still")
        self.terminate(old)
        socket.close()
        until("the old container goes with its last session", lambda: len(self.children()) == 1)
        self.assertEqual(self.sessions_by_age(), [(True, 1)])

    def test_recreate_ends_old_sessions_with_1012(self) -> None:
        self.serve(ONE)
        token = self.token()
        socket, home = self.opened(token)
        self.write(CHANGED)
        self.assertEqual(self.deployed("--recreate"), {"one": "recreated"})
        self.assertEqual(self.closed_with(socket), 1012)
        refused = self.get(token)
        self.assertEqual((refused.status_code, refused.json()["error"]), (410, "deployment_ended"))
        self.assertNotEqual(self.where(self.token()), home)

    def test_recreate_later_ends_what_a_rolling_deployment_left(self) -> None:
        self.serve(ONE)
        token = self.token()
        self.write(CHANGED)
        self.deployed()
        self.assertEqual(self.get(token).status_code, 200)
        self.assertEqual(self.deployed("--recreate"), {"one": "recreated"})
        self.assertEqual(self.get(token).json()["error"], "deployment_ended")

    def test_undo_goes_back_to_the_old_containers_while_they_are_there(self) -> None:
        self.serve(ONE)
        old = self.token()
        home = self.where(old)
        self.sticky("rollout", "undo", status=Status.FAILED)
        self.write(CHANGED)
        self.deployed()
        new = self.token()
        newer_home = self.where(new)
        self.assertIn("one is rolled over (env); 1 session on other containers", self.sticky("rollout", "undo"))
        self.assertEqual(self.where(self.token()), home)
        self.assertEqual(self.where(new), newer_home)
        self.sticky("rollout", "undo")
        self.assertEqual(self.where(self.token()), newer_home)

    def test_the_same_again_changes_nothing_and_force_makes_new_containers(self) -> None:
        self.serve(ONE)
        home = self.where(self.token())
        self.assertEqual(self.deployed(), {"one": "unchanged"})
        self.assertEqual(self.where(self.token()), home)
        self.assertEqual(self.deployed("--force"), {"one": "rolling"})
        self.assertNotEqual(self.where(self.token()), home)
        self.assertEqual(self.deployed(), {"one": "unchanged"})

    def test_a_changed_program_file_rolls(self) -> None:
        program = f'["{PYTHON}", "server.py", "{{port}}"]'
        self.serve(server("one", '["sleep", "0"]'))
        (self.folder / "server.py").write_text((APPS / "echo_ws.py").read_text())
        self.write(server("one", program))
        self.deployed()
        home = self.where(self.token())
        with (self.folder / "server.py").open("a") as file:
            file.write("# another version\n")
        self.assertEqual(self.deployed(), {"one": "rolling"})
        self.assertNotEqual(self.where(self.token()), home)


class LiveTests(DeployCase):
    def test_limits_count_at_once_for_containers_that_run(self) -> None:
        # The one container is there before anybody asks: a start waits for a second only.
        one = {"min_containers": 1, "max_containers": 1, "queue_timeout": 1}
        self.serve(server("one", ECHO, max_concurrency=1, **one))
        until(
            "it is ready", lambda: [box["state"] for box in self.asked("containers", "list")["containers"]] == ["ready"]
        )
        socket, home = self.opened(self.token())
        self.assertEqual(self.start().status_code, 503)
        self.write(server("one", ECHO, max_concurrency=2, **one))
        self.assertIn("one has other settings, its containers stay (max_concurrency)", self.sticky("deploy"))
        self.assertEqual(self.where(self.token()), home)
        self.assertEqual(self.start().status_code, 503)
        self.echoes(socket, "still here")

    def test_hosts_and_access_count_at_once(self) -> None:
        self.serve(server("one", ECHO, hosts=["one.localhost"]))
        socket, _ = self.opened(self.token("one.localhost"), "one.localhost")
        self.write(server("one", ECHO, hosts=["uno.localhost"], unauthenticated=True))
        self.assertEqual(self.deployed(), {"one": "live"})
        self.assertEqual(self.start("one.localhost").status_code, 404)
        self.assertEqual(
            self.http.post(f"{self.url}/_modal/sessions/start", headers={"Host": "uno.localhost"}).status_code, 200
        )
        self.echoes(socket, "still here")

    def test_proxy_tokens_count_at_once(self) -> None:
        self.serve(ONE)
        self.assertEqual(self.start().status_code, 200)
        token = '[[proxy_tokens]]\nid = "wk-a"\nsecret = "ws-secret"\nowner = "ann"\n\n'
        self.write(token + ONE)
        self.assertIn("proxy tokens have changed", self.sticky("deploy"))
        self.assertEqual(self.start().status_code, 401)
        self.bearer = "wk-a.ws-secret"
        self.assertEqual(self.start().status_code, 200)


class ServersTests(DeployCase):
    def test_new_servers_come_and_removed_ones_end(self) -> None:
        one = server("one", ECHO, hosts=["one.localhost"])
        two = server("two", ECHO, hosts=["two.localhost"])
        three = server("three", ECHO, hosts=["three.localhost"])
        self.serve(one + two)
        stays, goes = self.token("one.localhost"), self.token("two.localhost")
        home = self.get(stays, Host="one.localhost").text
        socket, _ = self.opened(goes, "two.localhost")
        self.write(one + three)
        self.assertEqual(self.deployed(), {"one": "unchanged", "three": "added", "two": "removed"})
        self.assertEqual(self.closed_with(socket), 1012)
        self.assertEqual(self.get(goes, Host="two.localhost").status_code, 404)
        self.assertEqual(self.get(stays, Host="one.localhost").text, home)
        self.token("three.localhost")
        names = [line.split()[0] for line in (self.folder / "state" / "url").read_text().splitlines()[1:]]
        self.assertEqual(names, ["one", "three"])
        until("the removed Server is gone", lambda: not self.asked("rollout", "status")["leaving"])
        self.assertEqual(self.asked("rollout", "undo")["servers"][1]["what"], "added")
        self.token("two.localhost")

    def test_another_file(self) -> None:
        self.serve(ONE)
        release = self.folder / "releases" / "2"
        release.mkdir(parents=True)
        (release / "sticky.toml").write_text(CHANGED)
        self.assertEqual(self.deployed("releases/2/sticky.toml"), {"one": "rolling"})
        self.assertIn(str(release / "sticky.toml"), self.sticky("rollout", "status"))
        self.write("broken")  # what nobody reads any more
        self.assertEqual(self.deployed(), {"one": "unchanged"})


class RefusedTests(DeployCase):
    def test_a_bad_definition_changes_nothing_and_says_why(self) -> None:
        self.serve(ONE)
        token = self.token()
        socket, home = self.opened(token)
        self.write(server("one", ECHO, max_containers=0))
        said = self.sticky("deploy", status=Status.USAGE)
        self.assertIn("servers.one.max_containers: 0 is not allowed", said)
        self.assertIn("nothing has changed", self.daemon.output())
        self.write('listen = "')
        self.assertIn("is not valid TOML", self.sticky("deploy", status=Status.USAGE))
        self.sticky("deploy", "gone.py", status=Status.USAGE)
        self.echoes(socket, "still here")
        self.assertEqual(self.where(self.token()), home)
        self.assertEqual(self.sessions_by_age(), [(True, 2)])

    def test_what_needs_a_restart_is_refused_by_name(self) -> None:
        self.serve(ONE)
        self.write('[daemon]\nbrand = "other"\nworkers = 1\n\n' + CHANGED)
        said = self.sticky("deploy", status=Status.USAGE)
        self.assertIn("daemon.brand: a change of this setting needs a restart of the daemon", said)
        self.assertEqual(len(self.sessions_by_age()), 1)

    def test_an_apps_code_runs_in_a_child_and_a_bad_app_changes_nothing(self) -> None:
        self.serve(ONE)
        home = self.where(self.token())
        (self.folder / "bad.py").write_text(
            "import os\nopen('imported', 'w').write(str(os.getpid()))\nraise ValueError('no')\n"
        )
        self.assertIn("no", self.sticky("deploy", "bad.py", status=Status.USAGE))
        self.assertNotEqual(int((self.folder / "imported").read_text()), self.daemon.pid)
        self.assertEqual(self.where(self.token()), home)

    def test_a_daemon_that_ends_waits_for_no_import(self) -> None:
        self.serve(ONE)
        (self.folder / "slow.py").write_text(
            "import os, time\nopen('importing', 'w').write(f'{os.getpid()}\\n')\ntime.sleep(3600)\n"
        )
        asking = subprocess.Popen(
            [PYTHON, "-m", "sticky.cli", "deploy", "slow.py"], cwd=self.folder, stderr=subprocess.DEVNULL
        )
        self.addCleanup(asking.wait)
        self.addCleanup(asking.kill)
        importing = self.folder / "importing"
        until("it imports", lambda: importing.exists() and importing.read_text().endswith("\n"))
        self.daemon.stop()
        self.assertIn("Server Shut Down", self.daemon.output())
        until("the import has ended", lambda: not Path("/proc", importing.read_text().strip()).exists())


class HangupTests(DeployCase):
    def hang_up(self, until_said: str) -> None:
        before = self.daemon.output().count(until_said)
        os.kill(self.daemon.pid, signal.SIGHUP)
        self.daemon.wait_for(until_said, lambda: self.daemon.output().count(until_said) > before)

    def test_sighup_reads_the_definition_again(self) -> None:
        self.serve(ONE)
        token = self.token()
        socket, home = self.opened(token)
        self.write("broken")
        self.hang_up("nothing has changed")
        self.write(CHANGED)
        self.hang_up("Server one is rolling")
        self.assertNotEqual(self.where(self.token()), home)
        self.echoes(socket, "still here")


class TerminalTests(DeployCase):
    def test_a_daemonized_one_reads_again_and_one_with_a_terminal_stops(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="sticky-test-")).resolve()
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.addCleanup(self.kill_children)
        self.write(ONE)
        pidfile, log = self.folder / "pid", self.folder / "log"
        arguments = ["sticky", "--config", "sticky.toml", "--listen", "tcp:0:interface=127.0.0.1"]
        subprocess.run([*TWISTD, "--pidfile=pid", "--logfile=log", *arguments], cwd=self.folder, check=True, timeout=60)
        until("it listens", (self.folder / "state" / "url").exists)
        pid = int(pidfile.read_text())
        try:
            os.kill(pid, signal.SIGHUP)
            until("it reads again", lambda: "Server one is unchanged" in log.read_text())
        finally:
            os.kill(pid, signal.SIGTERM)
            until("it is gone", lambda: not Path(f"/proc/{pid}").exists(), within=60)
        ours, theirs = os.openpty()
        self.addCleanup(os.close, ours)
        # setsid(1) makes the terminal the controlling one: a daemon that somebody started in a window.
        command = ["setsid", "--ctty", *TWISTD, "-n", "--pidfile=", "--logfile=log2", *arguments]
        child = subprocess.Popen(command, cwd=self.folder, stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        try:
            until("it listens", (self.folder / "state" / "url").exists)
            os.kill(child.pid, signal.SIGHUP)
            self.assertEqual(child.wait(60), 0)
        finally:
            child.kill()
            child.wait()
        self.assertNotIn("a new definition is read", (self.folder / "log2").read_text())


class PageTests(DeployCase):
    """Every command in docs/deploying.md is run as it stands there."""

    def test_the_commands_of_the_page(self) -> None:
        page = (ROOT / "docs" / "deploying.md").read_text()
        blocks = re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
        lines = [line.split("#")[0].strip() for block in blocks for line in block.splitlines()]
        lines = [line for line in lines if line]
        self.assertGreater(len(lines), 6)
        self.serve(ONE)
        release = self.folder / "releases" / "42"
        release.mkdir(parents=True)
        (release / "sticky.toml").write_text(CHANGED)
        path = f"{Path(PYTHON).parent}:{os.environ['PATH']}"
        environ = {**os.environ, "PATH": path, "DAEMON_PID": str(self.daemon.pid)}
        for line in lines:
            done = subprocess.run(
                ["sh", "-c", line],
                cwd=self.folder,
                env=environ,
                capture_output=True,
                text=True,
                timeout=90,
                check=False,
            )
            self.assertEqual(done.returncode, 0, f"{line}\n{done.stdout}{done.stderr}")
        self.daemon.wait_for("the last one", lambda: self.daemon.output().count("a new definition is read") >= 5)
