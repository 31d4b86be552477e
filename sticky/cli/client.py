"""The command's side of the admin API: finds the daemon's socket, calls, and says in words why that fails. Blocking."""

from __future__ import annotations

import http.client
import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from sticky._version import __version__
from sticky.admin.bodies import API
from sticky.cli.advice import advice_for
from sticky.cli.output import printable, telling
from sticky.cli.problems import Problem, Status
from sticky.cli.ways import SocketWay, Way
from sticky.sdk.daemon import Daemon

SILENCE: Final = 30.0  #: seconds that an ordinary answer may take
QUEUEING: Final = 330.0  #: seconds for a start, which may wait in the queue for 300

_STATUS = {404: Status.NOT_FOUND, 410: Status.NOT_FOUND, 400: Status.USAGE}


def path(kind: str, identity: str, verb: str = "") -> str:
    """The address of a session or container: `kind` in the plural, whatever a person typed, perhaps what to do."""
    return f"/v1/{kind}/{quote(identity, safe='')}" + (f"/{verb}" if verb else "")


class Admin:
    """A daemon, reached by its state directory or in another way. Every call has a connection of its own; raises `Problem`."""

    def __init__(self, state_dir: Path, way: Way | None = None) -> None:
        self._way = SocketWay(state_dir) if way is None else way
        self._warned = False

    @property
    def here(self) -> bool:
        """Whether it is the daemon of a state directory."""
        return isinstance(self._way, SocketWay)

    @property
    def local(self) -> SocketWay:
        """The way by the state directory, where that is needed. Raises `Problem` where it was another one."""
        if not isinstance(self._way, SocketWay):
            raise Problem(
                "this works only where the daemon runs, not with --url",
                Status.USAGE,
                "Log in there, or name --state-dir.",
            )
        return self._way

    # --- what there is

    def status(self) -> dict[str, Any]:
        """The daemon and its Servers."""
        return self.call("GET", "/v1/status")

    def server(self, name: str | None, how: str = "--server NAME") -> dict[str, Any]:
        """One Server; without a name the only one there is. `how`: what to type to name another."""
        servers = self.status()["servers"]
        if name is None and len(servers) == 1:
            return dict(servers[0])
        known = ", ".join(server["name"] for server in servers)
        if name is None:
            raise Problem(f"this daemon has several Servers: {known}", Status.USAGE, f"Say which one is meant: {how}.")
        for server in servers:
            if server["name"] == name:
                return dict(server)
        raise Problem(f"there is no Server {name!r}; there are: {known}", Status.NOT_FOUND)

    def start(self, server: str, idle_timeout: float | None = None, name: str | None = None) -> dict[str, Any]:
        """Credentials of a new session, or of the one that has this name."""
        body = {"server": server, "idle_timeout": idle_timeout, "name": name}
        try:
            return self.call("POST", "/v1/sessions", body=body, timeout=QUEUEING)
        except Problem as problem:
            if problem.code == "containers_failing":
                raise self._why_failing(server, problem) from None
            if problem.code == "session_expired" and name is not None:
                raise self._how_released(server, name, problem) from None
            raise

    def _why_failing(self, server: str, problem: Problem) -> Problem:
        """The same, with what the last container that failed said: for the operator, whom a client's answer does not name it."""
        last = next((one for one in self.server(server)["ended"] if one["failed"]), None)
        if last is None:
            return problem
        said = telling(last["last_lines"])
        said = f"; it wrote: {printable(said)}" if said else ""
        return Problem(
            f"containers of {server} fail to start: {last['id']} {printable(last['message'])}{said}",
            problem.status,
            f"Mend the program or its command. All of its output: sticky containers logs {last['id']}",
            problem.code,
        )

    def _how_released(self, server: str, name: str, problem: Problem) -> Problem:
        """The same, with what to type in place of what a client would ask for."""
        where = f" --server {server}" if len(self.status()["servers"]) > 1 else ""
        return Problem(
            problem.text.partition(". ")[0],
            problem.status,
            f"Its state is lost. To start afresh: sticky sessions release {shlex.quote(printable(name))}{where}. Or use another name.",
            problem.code,
        )

    def token(self, session: str) -> dict[str, Any]:
        """Credentials of a session that is there."""
        return self.call("POST", path("sessions", session, "token"))

    def bearer(self, server: str) -> str | None:
        """The proxy token for a Server's control calls: that of STICKY_PROXY_TOKEN, else one of the daemon's; None: not needed."""
        if os.environ.get("STICKY_PROXY_TOKEN"):
            return Daemon().proxy_token()
        found = self.call("POST", "/v1/access", body={"server": server})["proxy_token"]
        return None if found is None else str(found)

    def terminate(self, session: str, grace: float | None = None) -> dict[str, Any]:
        """End a session."""
        return self.call("POST", path("sessions", session, "terminate"), body={"grace": grace})

    # --- how

    def call(
        self,
        method: str,
        address: str,
        query: Mapping[str, object] | None = None,
        body: Mapping[str, object] | None = None,
        timeout: float = SILENCE,
    ) -> dict[str, Any]:
        """One call and its whole answer."""
        with self._answer(method, address, query, body, timeout) as response:
            try:
                answer = json.loads(response.read())
            except (OSError, http.client.HTTPException):
                raise _broken_off("its answer") from None
            except ValueError:
                raise self._strange() from None
        if not isinstance(answer, dict):
            raise self._strange()
        return answer

    def stream(self, address: str, query: Mapping[str, object] | None = None) -> Iterator[dict[str, Any]]:
        """One call whose answer goes on: a value for each line."""
        rest = b""
        with self._answer("GET", address, query, None, None) as response:
            while True:
                try:
                    # Not readline: it takes a stream that breaks off for one that ends.
                    data = response.read1(65536)
                    *lines, rest = (rest + data).split(b"\n")
                    values = [json.loads(line) for line in lines]
                except (ValueError, OSError, http.client.HTTPException):
                    raise _broken_off("the stream") from None
                yield from values
                if not data and rest:
                    raise _broken_off("the stream")
                if not data:
                    return

    def _answer(
        self,
        method: str,
        address: str,
        query: Mapping[str, object] | None,
        body: Mapping[str, object] | None,
        timeout: float | None,
    ) -> http.client.HTTPResponse:
        given = {name: value for name, value in (query or {}).items() if value is not None}
        target = address + (f"?{urlencode(given)}" if given else "")
        connection = None
        try:
            connection = self._way.connection(timeout)
            data = None if body is None else json.dumps(body)
            connection.request(method, target, data, {**self._way.headers, "Connection": "close"})
            response = connection.getresponse()
        except TimeoutError:
            _close(connection)
            raise Problem(
                f"the daemon does not answer on {self._way.where}" + ("" if timeout is None else f" ({timeout:g} s)"),
                Status.NO_DAEMON,
                "It may be stopped (SIGSTOP) or stuck: look at its log.",
            ) from None
        except OSError as error:
            _close(connection)
            raise self._way.unreachable(error) from None
        except http.client.HTTPException:
            _close(connection)
            raise self._strange() from None
        self._compare(response)
        if response.status != 200:
            raise _refused(response)
        return response

    def _compare(self, response: http.client.HTTPResponse) -> None:
        version, api = response.getheader("sticky-version"), response.getheader("sticky-api")
        if version is None:
            raise self._strange()
        if api != str(API):
            raise Problem(
                f"the daemon at {self._way.where} is sticky {version}, this command is {__version__}: they do not understand"
                " each other",
                Status.NO_DAEMON,
                "Use the command of the daemon's own environment, or restart the daemon with this version.",
            )
        if version != __version__ and not self._warned:
            self._warned = True
            sys.stderr.write(f"sticky: warning: the daemon is sticky {version}, this command is {__version__}\n")

    def _strange(self) -> Problem:
        return Problem(f"whatever listens on {self._way.where} is no Sticky daemon", Status.NO_DAEMON)


def _broken_off(what: str) -> Problem:
    return Problem(f"the daemon broke {what} off; it may have stopped", Status.NO_DAEMON)


def _close(connection: http.client.HTTPConnection | None) -> None:
    if connection is not None:
        connection.close()


def _refused(response: http.client.HTTPResponse) -> Problem:
    with response:
        try:
            fields = json.loads(response.read())
            code, message = str(fields["error"]), " ".join(str(fields["message"]).split())
        except (ValueError, KeyError, TypeError, OSError, http.client.HTTPException):
            code, message = "", f"the daemon answered {response.status}"
    text = message[:1].lower() + message[1:] if message[1:2].islower() else message
    # Whoever typed a command has made no request that could be corrected.
    # Nor is there a place to mend in a file that is not there.
    no_file = code == "bad_configuration" and text.endswith((": No such file or directory", ": Is a directory"))
    advice = "" if code == "bad_request" or no_file else advice_for(code)
    return Problem(text.rstrip("."), _STATUS.get(response.status, Status.FAILED), advice, code)
