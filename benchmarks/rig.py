"""The programs of a benchmark: proxies, backend and load, each on its core; what a proxy has used. Knows no cases and no tables.

Everything listens on the loopback, on ports that were free a moment before. Only what was started here is stopped here.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import attrs

from benchmarks import looking

HERE = Path(__file__).resolve().parent
BUILD = HERE / ".build"
START_TIMEOUT = 20.0

CORES = sorted(os.sched_getaffinity(0))
LOAD_CORE = CORES[0]  #: load and backend
PROXY_CORE = CORES[1] if len(CORES) > 1 else CORES[0]  #: the proxy alone


class Unavailable(Exception):
    """A variant that cannot run here; the text says why."""


class Broken(Exception):
    """A measurement that cannot count: errors on the wire, a program that failed."""


def built(name: str) -> Path:
    """A file that `benchmarks/setup` makes."""
    path = BUILD / name
    if not path.exists():
        raise Unavailable(f"{path} is missing: run benchmarks/setup")
    return path


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


def pinned(core: int, *command: str | Path) -> list[str]:
    """The command, kept on one core."""
    return ["taskset", "-c", str(core), *map(str, command)]


@attrs.define(eq=False)
class Proxy:
    """A running proxy, or what stands in for one."""

    name: str
    port: int
    tls_port: int | None
    process: subprocess.Popen[bytes]
    fields: dict[str, str]  #: header lines that every request needs
    token: str | None = attrs.field(default=None, repr=False)

    def pids(self) -> list[int]:
        """The process and its descendants, without the containers."""
        found = [self.process.pid]
        for pid in found:
            for child in _children(pid):
                if _program(child) != BUILD / "backend":
                    found.append(child)
        return found

    def cpu(self) -> int:
        """Nanoseconds that the scheduler has given to all its processes."""
        return self._sum(looking.worked)

    def resident(self) -> int:
        """Resident bytes of all its processes, private ones only, so that forked workers do not count twice."""
        return self._sum(looking.private)

    def _sum(self, asked: Callable[[int], int]) -> int:
        """Of all processes that are there yet."""
        total = 0
        for pid in self.pids():
            with contextlib.suppress(OSError):
                total += asked(pid)
        return total


def _children(pid: int) -> list[int]:
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
        return [int(c) for task in tasks for c in Path(f"/proc/{pid}/task/{task}/children").read_text().split()]
    except OSError:
        return []


def _program(pid: int) -> Path | None:
    try:
        return Path(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return None


class Rig:
    """A folder for the run, and the processes that were started in it. A context manager: leaving it stops them."""

    def __init__(self) -> None:
        if len(CORES) < 2:
            raise Unavailable("the benchmarks need two cores: one for the proxy, one for load and backend")
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self._folder = tempfile.TemporaryDirectory(prefix="sticky-bench-")
        self.run = Path(self._folder.name)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._logs: list[IO[bytes]] = []
        self._count = 0

    def __enter__(self) -> Rig:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in reversed(self._processes):
            self.stop(process)
        for log in self._logs:
            log.close()
        self._folder.cleanup()

    def folder(self, name: str) -> Path:
        """A new folder of the run."""
        self._count += 1
        path = self.run / f"{name}-{self._count}"
        path.mkdir()
        return path

    def spawn(self, name: str, command: list[str], folder: Path) -> subprocess.Popen[bytes]:
        """Start a program; what it says goes to a file in `folder`."""
        log = (folder / "output").open("wb")
        self._logs.append(log)
        try:
            process = subprocess.Popen(command, cwd=HERE.parent, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        except FileNotFoundError as error:
            raise Unavailable(f"{name}: {error.filename} is not installed: run benchmarks/setup") from None
        self._processes.append(process)
        return process

    def stop(self, process: subprocess.Popen[bytes]) -> None:
        """End one of our processes."""
        if process in self._processes:
            self._processes.remove(process)
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def backend(self, core: int = LOAD_CORE) -> tuple[int, subprocess.Popen[bytes]]:
        """Start the C backend; its port and process."""
        (port,) = free_ports(1)
        folder = self.folder("backend")
        process = self.spawn("backend", [str(built("backend")), str(port), "--core", str(core)], folder)
        self.await_port(port, process, folder)
        return port, process

    def await_port(self, port: int, process: subprocess.Popen[bytes], folder: Path) -> None:
        """Return when something listens there."""
        wait_until(lambda: _listens(port), process, folder)


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def wait_until(ready: Callable[[], bool], process: subprocess.Popen[bytes], folder: Path) -> None:
    """Poll; raises Unavailable with the end of the program's output if it dies or takes too long."""
    deadline = time.monotonic() + START_TIMEOUT
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            said = (folder / "output").read_text(errors="replace")[-600:]
            raise Unavailable(f"did not start (exit status {process.poll()}): {said}")
        time.sleep(0.02)


def ask(port: int, method: str, path: str, headers: dict[str, str] | None = None) -> tuple[int, bytes]:
    """One request on a connection of its own: status and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=START_TIMEOUT)
    try:
        connection.request(method, path, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


# --- load ------------------------------------------------------------------------------------------------------------


class Load:
    """A run of load.c: its connections stand when the block is entered, and end with it."""

    def __init__(self, proxy: Proxy, mode: str, *arguments: object, timeout: float = 60.0) -> None:
        env = dict(os.environ, FIELDS="".join(f"{name}: {value}\r\n" for name, value in proxy.fields.items()))
        command = pinned(LOAD_CORE, built("load"), mode, str(proxy.port), *map(str, arguments))
        self._process = subprocess.Popen(
            command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._watchdog = threading.Timer(timeout, self._process.kill)

    def __enter__(self) -> Load:
        self._watchdog.start()
        self._line()
        return self

    def work(self) -> dict[str, float]:
        """Do the work; what load.c reports."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        report: dict[str, float] = json.loads(self._line())
        return report

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            assert self._process.stderr is not None
            said = self._process.stderr.read()[:300]
            raise Broken(said or f"load ended with status {self._process.wait()}")
        return line

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watchdog.cancel()
        self._process.communicate()


def wrk(
    proxy: Proxy, connections: int, seconds: float, *, fields: dict[str, str], close: bool = False, tls: bool = False
) -> dict[str, float]:
    """Small GETs from wrk, each with another path and query; count, seconds, p50, p99."""
    url = f"https://127.0.0.1:{proxy.tls_port}" if tls else f"http://127.0.0.1:{proxy.port}"
    lines = "|".join(f"{name}: {value}" for name, value in fields.items())
    command = ["wrk", "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", "--latency", "--timeout", "10s"]
    command += ["-s", str(HERE / "peers" / "requests.lua"), url, "--", lines, "close" if close else "keep"]
    done = subprocess.run(
        pinned(LOAD_CORE, *command), capture_output=True, text=True, timeout=seconds + 60, check=False
    )
    for line in done.stdout.splitlines():
        if line.startswith("JSON "):
            report: dict[str, float] = json.loads(line[5:])
            if report["bad"] or not report["count"]:
                raise Broken(f"{report['bad']:.0f} of {report['count']:.0f} answers were errors")
            return report
    raise Broken((done.stderr or done.stdout)[:300])


@contextlib.contextmanager
def counting(proxy: Proxy) -> Iterator[dict[str, Any]]:
    """Gives a dict whose "ns" is, after the block, the CPU time that the proxy used in it."""
    spent: dict[str, Any] = {}
    before = proxy.cpu()
    yield spent
    spent["ns"] = proxy.cpu() - before


def versions() -> dict[str, str]:
    """What was measured, for the report's head."""
    commands = {
        "nginx": ["nginx", "-v"],
        "haproxy": ["haproxy", "-v"],
        "node": ["node", "--version"],
        "wrk": ["wrk", "-v"],
        "kernel": ["uname", "-r"],
    }
    found = {"python": sys.version.split()[0]}
    for name, command in commands.items():
        with contextlib.suppress(OSError):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            found[name] = (done.stdout + done.stderr).splitlines()[0].strip()
    return found
