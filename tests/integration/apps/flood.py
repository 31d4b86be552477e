"""Opens many WebSocket handshakes from several loopback addresses, and says what became of them, line by line of JSON.

Run as `python flood.py PORT COUNT TOKEN`; ends when its standard input does.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time

HEAD = (
    "GET / HTTP/1.1\r\nHost: thinking.localhost\r\nModal-Authorization: Bearer {}\r\nConnection: Upgrade\r\n"
    "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


def main() -> None:
    port, count, token = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    head = HEAD.format(token).encode()
    watch = selectors.DefaultSelector()
    seen = {"open": 0, "refused": 0, "dropped": 0}
    waiting = 0
    quiet_at = time.monotonic()
    for number in range(count):
        client = socket.socket()
        client.bind((f"127.0.0.{2 + number % 4}", 0))
        client.settimeout(20)
        client.connect(("127.0.0.1", port))
        client.send(head)
        client.setblocking(False)
        watch.register(client, selectors.EVENT_READ)
        waiting += 1
        if number % 50 == 49:
            waiting -= look(watch, seen, 0)
    while time.monotonic() - quiet_at < 60:
        settled = look(watch, seen, 1.5)
        waiting -= settled
        if not settled:
            break
    seen["open"] = waiting
    print(json.dumps(seen), flush=True)
    sys.stdin.read()


def look(watch: selectors.BaseSelector, seen: dict[str, int], wait: float) -> int:
    """How many have been answered or dropped since the last look."""
    settled = 0
    for key, _ in watch.select(wait):
        client = key.fileobj
        assert isinstance(client, socket.socket)
        try:
            answer = client.recv(4096)
        except OSError:
            answer = b""
        seen["refused" if answer.startswith(b"HTTP/1.1 503 ") else "dropped"] += 1
        watch.unregister(client)
        client.close()
        settled += 1
    return settled


main()
