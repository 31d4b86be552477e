"""HTTP through Sticky and its peers: CPU a request, latency, bulk, events, TLS, memory of stopped readers.

python -m benchmarks.http [--quick] [--rounds N] [--seconds S] [--cases get-64 down ...]
"""

from __future__ import annotations

import sys
from functools import partial

from benchmarks.proxies import Proxies, bearer
from benchmarks.rig import Load, counting, wrk
from benchmarks.rounds import Case, Column, Figures, main, settled

PEERS = ("nginx", "nginx-log", "haproxy", "chp", "sticky", "sticky-before")
SMALL = ("direct", *PEERS)
BULK = ("direct", "nginx", "haproxy", "chp", "sticky", "sticky-before")

BODY = 100_000_000
READERS = 100
READER_BODY = 50_000_000

PER_REQUEST = (
    Column("cpu", "CPU µs/request", ratio="nginx CPU / its CPU"),
    Column("rate", "requests/s", "{:.0f}", ratio="rate / nginx", less_is_better=False),
    Column("p50", "p50 µs", "{:.0f}", ratio="nginx p50 / its p50"),
    Column("p99", "p99 µs", "{:.0f}"),
)
PER_GIGABYTE = (
    Column("cpu", "CPU s/GB", "{:.2f}", ratio="nginx CPU / its CPU"),
    Column("rate", "GB/s", "{:.2f}", ratio="rate / nginx", less_is_better=False),
)


def get(
    proxies: Proxies,
    name: str,
    seconds: float,
    *,
    connections: int,
    header: bool = False,
    close: bool = False,
    tls: bool = False,
) -> Figures:
    """Small GETs."""
    proxy = proxies.get("chp-tls" if tls and name == "chp" else name)
    if tls:
        proxies.check_cipher(proxy)
    fields = bearer(proxy.token or proxies.token()) if header else proxy.fields
    with counting(proxy) as spent:
        report = wrk(proxy, connections, seconds, fields=fields, close=close, tls=tls)
    return {
        "cpu": spent["ns"] / 1e3 / report["count"],
        "rate": report["count"] / report["seconds"],
        "p50": report["p50"],
        "p99": report["p99"],
    }


def bulk(proxies: Proxies, name: str, seconds: float, *, mode: str) -> Figures:
    """100 MB bodies, one after another on one connection."""
    proxy = proxies.get(name)
    count = max(2, round(seconds * 3))
    with Load(proxy, mode, BODY, count, timeout=120) as load, counting(proxy) as spent:
        report = load.work()
    gigabytes = BODY * count / 1e9
    return {"cpu": spent["ns"] / 1e9 / gigabytes, "rate": gigabytes / report["seconds"]}


def events(proxies: Proxies, name: str, seconds: float) -> Figures:
    """How old an event is when it comes: one every 5 ms."""
    proxy = proxies.get(name)
    count = round(seconds * 200)
    with Load(proxy, "events", count, timeout=seconds + 30) as load, counting(proxy) as spent:
        report = load.work()
    return {"p50": report["p50"], "p99": report["p99"], "cpu": spent["ns"] / 1e3 / count}


def stopped(proxies: Proxies, name: str, seconds: float) -> Figures:
    """What a fresh process keeps for each client that asked for much and does not read."""
    with proxies.fresh(name) as proxy:
        before = proxy.resident()
        with Load(proxy, "stopped", READERS, READER_BODY) as load:
            load.work()
            after = settled(proxy)
    return {"kib": (after - before) / 1024 / READERS}


CASES = (
    Case("get-1", "Small GET, 1 connection", partial(get, connections=1), SMALL, PER_REQUEST),
    Case("get-64", "Small GET, 64 connections", partial(get, connections=64), SMALL, PER_REQUEST),
    Case("get-512", "Small GET, 512 connections", partial(get, connections=512), SMALL, PER_REQUEST),
    Case("get-64-header", "Small GET, 64 connections, token in a header", partial(get, connections=64, header=True),
         PEERS, PER_REQUEST),
    Case("connect", "Small GET, a new connection each, 64 at once", partial(get, connections=64, close=True), SMALL, PER_REQUEST),
    Case("tls-64", "Small GET over TLS, 64 connections", partial(get, connections=64, tls=True),
         ("nginx", "haproxy", "chp", "sticky"), PER_REQUEST),
    Case("tls-connect", "Small GET over TLS, a new connection each, 64 at once", partial(get, connections=64, tls=True, close=True),
         ("nginx", "haproxy", "chp", "sticky"), PER_REQUEST),
    Case("down", "100 MB down", partial(bulk, mode="down"), BULK, PER_GIGABYTE),
    Case("up", "100 MB up", partial(bulk, mode="up"), BULK, PER_GIGABYTE),
    Case("events", "Server-Sent Events, one every 5 ms", events, BULK,
         (Column("p50", "age p50 µs", "{:.0f}", ratio="nginx p50 / its p50"), Column("p99", "age p99 µs", "{:.0f}"),
          Column("cpu", "CPU µs/event"))),
    Case("stopped", f"{READERS} readers that stopped, in a fresh process", stopped, ("nginx", "haproxy", "chp", "sticky"),
         (Column("kib", "KiB held for each", "{:.0f}", ratio="nginx / its"),), rounds=3),
)  # fmt: skip


if __name__ == "__main__":
    sys.exit(main("http", "HTTP through Sticky, nginx, HAProxy and configurable-http-proxy.", CASES))
