"""The folder, the daemon and what runs for it, and what can be done to them. Decides no time and knows no client."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection
from pathlib import Path

from tests.faults.report import LIMIT
from tests.integration.preloaded import PRELOADING, Preloaded, Preloading
from tests.integration.running_daemon import ROOT

FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
PORTS = (10_000, 19_000)  #: below those of containers and of outgoing connections
DISK = 256 * 1024 * 1024  #: bytes of the state directory's file system, where disks are to fill

SERVER = (
    f"max_concurrency = {LIMIT}\nmax_containers = 10\nmax_sessions_per_caller = 100000\nmax_queue_per_caller = 1000\n"
    "scaledown_window = 5\nmin_containers = 2\n"
)


class Ground:
    """One daemon's place. `left_out` says which of the kinds of faults cannot be done here, and why."""

    def __init__(
        self,
        workers: int,
        kinds: Collection[str] = (),
        server: str = SERVER,
        daemon: str = 'access_log = "off"\n',
        preloaded: bool = False,
    ) -> None:
        """`preloaded`: daemons are forked from a process that has imported them, which is most of what a start costs."""
        self.folder = Path(tempfile.mkdtemp(prefix="sticky-faults-")).resolve()
        self.state = self.folder / "state"
        self.left_out: dict[str, str] = {}
        command = json.dumps([sys.executable, str(Path(__file__).with_name("app.py")), "{port}"])
        (self.folder / "sticky.toml").write_text(
            f"[daemon]\nworkers = {workers}\ndrain_timeout = 5\n{daemon}\n[servers.one]\ncommand = {command}\n{server}"
        )
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = self.folder / "daemon.log"
        self._log = self.log.open("ab")
        self.environment = {**os.environ, "PYTHONPATH": str(ROOT)}  #: of daemons
        self._limits: dict[int, tuple[int, int]] = {}
        self._mounted = False
        self._began = time.time()
        self.process: subprocess.Popen[bytes] | Preloaded | None = None
        self._preloading: Preloading | None = None
        if "disk" in kinds:
            self._mount()
        if "clock" in kinds:
            self._fake_time()
        if preloaded:
            self._preloading = Preloading(self.environment)

    # --- the daemon

    def start(self) -> None:
        """A daemon on what is there."""
        twistd = [sys.executable, "-c", "from twisted.scripts.twistd import run; run()"]
        arguments = ["-n", "--pidfile=", "sticky", "--config", "sticky.toml", "--state-dir", str(self.state)]
        listen = ["--listen", f"tcp:{self.port}:interface=127.0.0.1"]
        if self._preloading is not None:
            self.process = Preloaded(
                "twistd", [*arguments, *listen], output=self._log.fileno(), errors=self._log.fileno(),
                folder=self.folder, environ=self.environment, by=self._preloading,
            )  # fmt: skip
            return
        self.process = subprocess.Popen(
            [*twistd, *arguments, *listen], cwd=self.folder, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log,
            env=self.environment, start_new_session=True,
        )  # fmt: skip

    def in_charge(self) -> int:
        """The pid of the daemon: it may be the successor of the one that was started. 0: it is not known in this moment."""
        try:
            return int((self.state / "lock").read_text().strip() or 0)
        except FileNotFoundError:
            return 0

    def ended(self) -> int | None:
        """The exit status of a daemon that is gone without a successor; None: one is there, or is about to be."""
        assert self.process is not None
        status = self.process.poll()
        pid = self.in_charge()
        return None if status is None or (pid and _alive(pid)) else status

    def last_words(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-600:].strip()

    def kill_daemon(self) -> None:
        """SIGKILL to whoever is in charge; earlier ones go with it."""
        kill(self.in_charge())
        if self.process is not None and self.process.poll() is None and self.process.pid not in self.daemons():
            self.process.wait()

    # --- who is there

    def processes(self, mark: bytes) -> list[int]:
        """Whatever works in this folder and has this in its command line or environment."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if not entry.name.isdigit() or (entry / "cwd").readlink() != self.folder:
                    continue
                if mark in (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
        return sorted(found)

    def daemons(self) -> list[int]:
        """Daemons, old and new."""
        containers = self.containers()
        found = {*self.processes(b"--state-dir"), *self.processes(PRELOADING.name.encode())}
        return sorted(found - set(containers))

    def workers(self) -> list[int]:
        """Worker processes."""
        return self.processes(b"sticky.worker import")

    def containers(self) -> dict[int, str]:
        """Containers' ids by pid."""
        found = {}
        for pid in self.processes(b"STICKY_CONTAINER_ID="):
            try:
                environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            except OSError:
                continue
            found[pid] = next(one[20:].decode() for one in environ if one.startswith(b"STICKY_CONTAINER_ID="))
        return found

    # --- its disk

    def fill_disk(self) -> None:
        """Nothing more can be written to the state directory."""
        with (self.state / "ballast").open("ab", buffering=0) as ballast:
            try:
                while True:  # ends with the disk
                    ballast.write(bytes(1 << 20))
            except OSError:
                pass
            try:
                while True:
                    ballast.write(bytes(4096))
            except OSError:
                pass

    def empty_disk(self) -> None:
        """There is room again."""
        (self.state / "ballast").unlink(missing_ok=True)

    def _mount(self) -> None:
        self.state.mkdir(mode=0o700)
        options = f"size={DISK},mode=0700"
        try:
            done = subprocess.run(
                ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self.state)], capture_output=True, check=False
            )
        except FileNotFoundError:
            self.left_out["disk"] = "there is no mount(8)"
            return
        self._mounted = done.returncode == 0
        if not self._mounted:
            self.left_out["disk"] = "mounting a small file system needs root"

    # --- its clock

    def set_clock(self, offset: int) -> None:
        """The wall clock of the daemon and its workers is off by so many seconds from now on."""
        fresh = self.folder / "clock.new"
        fresh.write_text(f"{offset:+d}\n")
        fresh.replace(self.folder / "clock")

    def _fake_time(self) -> None:
        if not FAKETIME.exists():
            self.left_out["clock"] = "faketime is not installed"
            return
        self.set_clock(0)
        self.environment |= {
            "PYTHONPATH": f"{Path(__file__).with_name('at_start')}{os.pathsep}{ROOT}",
            "LD_PRELOAD": str(FAKETIME),
            "FAKETIME_TIMESTAMP_FILE": str(self.folder / "clock"),
            "FAKETIME_CACHE_DURATION": "1",  # seconds until a jump is seen
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }

    # --- its descriptors

    def limit_descriptors(self, share: float) -> None:
        """The daemons and workers that run get so few that only this share of those in use could be had."""
        for pid in [*self.daemons(), *self.workers()]:
            try:
                used = len(os.listdir(f"/proc/{pid}/fd"))
                before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
                resource.prlimit(pid, resource.RLIMIT_NOFILE, (max(3, int(used * share)), before[1]))
            except (OSError, ProcessLookupError):
                continue
            self._limits.setdefault(pid, before)

    def free_descriptors(self) -> None:
        """They have as many as before, and so has whoever was started by them meanwhile."""
        limit = next(iter(self._limits.values()), None)
        self._limits.clear()
        if limit is not None:
            for pid in [*self.daemons(), *self.workers(), *self.containers()]:
                try:
                    resource.prlimit(pid, resource.RLIMIT_NOFILE, limit)
                except (OSError, ProcessLookupError):
                    continue

    # --- the end

    def close(self) -> None:
        """Nothing of this run stays."""
        for pid in self.processes(b""):
            kill(pid)
        self._log.close()
        if self._preloading is not None:
            self._preloading.close()
        if "LD_PRELOAD" in self.environment:
            _clear_faketime(self._began)
        if self._mounted:
            subprocess.run(["umount", "-l", str(self.state)], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


def kill(pid: int) -> None:
    """SIGKILL, if it is still there."""
    if pid:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def _clear_faketime(since: float) -> None:
    """What libfaketime shares within a process is left behind by whoever is killed: that of the dead of our time."""
    for left in Path("/dev/shm").glob("*faketime_s*m_*"):
        pid = left.name.rpartition("_")[2]
        try:
            if left.stat().st_ctime >= since and pid.isdigit() and not _alive(int(pid)):
                left.unlink()
        except OSError:
            continue


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (OSError, IndexError):
        return False


def _free_port() -> int:
    """Not one that the kernel gives to outgoing connections: while the daemon is down, one of them could take it for long,
    or a client that tries again meet itself there (a simultaneous open)."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(*PORTS) if first >= PORTS[1] else random.randrange(1024, first)
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue
