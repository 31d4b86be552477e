"""A Docker Engine in memory behind a real Unix socket, for tests of its client. Can be told to answer badly, or to die.

Knows what the backend uses of the API and nothing more; programs are played by the first word of a container's command.
"""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import attrs
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IListeningPort
from twisted.internet.protocol import Factory, Protocol

from sticky.containers.docker.faults import EngineRefused, connecting

VERSION = {"ApiVersion": "1.41", "MinAPIVersion": "1.12"}


@attrs.frozen
class Asked:
    """A request that came in."""

    method: str
    path: str  #: without the API version
    params: Mapping[str, str]
    body: Any
    version: str | None


@attrs.frozen
class Reply:
    """What to answer in place of the truth. `raw`: these bytes as they are, then the end of the connection."""

    status: int = 200
    body: bytes = b""
    raw: bytes | None = None
    silent: bool = False  #: never answer, or never go on after `raw`


def error(status: int, message: str) -> Reply:
    return Reply(status, json.dumps({"message": message}).encode())


@attrs.define(eq=False)
class FakeContainer:
    """One container. Tests may set its fields."""

    id: str
    name: str
    body: Mapping[str, Any]
    status: str = "created"
    exit_code: int = 0
    oom_killed: bool = False
    error: str = ""
    output: list[tuple[int, bytes]] = attrs.field(factory=list)
    listener: Any = None
    followers: list[_Connection] = attrs.field(factory=list)

    @property
    def program(self) -> str:
        return str((self.body.get("Cmd") or ["serves"])[0])

    @property
    def labels(self) -> Mapping[str, str]:
        return self.body.get("Labels") or {}

    @property
    def host_port(self) -> int:
        bindings = self.body["HostConfig"].get("PortBindings") or {}
        for binding in bindings.values():
            return int(binding[0]["HostPort"])
        return int(next(one for one in self.body["Env"] if one.startswith("PORT=")).partition("=")[2])


class _Neighbour(Protocol):
    """A connection to a played program: stays open, or is hung up at once as Docker's proxy does while nobody listens."""

    def connectionMade(self) -> None:
        self.factory.connections.append(self)
        if self.factory.hang_up():
            assert self.transport is not None
            self.transport.loseConnection()


class _Programs(Factory):
    noisy = False
    protocol = _Neighbour

    def __init__(self, hang_up: Callable[[], bool]) -> None:
        self.hang_up = hang_up
        self.connections: list[_Neighbour] = []


class FakeEngine:
    """`script`: replies that are used up in order, each for the first request whose "METHOD /path" matches its pattern."""

    def __init__(self, reactor: Any, path: str) -> None:
        self.path = path
        self.version: Mapping[str, Any] = VERSION
        self.asked: list[Asked] = []
        self.script: list[tuple[str, Reply]] = []
        self.containers: dict[str, FakeContainer] = {}
        self.images = {"app:1"}
        self.proxy_only = False  #: connections to programs are taken and hung up
        self.event_streams: list[_Connection] = []
        self._reactor = reactor
        self._connections: set[_Connection] = set()
        self._port: IListeningPort | None = None
        self._count = 0
        self._closing: Deferred[None] | None = None

    def start(self) -> None:
        """Listen."""
        factory = Factory.forProtocol(_Connection)
        factory.noisy = False
        factory.engine = self  # type: ignore[attr-defined]
        self._port = self._reactor.listenUNIX(self.path, factory)

    async def stop(self) -> None:
        """Die: every connection breaks, containers stay as they are."""
        port, self._port = self._port, None
        if port is not None:
            await maybeDeferred(port.stopListening)
        while self._connections:
            self._closing = Deferred()
            for connection in list(self._connections):
                connection.abort()
            await self._closing

    async def close(self) -> None:
        """Leave nothing behind."""
        for container in list(self.containers.values()):
            await self.silence(container)
        await self.stop()

    def named(self, name: str) -> FakeContainer:
        return next(one for one in self.containers.values() if name in (one.id, one.name))

    def of(self, container: str) -> FakeContainer:
        """By our own id."""
        return next(one for one in self.containers.values() if one.labels.get("sticky.container") == container)

    def count(self, pattern: str) -> int:
        return sum(1 for one in self.asked if re.fullmatch(pattern, f"{one.method} {one.path}"))

    async def silence(self, container: FakeContainer) -> None:
        """Its program listens no more."""
        listener, container.listener = container.listener, None
        if listener is not None:
            factory = listener.factory
            await listener.stopListening()
            for one in factory.connections:
                one.transport.abortConnection()

    def end(self, container: FakeContainer, code: int, *, event: bool = True) -> None:
        """Its program ends."""
        container.status, container.exit_code = "exited", code
        Deferred.fromCoroutine(self.silence(container))
        for follower in container.followers:
            follower.finish()
        container.followers = []
        if event:
            self.emit("die", container, exitCode=str(code))

    def say(self, container: FakeContainer, text: bytes, stream: int = 1) -> None:
        """It writes something."""
        container.output.append((stream, text))
        for follower in container.followers:
            follower.chunk(framed(stream, text))

    def emit(self, action: str, container: FakeContainer, **attributes: str) -> None:
        event = {
            "Type": "container",
            "Action": action,
            "Actor": {"ID": container.id, "Attributes": {**container.labels, **attributes}},
        }
        for stream in self.event_streams:
            stream.chunk(json.dumps(event).encode() + b"\n")

    # --- requests

    def ask_now(self, socket: str, target: str, params: Mapping[str, str]) -> Any:
        """In place of `blocking.ask`, which cannot be answered from the same thread."""
        self.asked.append(Asked("GET", target, params, None, None))
        if self._port is None:
            raise connecting(socket, errno.ECONNREFUSED, "refused")
        if target == "/containers/json":
            return self._listed(params)
        name = target.split("/")[2]
        found = next((one for one in self.containers.values() if name in (one.id, one.name)), None)
        if found is None:
            raise EngineRefused(404, f"No such container: {name}")
        return self._inspected(found)

    def answer(self, connection: _Connection, asked: Asked) -> None:
        self.asked.append(asked)
        line = f"{asked.method} {asked.path}"
        for index, (pattern, reply) in enumerate(self.script):
            if re.fullmatch(pattern, line):
                del self.script[index]
                if reply.raw is not None:
                    connection.raw(reply.raw, last=not reply.silent)
                elif not reply.silent:
                    connection.reply(reply.status, reply.body)
                return
        for pattern, serve in _ROUTES:
            found = re.fullmatch(pattern, line)
            if found:
                serve(self, connection, asked, *found.groups())
                return
        connection.reply(404, json.dumps({"message": f"page not found: {line}"}).encode())

    def tell_version(self, connection: _Connection, asked: Asked) -> None:
        connection.json(200, self.version)

    def create(self, connection: _Connection, asked: Asked) -> None:
        name = asked.params["name"]
        if any(one.name == name for one in self.containers.values()):
            connection.fail(409, f"Conflict. The container name {name} is already in use")
            return
        if asked.body["Image"] not in self.images:
            connection.fail(404, f"No such image: {asked.body['Image']}")
            return
        self._count += 1
        container = FakeContainer(f"{self._count:064x}", name, asked.body)
        self.containers[container.id] = container
        connection.json(201, {"Id": container.id, "Warnings": ["a warning"]})

    def begin(self, connection: _Connection, asked: Asked, name: str) -> None:
        container = self._find(connection, name)
        if container is None:
            return
        program = container.program
        if program == "missing":
            connection.fail(
                400, 'OCI runtime create failed: exec: "missing": executable file not found in $PATH: unknown'
            )
            return
        container.status = "running"
        if program not in ("silent", "exits", "late"):
            self._listen(container)
        connection.reply(204, b"")
        self.emit("start", container)
        if program == "floods":
            self._flood(container)
        if program == "exits":
            self._exit(container)

    def go_on(self, container: FakeContainer) -> None:
        """Its program is told to go on."""
        program = container.program
        if program == "late":
            self._listen(container)
        elif program == "dies":
            self.end(container, 128 + 10)
        else:
            if program == "floods":
                self._flood(container)
            self._exit(container)

    def _listen(self, container: FakeContainer) -> None:
        factory = _Programs(lambda: self.proxy_only)
        container.listener = self._reactor.listenTCP(container.host_port, factory, interface="127.0.0.1")

    def _exit(self, container: FakeContainer) -> None:
        self.say(container, b"last words\n")
        self.end(container, 3)

    def _flood(self, container: FakeContainer) -> None:
        for _ in range(60):
            self.say(container, (b"x" * 199 + b"\n") * 500)
        self.say(container, b"\xff\xfe" * 150_000 + b"\n")

    def signal(self, connection: _Connection, asked: Asked, name: str) -> None:
        container = self._find(connection, name)
        if container is None:
            return
        if container.status != "running":
            connection.fail(409, f"Container {name} is not running")
            return
        connection.reply(204, b"")
        number = {"SIGTERM": 15, "SIGKILL": 9}[asked.params["signal"]]
        if number == 9 or container.program != "stubborn":
            self.end(container, 128 + number)

    def inspect(self, connection: _Connection, asked: Asked, name: str) -> None:
        container = self._find(connection, name)
        if container is not None:
            connection.json(200, self._inspected(container))

    def list(self, connection: _Connection, asked: Asked) -> None:
        connection.json(200, self._listed(asked.params))

    def _inspected(self, container: FakeContainer) -> Mapping[str, Any]:
        state = {
            "Status": container.status,
            "Running": container.status == "running",
            "ExitCode": container.exit_code,
            "OOMKilled": container.oom_killed,
            "Error": container.error,
            "Pid": 0,
        }
        return {"Id": container.id, "State": state, "Config": {"Labels": container.labels}}

    def _listed(self, params: Mapping[str, str]) -> Sequence[Mapping[str, Any]]:
        wanted = json.loads(params["filters"])["label"]
        return [
            {"Id": one.id, "Names": [f"/{one.name}"], "Labels": one.labels, "State": one.status}
            for one in self.containers.values()
            if all(f"{key}={value}" in wanted for key, value in one.labels.items() if key == "sticky.state-dir")
        ]

    def delete(self, connection: _Connection, asked: Asked, name: str) -> None:
        container = self._find(connection, name)
        if container is not None:
            if container.status == "running":
                self.end(container, 137)
            del self.containers[container.id]
            connection.reply(204, b"")
            self.emit("destroy", container)

    def logs(self, connection: _Connection, asked: Asked, name: str) -> None:
        container = self._find(connection, name)
        if container is None:
            return
        connection.begin()
        if "since" not in asked.params:
            for stream, text in container.output:
                connection.chunk(framed(stream, text))
        if "follow" in asked.params and container.status == "running":
            container.followers.append(connection)
        else:
            connection.finish()

    def events(self, connection: _Connection, asked: Asked) -> None:
        connection.begin()
        self.event_streams.append(connection)

    def pull(self, connection: _Connection, asked: Asked) -> None:
        tag = asked.params.get("tag")
        self.images.add(asked.params["fromImage"])
        if tag is not None:
            self.images.add(f"{asked.params['fromImage']}:{tag}")
        connection.reply(200, b'{"status":"Pulling"}\n{"status":"done"}\n')

    def left(self, connection: _Connection) -> None:
        self._connections.discard(connection)
        if connection in self.event_streams:
            self.event_streams.remove(connection)
        for container in self.containers.values():
            if connection in container.followers:
                container.followers.remove(connection)
        if not self._connections and self._closing is not None:
            closing, self._closing = self._closing, None
            closing.callback(None)

    def joined(self, connection: _Connection) -> None:
        self._connections.add(connection)

    def _find(self, connection: _Connection, name: str) -> FakeContainer | None:
        for container in self.containers.values():
            if name in (container.id, container.name):
                return container
        connection.fail(404, f"No such container: {name}")
        return None


_ROUTES: tuple[tuple[str, Callable[..., None]], ...] = (
    (r"GET /version", FakeEngine.tell_version),
    (r"POST /containers/create", FakeEngine.create),
    (r"POST /containers/([^/]+)/start", FakeEngine.begin),
    (r"POST /containers/([^/]+)/kill", FakeEngine.signal),
    (r"GET /containers/json", FakeEngine.list),
    (r"GET /containers/([^/]+)/json", FakeEngine.inspect),
    (r"DELETE /containers/([^/]+)", FakeEngine.delete),
    (r"GET /containers/([^/]+)/logs", FakeEngine.logs),
    (r"GET /events", FakeEngine.events),
    (r"POST /images/create", FakeEngine.pull),
)


def framed(stream: int, text: bytes) -> bytes:
    """A frame of a container's output."""
    return bytes([stream, 0, 0, 0]) + len(text).to_bytes(4, "big") + text


class _Connection(Protocol):
    """One request and its answer."""

    def __init__(self) -> None:
        self._received = b""
        self._asked = False

    @property
    def engine(self) -> FakeEngine:
        found: FakeEngine = self.factory.engine
        return found

    def connectionMade(self) -> None:
        self.engine.joined(self)

    def connectionLost(self, reason: object = None) -> None:
        self.engine.left(self)

    def dataReceived(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        if self._asked or not end:
            return
        length = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
        if length and len(body) < int(length.group(1)):
            return
        self._asked = True
        method, target, _ = head.split(b"\r\n")[0].decode().split(" ")
        url = urlsplit(target)
        version = re.match(r"/v(\d+\.\d+)(/.*)", url.path)
        asked = Asked(
            method,
            version.group(2) if version else url.path,
            dict(parse_qsl(url.query)),
            json.loads(body) if body else None,
            version.group(1) if version else None,
        )
        self.engine.answer(self, asked)

    def raw(self, data: bytes, *, last: bool = True) -> None:
        assert self.transport is not None
        self.transport.write(data)
        if last:
            self.transport.loseConnection()

    def reply(self, status: int, body: bytes) -> None:
        head = f"HTTP/1.1 {status} Any\r\nContent-Type: application/json\r\n"
        if status != 204:
            head += f"Content-Length: {len(body)}\r\n"
        self.raw(f"{head}Connection: close\r\n\r\n".encode() + body)

    def json(self, status: int, value: Any) -> None:
        self.reply(status, json.dumps(value).encode())

    def fail(self, status: int, message: str) -> None:
        self.json(status, {"message": message})

    def begin(self) -> None:
        assert self.transport is not None
        self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")

    def chunk(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(b"%x\r\n%s\r\n" % (len(data), data))

    def finish(self) -> None:
        assert self.transport is not None
        self.transport.write(b"0\r\n\r\n")
        self.transport.loseConnection()

    def abort(self) -> None:
        assert self.transport is not None
        self.transport.abortConnection()  # type: ignore[attr-defined]
