"""What people wonder about in their first days with a daemon: what goes on, what is old, what is missing, what a shell completes."""

from __future__ import annotations

import os
import pty
import shutil
import socket
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SkipTest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from tests.integration.daemon_case import APPS, ECHO, server
from tests.integration.running_daemon import Daemon, until
from tests.integration.test_cli import DEADLINE, STICKY, CommandCase

APP = """
import sys
import sticky

app = sticky.App("first")


@app.server(command=[sys.executable, "-c", "pass  # version 1"])
@sticky.sessioned()
class Server:
    pass
"""


class NewcomerCase(CommandCase):
    def serve(self, config: str) -> Daemon:
        (self.folder / "sticky.toml").write_text(config)
        daemon = Daemon(self.folder, "--config", "sticky.toml")
        self.addCleanup(daemon.stop)
        daemon.url()
        until("the admin API answers", (self.folder / "state/admin.sock").exists)
        return daemon


class DaemonTests(NewcomerCase):
    def setUp(self) -> None:
        super().setUp()
        self.daemon = self.serve(server("echo", ECHO))

    def test_a_terminated_session_goes_on_as_long_as_its_websocket(self) -> None:
        given = self.json("sessions", "start")
        headers = {"Modal-Authorization": f"Bearer {given['token']}"}
        with connect(
            self.daemon.url().replace("http", "ws", 1) + "/ws", additional_headers=headers, open_timeout=DEADLINE
        ) as peer:
            peer.recv(DEADLINE)  # its container's id
            _, err = self.run_("sessions", "terminate", given["session_id"][:9])
            self.assertRegex(
                err,
                rf"^sticky: {given['session_id']} is terminated: nothing new from now on, but 1 request or WebSocket goes on,"
                r" for (23h 59m|1d) at most \(--grace 0 cuts what is in flight\)\n$",
            )
            peer.send("still here")
            self.assertIn("still here", str(peer.recv(DEADLINE)))
            self.assertRegex(self.run_("sessions", "show", given["session_id"])[0], r"state +draining \(terminated\)")
            self.run_("sessions", "terminate", given["session_id"], "--grace", "0")
            with self.assertRaises(ConnectionClosed) as caught:
                peer.recv(DEADLINE)
            assert caught.exception.rcvd is not None
            self.assertEqual(caught.exception.rcvd.code, 4410)
        _, err = self.run_("sessions", "show", given["session_id"][:9], status=4)
        self.assertIn("the session has ended (terminated)", err)

    def test_the_log_of_sessions_by_the_beginnings_of_their_ids(self) -> None:
        given = self.json("sessions", "start")
        said, _ = self.run_("logs", "--session", given["session_id"][:9])
        self.assertIn(f"session {given['session_id']} started on", said)
        self.run_("sessions", "terminate", given["session_id"])
        said, err = self.run_("logs", "-f", "--session", given["session_id"][:9])
        self.assertIn(f"session {given['session_id']} ended: terminated", said)
        self.assertEqual(err, "sticky: the session has ended (terminated); what the daemon said of it:\n")
        for unknown in ("sd-", "sd-nobody-has-this"):
            _, err = self.run_("logs", "--session", unknown, status=4)
            self.assertIn("there is no such session", err)

    def test_a_load_test_shows_how_far_it_is(self) -> None:
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        words = ["loadtest", "--sessions", "2", "--hold", "1", "--reconnects", "0", "--path", "/ws"]
        child = subprocess.Popen(
            [*STICKY, *words], cwd=self.folder, env={**self.environ, "TERM": "xterm"}, stdout=subprocess.DEVNULL, stderr=theirs,
            start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        said = b""
        while b"2 open, 0 failures" not in said:
            said += os.read(ours, 65536)
        self.assertIn(b"/2", said)
        self.assertEqual(0, child.wait(DEADLINE))

    def shell(self, *command: str) -> str:
        """What a shell says of a script about completion, beside a `sticky` on its PATH."""
        programs = Path(sys.executable).parent
        if shutil.which(command[0]) is None or not (programs / "sticky").exists():
            raise SkipTest(f"there is no {command[0]}, or no sticky beside this Python")
        environ = {
            **self.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(self.folder),
            "TERM": "xterm",
        }
        done = subprocess.run(command, cwd=self.folder, env=environ, capture_output=True, text=True, timeout=DEADLINE)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def test_bash_completes_commands_and_names(self) -> None:
        given = self.json("sessions", "start")
        wanted = {
            "sticky roll": "rollout",
            "sticky sessions show sd-": given["session_id"],
            "sticky logs --server e": "echo",
        }
        asked = "".join(
            f"COMPREPLY=(); COMP_WORDS=({line}); COMP_CWORD={line.count(' ')}; _sticky_completion sticky\n"
            'printf "%s\\n" "${COMPREPLY[@]}"\n'
            for line in wanted
        )
        script = f'eval "$(sticky completion bash)"; complete -p sticky >/dev/null || exit 9\n{asked}'
        self.assertEqual(self.shell("bash", "--noprofile", "--norc", "-c", script).splitlines(), [*wanted.values()])

    def test_fish_completes_with_what_it_means_in_whole(self) -> None:
        given = self.json("sessions", "start")
        lines = ["sticky sessions li", "sticky sessions show sd-", "sticky logs --server e"]
        asked = "\n".join(f"complete -C '{line}'" for line in lines)
        said = self.shell("fish", "--no-config", "-c", f"sticky completion fish | source\n{asked}")
        wanted = ["list\tList sessions, in the order of their ids.", f"{given['session_id']}\techo", "echo"]
        self.assertEqual(said.splitlines(), wanted)

    def test_zsh_completes_commands_and_names(self) -> None:
        given = self.json("sessions", "start")
        # The interactive shell of a terminal, since nothing else completes; it writes down what its line has become.
        script = r"""
            zmodload zsh/zpty && zpty shell zsh -f -i
            until_() {  # so many lines are in the file; what the shell shows is taken away meanwhile
                for try in {1..500}; do
                    zpty -rt shell shown
                    [ "$(grep -c . found 2>/dev/null)" = $1 ] && return
                    sleep 0.1
                done
                exit 9
            }
            zpty -w shell 'autoload -U compinit; compinit -u -D; eval "$(sticky completion zsh)"'
            zpty -w shell 'whole() { print -r -- "[$BUFFER]" >>found; }; zle -N whole; bindkey "^O" whole'
            zpty -w shell 'zle-line-init() { print ready >>found; }; zle -N zle-line-init'
            until_ 1
            for line in "$@"; do
                zpty -w -n shell "$line"$'\t\C-o\C-u'
                until_ $(( ++done + 1 ))
            done
            zpty -d shell; cat found
        """
        lines = ["sticky roll", "sticky sessions show sd-", "sticky logs --server e"]
        said = self.shell("zsh", "-f", "-c", script, "zsh", *lines)
        wanted = ["sticky rollout ", f"sticky sessions show {given['session_id']} ", "sticky logs --server echo "]
        self.assertEqual(said.splitlines(), ["ready", *(f"[{line}]" for line in wanted)])

    def test_the_way_back_that_is_none(self) -> None:
        program = self.folder / "echo.sh"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {APPS / "echo_ws.py"} "$1"\n')
        program.chmod(0o755)
        self.run_("rollout", "undo", status=1)
        (self.folder / "sticky.toml").write_text(server("echo", '["./echo.sh", "{port}"]'))
        self.run_("deploy")
        self.run_("sessions", "start")
        self.assertRegex(self.run_("status")[0], r"echo +1 of \d+ ")
        program.write_text(program.read_text() + "# version 2\n")
        self.assertIn("echo is rolled over; 1 session on old containers", self.run_("deploy")[0])
        self.assertRegex(self.run_("status")[0], r"echo +0 of \d+, 1 old ")
        self.assertRegex(self.run_("containers", "list")[0], r"ct-\S+ +echo +ready, old ")
        _, err = self.run_("rollout", "undo")
        self.assertIn("what holds again was read from sticky.toml", err)
        self.assertIn("no setting differs from it: undo brings settings back and not files", err)

    def test_what_is_in_the_way_is_told_in_a_line(self) -> None:
        # A full disk behind the output.
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                [*STICKY, "status"],
                cwd=self.folder,
                env=self.environ,
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                timeout=DEADLINE,
            )
        self.assertEqual(
            (done.returncode, done.stderr), (1, "sticky: cannot write the output: No space left on device.\n")
        )
        # A question that nobody answers with yes.
        for answer in ("n\n", ""):
            done = subprocess.run(
                [*STICKY, "keys", "rotate", "--revoke"],
                cwd=self.folder, env=self.environ, input=answer, capture_output=True, text=True, timeout=DEADLINE,
            )  # fmt: skip
            self.assertEqual(done.returncode, 1)
            self.assertEqual(done.stderr.splitlines()[-1], "sticky: nothing has changed. With --yes it does not ask.")
        self.assertEqual(self.json("keys", "list")["retired"], [])
        # Names that are none.
        _, err = self.run_("tokens", "create", "--owner", "al", "--server", "ehco")
        self.assertIn("sticky: warning: there is no Server 'ehco' yet; there are: echo\n", err)
        _, err = self.run_("containers", "logs", "ct-none", status=4)
        self.assertIn("there is no such container 'ct-none'. ", err)
        _, err = self.run_("deploy", "gone.toml", status=2)
        self.assertRegex(err, r"^sticky: \S+/gone.toml: cannot be read: No such file or directory\.\n$")


class HostTests(NewcomerCase):
    def test_servers_by_their_host_names(self) -> None:
        """Neither the machine's resolver nor the container need know more than the daemon says."""
        names = "".join(
            f'[servers.{name}]\ncommand = {ECHO}\nhosts = ["{name}.localhost"]\n' for name in ("red", "blue", "plain")
        )
        names += 'sessioned = false\nmin_containers = 1\nsecrets = { A = "env:HOME", B = "file:secret" }\n'
        (self.folder / "secret").write_text("of a file\n")
        daemon = self.serve('[daemon]\nlisten = ["tcp:0:interface=127.0.0.1"]\n' + names)
        _, err = self.run_("curl", "/", status=2)
        self.assertIn("this daemon has several Servers: red, blue, plain. Say which one is meant: --server NAME.", err)
        self.run_("loadtest", "blue", "--sessions", "1", "--hold", "0", "--reconnects", "0", "--path", "/ws")
        url = next(one["url"] for one in self.json("status")["servers"] if one["name"] == "blue")
        self.assertEqual(url, daemon.url().replace("127.0.0.1", "blue.localhost"))
        self.assertIn(f"blue {url}\n", (self.folder / "state/url").read_text())
        _, err = self.run_("sessions", "start", "plain", status=4)
        self.assertEqual(
            err, "sticky: this Server has no sessions. Send requests to this Server directly, without a session.\n"
        )
        self.run_("loadtest", "plain", status=2)
        self.assertEqual(self.json("sessions", "list")["sessions"], [])
        until("it is up", lambda: self.run_("curl", "--server", "plain", "/")[0].startswith("ct-"))
        container = self.json("containers", "list", "--server", "blue")["containers"][0]["id"]
        self.assertEqual(self.run_("containers", "exec", container, "--", "printenv", "STICKY_URL")[0], f"{url}\n")
        plain = self.json("containers", "list", "--server", "plain")["containers"][0]["id"]
        said, _ = self.run_("containers", "exec", plain, "--", "printenv", "A", "B")
        self.assertEqual(said.splitlines(), [os.environ["HOME"], "of a file"])


class FileTests(NewcomerCase):
    def test_a_program_that_is_not_there(self) -> None:
        (self.folder / "sticky.toml").write_text(server("echo", '["pyhton3", "x.py"]'))
        out, err = self.run_("check", "sticky.toml")
        self.assertIn("echo: ", out)
        self.assertRegex(
            err, r"^sticky: warning: the command of echo cannot be run: there is no program pyhton3 on the PATH"
        )
        self.run_("check", "--strict", "sticky.toml", status=1)
        daemon = self.serve((self.folder / "sticky.toml").read_text())
        self.assertIn("warning: the command of echo cannot be run: there is no program pyhton3", daemon.output())
        _, err = self.run_("sessions", "start", status=1)
        self.assertRegex(
            err,
            r"containers of echo fail to start: ct-\S+ command not found: pyhton3\.",
        )

    def test_serve_promises_nothing_that_it_cannot_keep(self) -> None:
        (self.folder / "app.py").write_text(APP)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            endpoint = f"tcp:{taken.getsockname()[1]}:interface=127.0.0.1"
            _, err = self.run_("serve", "app.py", "--listen", endpoint, status=1)
        self.assertIn("Address already in use", err)
        self.assertNotIn("in another terminal", err)
