"""The interpreter's door: HTTP/1.1 on a Unix socket, a thread for each connection, calls as frames. Runs INSIDE a container.

Only the proxy connects, which has parsed every head and body before: this reads what is valid HTTP and closes on anything else.
A connection that ends while its call runs means that the client left, and interrupts it.
"""

from __future__ import annotations

import errno
import io
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from sticky.sandbox.endings import DEAF
from sticky.sandbox.frames import (
    CONTENT_TYPE,
    Assembly,
    Kind,
    TornFrame,
    announced,
    document,
    frame,
    read_document,
    read_frame,
    read_head,
)
from sticky.sandbox.interpreter import Call, Interpreter

ALIVE_EVERY = 10.0  #: seconds between two signs of life while a call runs
_LONGEST_LINE = 1 << 16
#: What keeps the door from taking a connection for a while: a function has opened all the files that there may be, or the like.
_PASSING = (errno.ECONNABORTED, errno.EINTR, errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PAUSE = 0.1  # seconds before it is tried again
_HEAD = f"HTTP/1.1 200 OK\r\ncontent-type: {CONTENT_TYPE}\r\ntransfer-encoding: chunked\r\n\r\n".encode()


def listen(path: str) -> socket.socket:
    """The door, for the owner alone."""
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        door.bind(path)
    finally:
        os.umask(before)
    door.listen(64)
    return door


def serve(door: socket.socket, interpreter: Interpreter) -> None:
    """Take connections for ever, on a thread of its own. Where the door itself is gone the process ends: nobody could call it."""
    while True:
        try:
            connection, _ = door.accept()
        except OSError as error:
            if error.errno in _PASSING:
                time.sleep(_PAUSE)
                continue
            os._exit(DEAF)
        threading.Thread(target=_Connection(connection, interpreter).run, daemon=True).start()


class _Connection:
    def __init__(self, connection: socket.socket, interpreter: Interpreter) -> None:
        self._socket = connection
        self._interpreter = interpreter
        self._reader = io.BufferedReader(socket.SocketIO(connection, "r"), 1 << 18)
        self._lock = threading.Lock()  # the sign of life comes from another thread than the frames
        self._call: Call | None = None

    def run(self) -> None:
        """Request after request, until the proxy has had enough."""
        try:
            while self._one():
                pass
        except (OSError, ValueError, TornFrame):
            pass
        finally:
            self._leave()

    def _leave(self) -> None:
        """Nobody listens any more: what the call has yet to say must meet that, and no socket that is closed."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)  # whoever is about to send there is let go
        except OSError:
            pass
        with self._lock:
            call = self._call
            if call is not None:
                call.gone = True
            try:
                self._socket.close()
            except OSError:
                pass
        if call is not None:
            self._interpreter.interrupt(call, "cancelled")

    def _one(self) -> bool:
        line = self._line()
        if not line:
            return False
        method, _, rest = line.partition(b" ")
        fields: dict[bytes, bytes] = {}
        while field := self._line():
            name, _, value = field.partition(b":")
            fields[name.strip().lower()] = value.strip()
        body = _Body(self._reader, fields)
        if method != b"POST" or not rest.split(b" ")[0].split(b"?")[0].endswith(b"/calls"):
            body.skip()
            self._socket.sendall(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
            return True
        try:
            call = self._read_call(body)
        except TornFrame as error:
            answer = document(Kind.DONE, {"outcome": "error", "code": "bad_call", "message": str(error), "size": 0})
            # The proxy must not send the next call into a connection that is about to go.
            self._socket.sendall(_HEAD[:-2] + b"connection: close\r\n\r\n" + _chunk(answer) + b"0\r\n\r\n")
            body.skip()
            return False
        self._call = call
        self._interpreter.submit(call)
        return True

    def _line(self) -> bytes:
        line = self._reader.readline(_LONGEST_LINE)
        if line and not line.endswith(b"\n"):
            raise ValueError("a line without an end")
        return line.rstrip(b"\r\n")

    def _read_call(self, body: _Body) -> Call:
        first = read_frame(body.read)
        if first is None or first[0] is not Kind.CALL:
            raise TornFrame("a call begins with its description")
        said = read_document(first[1])
        sizes = said.get("sizes")
        if not isinstance(sizes, dict):
            raise TornFrame("a call says its sizes")
        parts = {
            Kind.FUNCTION: Assembly(announced(sizes.get("function"))),
            Kind.ARGUMENTS: Assembly(announced(sizes.get("arguments"))),
        }
        while not all(part.complete for part in parts.values()):
            head = read_head(body.read)
            if head is None:
                raise TornFrame("the call is not whole")
            if head[0] not in parts:
                raise TornFrame("a frame that no call has")
            parts[head[0]].take(head[1], body.read_into)
        if body.read(1):
            raise TornFrame("more came than was announced")
        timeout, request = said.get("timeout"), said.get("request")
        if timeout is not None and not (isinstance(timeout, int | float) and 0 < timeout <= 1e9):
            raise TornFrame("a timeout is a number of seconds above 0")
        if request is not None and not (isinstance(request, str) and 1 <= len(request) <= 128):
            raise TornFrame("a request id has 1 to 128 characters")
        return self._made(said, parts[Kind.FUNCTION].data, parts[Kind.ARGUMENTS].data, timeout, request)

    def _made(
        self,
        said: dict[str, object],
        function: bytearray,
        arguments: bytearray,
        timeout: float | None,
        request: str | None,
    ) -> Call:
        over = threading.Event()
        begun: list[bytes] = [_HEAD]

        def send(data: bytes, more: memoryview | None = None) -> None:
            with self._lock:
                if over.is_set():
                    return
                if data[:1] == Kind.DONE.value:
                    over.set()
                    self._socket.sendall(b"".join(begun) + _chunk(data) + b"0\r\n\r\n")
                    self._call = None
                elif more is not None:
                    self._socket.sendall(b"%b%x\r\n%b" % (b"".join(begun), len(data) + len(more), data))
                    self._socket.sendall(more)
                    self._socket.sendall(b"\r\n")
                    begun.clear()
                elif begun:
                    self._socket.sendall(begun.pop() + _chunk(data))
                else:
                    self._socket.sendall(_chunk(data))

        call = Call(
            function,
            arguments,
            send,
            over.set,
            request,
            timeout,
            plain=said.get("result") == "json",
            memory=_memory(said.get("memory")),
            packages=_packages(said.get("packages")),
            cold=said.get("cold") is True,
        )
        _signs_of_life(call, over)
        return call


def _signs_of_life(call: Call, over: threading.Event) -> None:
    PULSE.add(lambda: None if over.is_set() else call.tell(frame(Kind.ALIVE, b"")), over)


class _Pulse:
    """One thread for the signs of life of all calls."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._beats: list[tuple[Callable[[], None], threading.Event]] = []
        self._thread: threading.Thread | None = None

    def add(self, beat: Callable[[], None], over: threading.Event) -> None:
        """Call this every now and then until that is set."""
        with self._lock:
            self._beats = [entry for entry in self._beats if not entry[1].is_set()]
            self._beats.append((beat, over))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True)
                self._thread.start()

    def _run(self) -> None:
        pause = threading.Event()
        while True:
            pause.wait(ALIVE_EVERY)
            with self._lock:
                beats = [beat for beat, over in self._beats if not over.is_set()]
            for beat in beats:
                beat()


PULSE = _Pulse()


def _memory(value: object) -> int | None:
    if value is not None and not (type(value) is int and 1 << 20 <= value < 1 << 62):
        raise TornFrame("memory is a number of bytes, at least 1 MiB")
    return value


def _packages(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(name, str) and len(name) <= 200 for name in value):
        raise TornFrame("packages are a list of names")
    return tuple(value)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class _Body:
    """A request's body, by its length or in chunks."""

    def __init__(self, reader: Any, fields: dict[bytes, bytes]) -> None:
        self._reader = reader
        self._chunked = fields.get(b"transfer-encoding", b"").lower() == b"chunked"
        self._left = 0 if self._chunked else int(fields.get(b"content-length", b"0"))
        self._over = not self._chunked and not self._left

    def read(self, count: int) -> bytes:
        """So many bytes; fewer only where the body ends. Raises `TornFrame` where the connection does."""
        data = bytearray(count)
        with memoryview(data) as view:
            count = self.read_into(view)
        return bytes(data[:count])

    def read_into(self, view: memoryview) -> int:
        """Fill it; how many bytes, fewer only where the body ends. Raises `TornFrame` where the connection does."""
        filled = 0
        while filled < len(view) and not self._over:
            if not self._left:
                self._next_chunk()
                continue
            wanted = min(len(view) - filled, self._left)
            if self._reader.readinto(view[filled : filled + wanted]) < wanted:
                raise TornFrame("the connection ended inside a call")
            filled += wanted
            self._left -= wanted
            if not self._left and self._chunked:
                self._reader.readline(_LONGEST_LINE)
            elif not self._left:
                self._over = True
        return filled

    def skip(self) -> None:
        """Read it to its end."""
        while self.read(1 << 16):
            pass

    def _next_chunk(self) -> None:
        self._left = int(self._reader.readline(_LONGEST_LINE).split(b";")[0], 16)
        if not self._left:
            self._over = True
            while self._reader.readline(_LONGEST_LINE).strip():
                pass
