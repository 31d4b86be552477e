"""WebSockets through Sticky and its peers: echo, idle memory, the cost of opening.

Run as `python -m benchmarks.websocket [--quick] [--rounds N] [--seconds S] [--cases echo-200-32 ...]`.
"""

from __future__ import annotations

import resource
import sys
import time
from functools import partial

from benchmarks.proxies import Proxies
from benchmarks.rig import Load, counting
from benchmarks.rounds import Case, Column, Figures, main, settled

PEERS = ("nginx", "haproxy", "chp", "sticky", "sticky-before")
ALL = ("direct", *PEERS)

SIZES = (("32", "32 B", 32), ("1k", "1 KiB", 1024), ("64k", "64 KiB", 65536))
MAX_IDLE = 9000
IDLE_SECONDS = 3.0

ECHO = (
    Column("cpu", "CPU µs/round trip", ratio="nginx CPU / its CPU"),
    Column("rate", "round trips/s", "{:.0f}", ratio="rate / nginx", less_is_better=False),
    Column("p50", "p50 µs", "{:.0f}", ratio="nginx p50 / its p50"),
    Column("p99", "p99 µs", "{:.0f}"),
)


def echo(proxies: Proxies, name: str, seconds: float, *, connections: int, size: int) -> Figures:
    """Each connection has one message under way: to the backend and back, so two relayed messages a round trip."""
    proxy = proxies.get(name)
    with Load(proxy, "ws", connections, size, seconds, timeout=seconds + 60) as load, counting(proxy) as spent:
        report = load.work()
    return {
        "cpu": spent["ns"] / 1e3 / report["count"],
        "rate": report["count"] / report["seconds"],
        "p50": report["p50"],
        "p99": report["p99"],
    }


def idle_count() -> int:
    """As many as two descriptors each in the proxy allow, with room for others."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(MAX_IDLE, (soft - 600) // 2)


def idle(proxies: Proxies, name: str, seconds: float) -> Figures:
    """What a fresh process keeps for each open WebSocket that says nothing, and what it computes meanwhile."""
    with proxies.fresh(name) as proxy:
        before = proxy.resident()
        count = idle_count()
        with Load(proxy, "idle", count, timeout=180):
            after = settled(proxy)
            with counting(proxy) as spent:
                time.sleep(IDLE_SECONDS)
        return {"kib": (after - before) / 1024 / count, "count": count, "cpu": spent["ns"] / 1e7 / IDLE_SECONDS}


def handshakes(proxies: Proxies, name: str, seconds: float) -> Figures:
    """One opening after another, each reset as soon as it stands."""
    proxy = proxies.get(name)
    count = max(200, round(seconds * 500))
    with Load(proxy, "handshakes", count, timeout=seconds + 60) as load, counting(proxy) as spent:
        report = load.work()
        time.sleep(0.1)  # the last resets are part of the cost
    return {"cpu": spent["ns"] / 1e3 / count, "p50": report["p50"], "p99": report["p99"]}


CASES = (
    *(
        Case(
            f"echo-{connections}-{short}",
            f"Echo of {size}, {connections} connection{'s' if connections > 1 else ''}",
            partial(echo, connections=connections, size=bytes_),
            ALL,
            ECHO,
        )
        for connections in (1, 200)
        for short, size, bytes_ in SIZES
    ),
    Case("idle", "Open WebSockets that say nothing, in a fresh process", idle, PEERS,
         (Column("kib", "KiB held for each", "{:.2f}", ratio="nginx / its"), Column("count", "open", "{:.0f}"),
          Column("cpu", "CPU % meanwhile", "{:.2f}")), rounds=2),
    Case("handshakes", "Opening a WebSocket", handshakes, ALL,
         (Column("cpu", "CPU µs each", "{:.0f}", ratio="nginx CPU / its CPU"), Column("p50", "p50 µs", "{:.0f}"),
          Column("p99", "p99 µs", "{:.0f}"))),
)  # fmt: skip


if __name__ == "__main__":
    sys.exit(main("websocket", "WebSockets through Sticky, nginx, HAProxy and configurable-http-proxy.", CASES))
