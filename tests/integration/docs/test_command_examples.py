"""cli.md: the examples of all commands, carried out against a real daemon."""

from __future__ import annotations

import os
import re

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.docs.pages import load
from tests.integration.docs.reader import Reader, Stumble, can_be_alone
from tests.integration.docs.test_guides import BEFORE
from tests.integration.running_daemon import ROOT

#: The command -> its examples end by themselves; False: they go on until Ctrl-C.
CARRIED_OUT = {
    "version": True,
    "init": False,  # its example ends with `sticky serve`
    "run": True,
    "serve": False,
    "check": True,
    "deploy": True,
    "rollout status": True,
    "rollout undo": True,
    "restart": True,
    "status": True,
    "top": False,
    "sessions extend": True,
    "sessions list": True,
    "sessions open": True,
    "sessions release": True,
    "sessions show": True,
    "sessions start": True,
    "sessions terminate": True,
    "containers exec": True,
    "containers list": True,
    "containers logs": False,
    "containers show": True,
    "containers stop": True,
    "logs": True,
    "tokens create": True,
    "tokens list": True,
    "tokens revoke": True,
    "keys rotate": True,
    "keys list": True,
    "curl": True,
    "loadtest": True,
    "doctor": True,
    "completion": True,
}
STOPPED = 130  #: exit status after Ctrl-C
LOOKED_AT = 4  #: seconds that a person looks at what goes on, before Ctrl-C


def as_here(line: str) -> str:
    """With a session, a container and a token that there are, and a load that this machine bears."""
    line = line.replace("sd-4Kx0", '"$SESSION"').replace("ct-8sKd", '"$CONTAINER"').replace("wk-8fK2", '"$TOKEN_ID"')
    # One file cannot be the whole configuration on one line and stand beside an app on the next.
    line = line.replace("game.py --config sticky.toml", "game.py --config beside-the-app.toml")
    return line.replace("--sessions 200", "--sessions 10").replace("--hold 30", "--hold 1")


def until_stopped(line: str) -> str:
    """A line that goes on, on a terminal of its own, and in a folder without a daemon if it starts one."""
    place = "elsewhere" if "sticky serve" in line else "."
    inside = line.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$")
    look = f"sleep {LOOKED_AT}; printf '\\003'"
    return (
        f'(cd {place}; export SESSION CONTAINER; ({look}) | script -qec "{inside}" /dev/null'
        ' && echo "status 0" || echo "status $?")'
    )


class ExampleTests(SynchronousTestCase):
    def carry_out(self, reader: Reader, line: str, ends: bool) -> None:
        said = reader.run(as_here(line) if ends else until_stopped(as_here(line)), 60)
        self.assertNotIn("Traceback", said.out + said.err, line)
        if not ends:
            status = re.search(r"status (\d+)\s*\Z", said.out)
            assert status is not None, said.out
            self.assertEqual(int(status[1]), STOPPED, f"{line}: {said.out}")

    def test_every_example_does_what_it_says(self) -> None:
        if not os.environ.get("STICKY_LONG_TESTS"):
            raise SkipTest("a minute and more: set STICKY_LONG_TESTS=1")
        if not can_be_alone():
            raise SkipTest("there are no namespaces for this user")
        reader = Reader(alone=True)
        self.addCleanup(reader.abandon)
        reader.run(f"EXAMPLES={ROOT / 'examples'}\n{(BEFORE / 'cli.sh').read_text()}")
        heading, done = "", set()
        page = (ROOT / "docs" / "cli.md").read_text("utf-8")
        headings = {number: line for number, line in enumerate(page.splitlines(), 1) if line.startswith("## `sticky ")}
        for block in load("cli.md").blocks:
            if block.language != "sh":
                continue
            heading = headings[max(number for number in headings if number < block.line)]
            command = heading.removeprefix("## `sticky ").rstrip("`")
            self.assertIn(command, CARRIED_OUT)
            done.add(command)
            reader.run(
                "SESSION=$(sticky sessions start game --json | jq -r .session_id)\n"
                "CONTAINER=$(sticky sessions show \"$SESSION\" --json | jq -r '.. | .container? // empty' | head -n 1)"
            )
            if command == "tokens revoke":
                reader.run("TOKEN_ID=$(sticky tokens create --owner bob --json | jq -r .id)")
            if command == "sessions release":
                reader.run("sticky sessions start game --name lobby > lobby")
            for line in block.text.splitlines():
                try:
                    self.carry_out(reader, line, CARRIED_OUT[command] and " -f" not in line)
                except Stumble as stumble:
                    raise Stumble(f"{block.page}: {line}: {stumble}") from None
        self.assertEqual(done, set(CARRIED_OUT))
