"""Starting sessions: on a warm container, on a cold server, and how many a second.

Run as `python -m benchmarks.starts [--quick] [--rounds N] [--seconds S]`. One round starts 200 sessions on a warm container
and one on a cold server for each kind of container.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.proxies import start_sticky
from benchmarks.rig import LOAD_CORE, PROXY_CORE, Broken, Proxy, Rig, Unavailable, built, counting, free_ports, pinned
from benchmarks.rounds import options, spread, write

WARM_PER_ROUND = 200
REPETITIONS = 30  #: cold starts, at least
DELAYS = (0, 100, 1000)  #: milliseconds that a container takes before it opens its port
FLOOD = 16  #: connections that start sessions without pause
START = "/_modal/sessions/start"
TERMINATE = "/_modal/sessions/terminate"
TOKEN_HEADER = "x-modal-server-session-token"


class Caller:
    """A client of the control calls with one connection that is kept."""

    def __init__(self, port: int, host: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._connection.connect()
        assert isinstance(self._connection.sock, socket.socket)
        self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._host = host

    def start(self) -> tuple[float, str]:
        """Start a session: seconds until the answer was read, and the token."""
        began = time.perf_counter()
        status, body = self._post(START, {})
        took = time.perf_counter() - began
        if status != 200:
            raise Broken(f"start was answered with {status}: {body[:200]!r}")
        return took, str(json.loads(body)["token"])

    def terminate(self, token: str) -> None:
        """End a session, so that its place is free."""
        status, body = self._post(TERMINATE, {TOKEN_HEADER: token})
        if status != 200:
            raise Broken(f"terminate was answered with {status}: {body[:200]!r}")

    def _post(self, path: str, headers: dict[str, str]) -> tuple[int, bytes]:
        self._connection.request("POST", path, headers={"Host": self._host, **headers})
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def close(self) -> None:
        self._connection.close()


@contextlib.contextmanager
def caller(port: int, host: str) -> Iterator[Caller]:
    """A Caller that is closed afterwards."""
    found = Caller(port, host)
    try:
        yield found
    finally:
        found.close()


def configuration(folder: Path, repetitions: int) -> Path:
    """One warm Server, and a cold one for each cold start: none has to be waited for until it is cold again."""
    head = f'[daemon]\nstate_dir = "{folder / "state"}"\n'
    tables = [_server("warm", 0, 'hosts = ["warm.localhost"]\nmin_containers = 1\nbuffer_containers = 0')]
    for delay in DELAYS:
        tables += [
            _server(_cold(delay, nth), delay, f'hosts = ["{_cold(delay, nth)}.localhost"]')
            for nth in range(repetitions)
        ]
    path = folder / "sticky.toml"
    path.write_text("\n".join([head, *tables]))
    return path


def _cold(delay: int, nth: int) -> str:
    return f"cold-{delay}-{nth}"


def _server(name: str, delay: int, rest: str) -> str:
    command = f'["{built("backend")}", "{{port}}", "--core", "{LOAD_CORE}", "--delay", "{delay}"]'
    return (
        f"[servers.{name}]\ncommand = {command}\nunauthenticated = true\nmax_concurrency = 1000\ntarget_concurrency = 1000\n"
        f"max_containers = 1\nmax_total_containers = 1\nidle_timeout = 600\nscaledown_window = 3600\n{rest}\n"
    )


def own_time(delay: int) -> float:
    """Seconds from a spawn of the container's program, by us, until its port is open."""
    (port,) = free_ports(1)
    command = [str(built("backend")), str(port), "--core", str(LOAD_CORE), "--delay", str(delay)]
    began = time.perf_counter()
    process = subprocess.Popen(command, start_new_session=True)
    try:
        while True:
            with socket.socket() as attempt:
                if attempt.connect_ex(("127.0.0.1", port)) == 0:
                    return time.perf_counter() - began
            if time.perf_counter() - began > 20:
                raise Broken("the container did not open its port")
            time.sleep(0.0002)  # leaves the core to the container
    finally:
        process.kill()
        process.wait()


def flood(proxy: Proxy, seconds: float) -> tuple[float, float]:
    """Starts a second and the daemon's CPU microseconds for each, with FLOOD clients that start and terminate."""
    script = Path(__file__).with_name("peers") / "starts.lua"
    with counting(proxy) as spent:
        done = subprocess.run(
            pinned(LOAD_CORE, "wrk", "-t1", f"-c{FLOOD}", f"-d{max(1, round(seconds))}s", "-s", script,
                   f"http://127.0.0.1:{proxy.port}"),
            capture_output=True, text=True, timeout=seconds + 60, check=False,
        )  # fmt: skip
    for line in done.stdout.splitlines():
        if line.startswith("JSON "):
            report = json.loads(line[5:])
            if report["bad"] or not report["starts"]:
                raise Broken(f"{report['bad']} of {report['count']} control calls were refused")
            return report["starts"] / report["seconds"], spent["ns"] / 1e3 / report["starts"]
    raise Broken((done.stderr or done.stdout)[:300])


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which this share lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def main() -> int:
    """Run it; the tables go to stdout, all figures to a JSON file."""
    parser = options("Session starts: warm, cold, per second.", ())
    asked = parser.parse_args()
    rounds, seconds = (2, 1.0) if asked.quick else (asked.rounds, asked.seconds)
    repetitions = 3 if asked.quick else max(REPETITIONS, rounds)
    warm: list[float] = []
    rates: list[float] = []
    costs: list[float] = []
    cold: dict[int, list[float]] = {delay: [] for delay in DELAYS}
    own: dict[int, list[float]] = {delay: [] for delay in DELAYS}
    os.sched_setaffinity(0, {LOAD_CORE})
    try:
        with Rig() as rig:
            folder = rig.folder("starts")
            proxy = start_sticky(rig, "sticky", configuration(folder, repetitions), folder)
            with caller(proxy.port, "warm.localhost") as client:
                client.terminate(client.start()[1])  # the container is up from here on
                for _ in range(rounds):
                    for _ in range(WARM_PER_ROUND):
                        took, token = client.start()
                        warm.append(took)
                        client.terminate(token)
                    rate, cost = flood(proxy, seconds)
                    rates.append(rate)
                    costs.append(cost)
            for nth in range(repetitions):
                for delay in DELAYS:
                    os.sched_setaffinity(0, {PROXY_CORE})  # as the daemon spawns it
                    own[delay].append(own_time(delay))
                    os.sched_setaffinity(0, {LOAD_CORE})
                    with caller(proxy.port, f"{_cold(delay, nth)}.localhost") as client:
                        took, token = client.start()
                        cold[delay].append(took)
                        client.terminate(token)
    except Unavailable as error:
        sys.stderr.write(f"benchmarks: {error}\n")
        return 1
    print("### Session start on a warm container\n")
    print("| starts | p50 ms | p90 ms | p99 ms | starts/s, 16 clients | daemon CPU µs per start and terminate |")
    print("| --- | --- | --- | --- | --- | --- |")
    print(
        f"| {len(warm)} | {percentile(warm, 0.5) * 1e3:.2f} | {percentile(warm, 0.9) * 1e3:.2f} | {percentile(warm, 0.99) * 1e3:.2f}"
        f" | {spread(rates, '{:.0f}')} | {spread(costs, '{:.0f}')} |\n"
    )
    print("### Session start on a cold server, by the time that the container sleeps before it opens its port\n")
    print(
        "| container sleeps, ms | repetitions | start to credentials p50 ms | container's own time p50 ms | difference p50 ms | p90 |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    for delay in DELAYS:
        extra = [(a - b) * 1e3 for a, b in zip(cold[delay], own[delay], strict=True)]
        print(
            f"| {delay} | {len(extra)} | {statistics.median(cold[delay]) * 1e3:.1f} | {statistics.median(own[delay]) * 1e3:.1f}"
            f" | {statistics.median(extra):.1f} | {percentile(extra, 0.9):.1f} |"
        )
    write("starts", asked.json, {"warm": warm, "rates": rates, "costs": costs, "cold": cold, "own": own})
    return 0


if __name__ == "__main__":
    sys.exit(main())
