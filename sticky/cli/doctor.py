"""`sticky doctor`: the command. What is looked at is in `examining`."""

from __future__ import annotations

import click
from rich.text import Text

from sticky.cli.client import Admin
from sticky.cli.examining.findings import Grade
from sticky.cli.options import command, daemon, json_output
from sticky.cli.output import as_json as print_json
from sticky.cli.output import show, state, table
from sticky.cli.problems import Status


def add_to(root: click.Group) -> None:
    """Register the command."""

    @command(root, "doctor", "sticky doctor\nsticky doctor --app game.py --config sticky.toml")
    @click.option("--config", type=click.Path(), metavar="TOML", help="Look at what this file needs, too.")
    @click.option("--app", metavar="FILE", help="And at what this app needs: game.py, or package.module.")
    @daemon
    @json_output
    def doctor(config: str | None, app: str | None, admin: Admin, as_json: bool) -> int:
        """Look for what is wrong on this machine.

        Limits, ports, state directory and its secrets, listeners, certificates, clock, as whom containers run: says what to do.
        Exits with 1 if something fails.
        """
        # Here, because it imports much of the daemon, which no other command needs.
        from sticky.cli.examining.everything import examine

        _ = admin.local  # it looks at this machine
        findings = examine(admin, config, app)
        failed = any(finding.grade is Grade.FAIL for finding in findings)
        if as_json:
            print_json(
                [
                    {"grade": one.grade.value, "what": one.what, "found": one.found, "advice": one.advice}
                    for one in findings
                ]
            )
        else:
            rows: list[list[str | Text]] = [
                [
                    state(one.grade.value),
                    one.what,
                    Text(one.found + (f"\n{one.advice}" if one.advice else ""), style=""),
                ]
                for one in findings
            ]
            show(table(["", "WHAT", "FOUND"], rows, wrapped=("FOUND",)))
        return Status.FAILED if failed else Status.DONE
