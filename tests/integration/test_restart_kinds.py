"""`sticky restart` of daemons of every kind: behind TLS, with turns, with containers on an Engine, and in the background of twistd."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import sys
from concurrent.futures import ThreadPoolExecutor

from twisted.trial.unittest import SkipTest
from websockets.sync.client import ClientConnection, connect

from sticky.cli.problems import Status
from tests.integration.daemon_case import APPS, ECHO, server
from tests.integration.dockerd import INTERPRETER, MOUNTS, CannotRun, shared
from tests.integration.running_daemon import TWISTD, Daemon, Running, until
from tests.integration.test_docker_daemon import CONFIG
from tests.integration.test_restart import RestartCase
from tests.integration.test_tls import certify

GATED = json.dumps([sys.executable, str(APPS / "gated.py"), "{port}"])


class TlsAndTurnsTests(RestartCase):
    """A Server of WebSockets and one of turns, behind one listener with TLS."""

    def run_daemon(self, env: dict[str, str] | None = None) -> None:
        certificate = certify(self.folder)
        config = self.folder / "sticky.toml"
        listen = 'listen = ["ssl:0:interface=127.0.0.1:privateKey=key.pem:certKey=cert.pem"]\n'
        config.write_text(config.read_text().replace("[daemon]\n", "[daemon]\n" + listen))
        self.http.trust_env = False  # a bundle of certificates there would be taken in place of this one
        self.http.verify = str(certificate)
        self.daemon = Daemon(self.folder, "--config", str(config), env=env, listen=False)
        self.addCleanup(self.daemon.stop)
        self.url = self.daemon.url()
        self.bearer = (self.folder / "state" / "proxy-token").read_text().strip()

    def secure(self, token: str, host: str) -> ClientConnection:
        port = int(self.url.rpartition(":")[2])
        return connect(
            f"wss://{host}:{port}/ws",
            sock=socket.create_connection(("127.0.0.1", port)),
            ssl=ssl.create_default_context(cafile=str(self.folder / "cert.pem")),
            server_hostname="localhost",
            open_timeout=90,
            additional_headers={"Modal-Authorization": f"Bearer {token}"},
        )

    def ask(self, token: str, path: str) -> str:
        """Of the Server of turns. On a connection of its own: whoever has one to the old daemon stays there."""
        fields = {"Modal-Authorization": f"Bearer {token}", "Host": "two.localhost", "Connection": "close"}
        answer = self.http.get(self.url + path, headers=fields, timeout=300)
        self.assertEqual(answer.status_code, 200, answer.text)
        return answer.text

    def in_flight(self, token: str) -> int:
        return int(json.loads(self.ask(token, "/_modal/sessions/status"))["in_flight"])

    def test_websockets_go_on_new_clients_are_taken_and_turns_are_never_two_at_once(self) -> None:
        hosts = (server("one", ECHO, hosts=["one.localhost"]), server("two", GATED, hosts=["two.localhost"], serial=True,
                 session_wait_timeout=300))  # fmt: skip
        self.serve("".join(hosts))
        token, turns, looks = self.token("one.localhost"), self.token("two.localhost"), self.token("two.localhost")
        with self.secure(token, "one.localhost") as opened, ThreadPoolExecutor(3) as pool:
            container = str(opened.recv(timeout=60))
            asked = [pool.submit(self.ask, turns, "/wait") for _ in range(2)]
            until("one has its turn", lambda: self.ask(looks, "/inside") == "1")
            until("the other one waits", lambda: self.in_flight(turns) == 2)
            self.restarted()
            opened.send("x" * 100_000)
            self.assertEqual(opened.recv(timeout=60), "x" * 100_000)
            with self.secure(token, "one.localhost") as other:
                self.assertEqual(other.recv(timeout=60), container)
            self.http.close()
            self.assertEqual(self.get(self.token("one.localhost"), Host="one.localhost").status_code, 200)
            # Those of before wait in the old daemon's process, this one in the new one's.
            asked.append(pool.submit(self.ask, turns, "/wait"))
            until("the new daemon knows of all", lambda: self.in_flight(turns) == 3)
            for _ in range(3):
                until("one has its turn", lambda: self.ask(looks, "/inside") == "1")
                self.ask(looks, "/go")
            self.assertEqual([one.result(60) for one in asked], ["1"] * 3)
            until("it counts no longer", lambda: self.in_flight(turns) == 0)


class TlsAndTurnsWithWorkersTests(TlsAndTurnsTests):
    workers = 2


class DockerTests(RestartCase):
    def test_containers_on_an_engine_go_on(self) -> None:
        try:
            engine = shared("docker")
        except CannotRun as reason:
            raise SkipTest(str(reason)) from None
        mounts = json.dumps(list(MOUNTS))
        self.serve(CONFIG.format(interpreter=INTERPRETER, image=engine.image, socket=engine.socket, mounts=mounts))
        token = self.token()
        container, seen = self.get(token).text.split()
        old = self.lock_pid()
        new = self.restarted()
        self.http.close()
        self.assertEqual(self.get(token).text.split(), [container, str(int(seen) + 1)])
        until("the old one has ended", lambda: old not in self.daemons())
        self.assertEqual(self.get(token).text.split(), [container, str(int(seen) + 2)])
        self.assertNotEqual(self.get(self.token()).text.split()[0], container)
        self.stop(new)


class BackgroundTests(RestartCase):
    """`twistd sticky` without -n: it goes into the background and leaves a file with its pid."""

    def run_daemon(self, env: dict[str, str] | None = None) -> None:
        state = self.folder / "state"
        command = [*TWISTD, "--pidfile=here.pid", "--logfile=twistd.log", "sticky", "--config", "sticky.toml"]
        command += ["--state-dir", str(state), "--listen", "tcp:0:interface=127.0.0.1"]
        started = Running(command, self.folder / "daemon.log", env, fresh=True)
        self.daemon = started  # type: ignore[assignment]
        self.addCleanup(started.stop)
        self.assertEqual(started.wait(120), 0, started.output())
        left_at = state / "url"
        lines = until("it listens", lambda: left_at.exists() and left_at.read_text().splitlines())
        assert lines
        self.url = lines[0].rstrip("/")
        self.bearer = (state / "proxy-token").read_text().strip()

    def pid(self) -> int:
        return int((self.folder / "here.pid").read_text())

    def test_the_file_has_the_pid_of_whoever_is_in_charge_and_goes_with_it(self) -> None:
        self.serve(server("one", ECHO))
        token, old = self.token(), self.pid()
        opened = self.websocket(token)
        container = opened.recv(timeout=60)
        self.assertEqual((self.lock_pid(), self.daemons()), (old, [old]))

        with self.journal_in_the_way():
            self.assertIn("cannot open the journal", self.restart(status=Status.USAGE))
        self.assertEqual((self.pid(), self.lock_pid(), self.daemons()), (old, old, [old]))
        self.assertEqual(self.get(token).status_code, 200)
        until("the old one has its journal again", lambda: self.start().status_code == 200)

        new = self.restarted()
        self.assertEqual(self.pid(), new)
        opened.send("there?")
        self.assertEqual(opened.recv(timeout=60), "there?")
        os.kill(old, signal.SIGTERM)
        until("the old one has ended", lambda: self.daemons() == [new])
        self.assertEqual(self.pid(), new, "it was not the old one's to remove")
        self.http.close()
        self.assertIn(str(container), self.get(token).text)
        self.stop(new)
        self.assertFalse((self.folder / "here.pid").exists())
        self.assertEqual(self.children(), [])
