"""`sticky sessions open`: a session in a browser. The browser is given the address of a page that works once, on this machine;
that page sends it on with the token. So no token is in an argument list, where every user of the machine could read it.
"""

from __future__ import annotations

import secrets
import socket
import sys
import webbrowser
from collections.abc import Callable, Mapping
from functools import partial
from html import escape
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from time import monotonic
from typing import Any
from urllib.parse import quote, urlsplit

import click

from sticky.cli.client import Admin
from sticky.cli.options import command, daemon, json_output, servers, sessions
from sticky.cli.output import as_json as print_json
from sticky.cli.output import note, say, waiting
from sticky.cli.problems import Problem, Status
from sticky.edge.wire import Names

PATIENCE = 60.0  #: seconds for the browser to come


def add_to(group: click.Group) -> None:
    """Register the command."""

    @command(group, "open", "sticky sessions open --server game\nsticky sessions open sd-4Kx0 --path /lobby")
    @click.argument("session", metavar="[SESSION]", required=False, shell_complete=sessions)
    @click.option(
        "--server", metavar="NAME", shell_complete=servers, help="Start a session there.  [default: the only one]"
    )
    @click.option("--path", default="/", show_default=True, help="Which page.")
    @click.option("--no-browser", is_flag=True, help="Only print the address, to be opened by hand.")
    @click.option("--wait", type=click.FloatRange(1, 3600), default=PATIENCE, show_default=True, metavar="SECONDS",
                  help="How long the address is good.")  # fmt: skip
    @daemon
    @json_output
    def open_(
        session: str | None, server: str | None, path: str, no_browser: bool, wait: float, admin: Admin, as_json: bool
    ) -> None:
        """Open SESSION, or a new one, in the browser."""
        if not path.startswith("/"):
            raise click.BadParameter("it must begin with /", param_hint="--path")
        if session:
            given = admin.token(session)
        else:
            served = admin.server(server)["name"]
            with waiting(f"waiting for a place on {served}; Ctrl-C leaves the queue"):
                given = admin.start(served)
        target = with_token(given["url"] + path, Names(given["brand"]).query.decode("ascii"), given["token"])
        note(f"session {given['session_id']} of {given['server']} at {given['url']}")
        show = partial(_as_json, given) if as_json else say
        serve_once(target, None if no_browser else webbrowser.open, wait, partial(_by_hand, show, given["url"], wait))


def _by_hand(show: Callable[[str], object], url: str, wait: float, address: str) -> None:
    """For whoever is to open the address."""
    port, own = urlsplit(address).port, urlsplit(url)
    note(f"open this address in a browser on this machine; it is good once, for {wait:g} s, and leads into the session")
    if own.hostname in ("127.0.0.1", "localhost", "::1") or (own.hostname or "").endswith(".localhost"):
        both = f"-L {port}:127.0.0.1:{port} -L {own.port or 80}:127.0.0.1:{own.port or 80}"
    else:
        both = f"-L {port}:127.0.0.1:{port}"
    note(f"from another machine: ssh {both} {socket.gethostname()} there first, then the same address; Ctrl-C ends it")
    show(address)
    sys.stdout.flush()  # whoever reads it opens it


def with_token(url: str, parameter: str, token: str) -> str:
    """A URL whose first visit makes the session's cookie."""
    url, hash_, fragment = url.partition("#")
    return f"{url}{'&' if '?' in url else '?'}{parameter}={quote(token, safe='')}{hash_}{fragment}"


def _as_json(given: Mapping[str, Any], address: str) -> None:
    print_json({"address": address, "session_id": given["session_id"], "server": given["server"], "url": given["url"]})


def _open(opening: Callable[[str], object], address: str, by_hand: Callable[[str], object]) -> None:
    if opening(address) is False:
        note("no browser is found here")
        by_hand(address)


def serve_once(
    target: str,
    opening: Callable[[str], object] | None,
    wait: float,
    by_hand: Callable[[str], object] = lambda address: None,
) -> None:
    """Give out an address on this machine that leads to `target` once. Raises `Problem` if nobody comes in time.

    `opening`: who opens it, and says False if nobody is there who could; None: nobody is. Then `by_hand` shows it to a person.
    """
    key = secrets.token_urlsafe(24)
    used = False

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            nonlocal used
            if self.path != f"/{key}" or used:
                self._answer(410 if used else 404, "This address was good for one visit, or is not one of ours.")
                return
            used = True
            self.send_response(303)
            self.send_header("Location", target)
            self._answer(None, "The session is at another address.")

        def _answer(self, status: int | None, text: str) -> None:
            if status is not None:
                self.send_response(status)
            page = f"<!doctype html><meta charset=utf-8><title>Sticky</title><p>{escape(text)}\n".encode()
            for name, value in (
                ("Content-Type", "text/html; charset=utf-8"),
                ("Content-Length", str(len(page))),
                ("Cache-Control", "no-store"),
                ("Referrer-Policy", "no-referrer"),
            ):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: the address is a secret for as long as it is good."""

        timeout = 5  # seconds; a browser's spare connection must not hold up the one that asks

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        address = f"http://127.0.0.1:{server.server_port}/{key}"
        if opening is None:
            by_hand(address)
        else:
            # In a thread: some browsers do not return before their window is closed.
            Thread(target=_open, args=(opening, address, by_hand), daemon=True).start()
        deadline = monotonic() + wait
        while not used:
            server.timeout = max(0.0, deadline - monotonic())
            if not server.timeout:
                raise Problem(
                    f"no browser came within {wait:g} seconds",
                    Status.FAILED,
                    "Run it again with a longer --wait"
                    + ("." if opening is None else ", or with --no-browser to open the address yourself."),
                )
            server.handle_request()
