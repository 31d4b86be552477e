"""cli.md: every example of the command is a command line that the command takes. Nothing is carried out."""

from __future__ import annotations

import shlex

import click
from twisted.trial.unittest import SynchronousTestCase

from sticky.cli.root import root
from tests.docs.pages import load


def command_lines(text: str) -> list[list[str]]:
    """The `sticky` commands of a block of shell, as words."""
    words = shlex.shlex(text.replace('"$(', "$(").replace(')"', ")"), posix=True, punctuation_chars="();<>|&")
    words.whitespace_split = True
    found: list[list[str]] = []
    for word in [";", *words]:
        if set(word) <= set("();<>|&"):
            found.append([])
        else:
            found[-1].append(word)
    # `$(` begins a command inside another one; what stands behind `>` is a file.
    return [line[1:] for line in found if line and line[0] == "sticky"]


def take(words: list[str]) -> None:
    """Parse as the command would. click raises for what it does not take."""
    command: click.Command = root
    context = None
    while isinstance(command, click.Group):
        context = command.make_context("sticky", list(words), parent=context)
        name, found, words = command.resolve_command(context, [*context._protected_args, *context.args])
        assert name is not None and found is not None
        command = found
    command.make_context("sticky", list(words), parent=context)


class CommandTests(SynchronousTestCase):
    def test_every_example_is_taken(self) -> None:
        taken = 0
        for block in load("cli.md").blocks:
            if block.language != "sh":
                continue
            lines = [line for text in block.text.splitlines() for line in command_lines(text)]
            self.assertTrue(lines, block.where)
            for line in lines:
                with self.subTest(" ".join(line)):
                    take(line)
                    taken += 1
        self.assertGreater(taken, 30)

    def test_a_wrong_one_would_be_noticed(self) -> None:
        for line in (["sessions", "list", "--sever", "game"], ["sesions"], ["init", "a", "b"]):
            self.assertRaises(click.UsageError, take, line)

    def test_commands_are_found_in_pipes_and_behind_others(self) -> None:
        text = 'sticky init x && cd x && sticky serve app.py; TOKEN="$(sticky sessions start --json | jq -r .token)"'
        self.assertEqual(
            command_lines(text),
            [["init", "x"], ["serve", "app.py"], ["sessions", "start", "--json"]],
        )
