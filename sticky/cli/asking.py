"""`sticky curl`: curl with the right credential, which travels through a pipe and is in no argument list and no file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import click

from sticky.cli.client import Admin
from sticky.cli.options import command, daemon, servers, sessions
from sticky.cli.output import note, waiting
from sticky.cli.problems import Problem, Status
from sticky.edge.wire import Names


def add_to(root: click.Group) -> None:
    """Register the command."""

    @command(
        root,
        "curl",
        "sticky curl /                                  # in a session of its own\n"
        "sticky curl --session sd-4Kx0 /scores -- -i\n"
        "sticky curl /_modal/sessions | jq .            # a control call, with the proxy token",
    )
    @click.argument("path", metavar="PATH")
    @click.argument("curl_arguments", metavar="[-- CURL ARGUMENTS]...", nargs=-1, type=click.UNPROCESSED)
    @click.option("--server", metavar="NAME", shell_complete=servers, help="Which Server.  [default: the only one]")
    @click.option(
        "--session", metavar="ID", shell_complete=sessions, help="As this session.  [default: one for this request]"
    )
    @daemon
    def curl(path: str, curl_arguments: tuple[str, ...], server: str | None, session: str | None, admin: Admin) -> int:
        """Send a request, with the right token.

        With a session's; with the proxy token if PATH is a control call, or the Server has no sessions. The token is in no
        argument list. Exits as curl does.
        """
        program = shutil.which("curl")
        if program is None:
            raise Problem("there is no curl on the PATH", Status.FAILED, "Install it: apt install curl")
        if not path.startswith("/"):
            raise click.UsageError("PATH must begin with /: the Server's URL comes from the daemon.")
        names = Names(admin.status()["daemon"]["brand"])
        if session is not None:
            given = admin.token(session)
            return _run(program, given["url"], path, _of_session(names, given["token"]), curl_arguments)
        found = admin.server(server)
        served = found["name"]
        if path.startswith(names.control.decode("ascii")) or not found["sessioned"]:
            bearer = admin.bearer(served)
            header = f"Authorization: Bearer {bearer}" if bearer else None
            return _run(program, found["url"], path, header, curl_arguments)
        with waiting(f"waiting for a place on {served}; Ctrl-C leaves the queue"):
            given = admin.start(served)
        try:
            return _run(program, given["url"], path, _of_session(names, given["token"]), curl_arguments)
        finally:
            _end(admin, given["session_id"])


def _of_session(names: Names, token: str) -> str:
    return f"{names.authorization.decode('ascii')}: Bearer {token}"


def _end(admin: Admin, session: str) -> None:
    try:
        admin.terminate(session)
    except Problem as problem:
        if problem.status is not Status.NOT_FOUND:
            note(f"warning: the session {session} goes on: {problem.text}")


def _run(program: str, url: str, path: str, header: str | None, arguments: tuple[str, ...]) -> int:
    """The header goes through a pipe of its own, so stdin stays free for a body (-d @-)."""
    reading, writing = os.pipe()
    try:
        with os.fdopen(writing, "w", encoding="ascii") as config:
            if not sys.stdout.isatty():
                config.write("no-progress-meter\n")  # it is on stderr, between what a person reads there
            if header is not None:
                config.write(f'header = "{header}"\n')  # below 64 KiB, so the pipe takes it whole
        command = [program, "--config", f"/dev/fd/{reading}", *arguments, url + path]
        child = subprocess.Popen(command, pass_fds=[reading])
    finally:
        os.close(reading)
    try:
        status = child.wait()
    except KeyboardInterrupt:
        child.wait()  # it got the Ctrl-C too
        raise
    return status if status >= 0 else 128 - status
