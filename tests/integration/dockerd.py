"""Real container engines for tests: a dockerd, or a podman service, that belongs to this test run and leaves nothing behind.

Each runs in mount and pid namespaces of its own, so its mounts and processes end with it, however it ends; its state is in a
folder of the test's. Holds no test.
"""

from __future__ import annotations

import atexit
import io
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_START = 20.0  # seconds that an engine may take to answer
_STOP = 20.0
_CGROUPS = Path("/sys/fs/cgroup")

#: The machine's own programs and libraries, for an image that is empty.
MOUNTS = tuple(
    f"{os.path.realpath(path)}:{path}:ro"
    for path in ("/usr", "/lib", "/lib64", "/bin", "/etc/alternatives")
    if os.path.isdir(path)
)
INTERPRETER = os.path.realpath(sys.executable)
if not INTERPRETER.startswith("/usr/bin/"):
    _prefix = os.path.realpath(sys.base_prefix)
    if not _prefix.startswith("/usr"):
        MOUNTS += (f"{_prefix}:{_prefix}:ro",)


class CannotRun(Exception):
    """An engine does not run here; the text says why."""


class EngineProcess:
    """One engine of a test's own, with an empty image. Start and stop block."""

    def __init__(self, command: Callable[[EngineProcess], Sequence[str]], needs: Sequence[str]) -> None:
        if os.geteuid() != 0:
            raise CannotRun("only root can start a container engine")
        for program in (*needs, "unshare", "setpriv", "ip"):
            if shutil.which(program) is None:
                raise CannotRun(f"{program} is not installed")
        self.folder = Path(tempfile.mkdtemp(prefix="stk-", dir="/tmp"))
        self.socket = str(self.folder / "engine.sock")
        self.name = f"stk{os.getpid() % 100_000}x{self.folder.name[-3:].lower()}"[:15]
        self.image = ""
        self._command = command
        self._needs = needs
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Raises `CannotRun`."""
        for old in ("engine.sock", "pid", "docker.pid"):
            (self.folder / old).unlink(missing_ok=True)
        # Of the run before, whose processes are gone: in the new pid namespace its numbers are somebody else's.
        shutil.rmtree(self.folder / "exec", ignore_errors=True)
        # --kill-child and --pdeathsig: whatever happens to us, nothing of it stays.
        wrap = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "private", "--pid", "--fork"]
        wrap += ["--kill-child=KILL", "--mount-proc", "sh", "-c", 'mount -t tmpfs none /run && exec "$@"', "sh"]
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                [*wrap, *self._command(self)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**os.environ, "TMPDIR": str(self.folder)},
            )
        deadline = time.monotonic() + _START
        while b"OK" not in self.ask("GET", "/_ping"):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                lines = (self.folder / "log").read_text("utf-8", "replace").splitlines()
                raise CannotRun(f"the engine does not start: {' | '.join(lines[-3:])[-600:]}")
            time.sleep(0.02)

    def stop(self, kill: bool = False) -> None:
        """SIGTERM, which ends its containers, or SIGKILL. State stays for another start."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        except OSError:
            children = []
        if kill or not children:
            process.kill()
        else:
            os.kill(int(children[0]), 15)
        try:
            process.wait(_STOP)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        deadline = time.monotonic() + _STOP
        while self._listens() and time.monotonic() < deadline:
            time.sleep(0.01)  # what unshare has started ends a moment after it

    def _listens(self) -> bool:
        with socket.socket(socket.AF_UNIX) as asking:
            return asking.connect_ex(self.socket) == 0

    def remove(self) -> None:
        """Stop it for good and clean up."""
        self.stop()
        subprocess.run(["ip", "link", "del", self.name], capture_output=True)
        # Podman's are called by its library; those that are in use by another one cannot be removed.
        for name in (f"{self.name}*", *(["libpod_parent"] if "podman" in self._needs else [])):
            _remove_groups(name)
        shutil.rmtree(self.folder, ignore_errors=True)

    def import_empty_image(self) -> None:
        """An image without a single file; `image` is its id afterwards."""
        empty = io.BytesIO()
        with tarfile.open(fileobj=empty, mode="w") as archive:
            # Podman wants at least one entry.
            archive.addfile(_folder("etc"))
        answer = self.ask("POST", "/v1.41/images/create?fromSrc=-", empty.getvalue(), "application/x-tar")
        found = answer.partition(b"sha256:")[2][:64].decode()
        if len(found) != 64:
            found = answer.split(b'"status":"')[-1].partition(b'"')[0].decode()
        if not found:
            raise CannotRun(f"the empty image cannot be imported: {answer[-300:]!r}")
        self.image = f"sha256:{found}" if len(found) == 64 else found

    def ask(self, method: str, path: str, body: bytes = b"", kind: str = "application/json") -> bytes:
        """A request by the shortest way there is; the whole answer, head and all. Nothing where nobody answers."""
        head = f"{method} {path} HTTP/1.0\r\nHost: d\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(30)
            try:
                asking.connect(self.socket)
                asking.sendall(head.encode() + body)
                answer = b""
                while piece := asking.recv(65536):
                    answer += piece
                return answer
            except OSError:
                return b""


def _remove_groups(name: str) -> None:
    """Empty control groups of this name, of whatever version."""
    for folder in (*_CGROUPS.glob(name), *_CGROUPS.glob(f"*/{name}")):
        for path, _, _ in os.walk(folder, topdown=False):
            try:
                os.rmdir(path)
            except OSError:
                pass


def _folder(name: str) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, 0o755
    return entry


def dockerd() -> EngineProcess:
    """Docker's daemon, not started. It changes nothing of the machine's network but a bridge of its own name."""

    def command(engine: EngineProcess) -> Sequence[str]:
        (engine.folder / "daemon.json").write_text("{}")
        third = os.getpid() % 200 + 20
        for step in (
            ["ip", "link", "add", engine.name, "type", "bridge"],
            ["ip", "addr", "add", f"10.231.{third}.1/24", "dev", engine.name],
            ["ip", "link", "set", engine.name, "up"],
        ):
            subprocess.run(step, capture_output=True)
        return [
            "dockerd",
            *("--config-file", str(engine.folder / "daemon.json")),
            *("--data-root", str(engine.folder / "data")),
            *("--exec-root", str(engine.folder / "exec")),
            *("--pidfile", str(engine.folder / "pid")),
            *("--host", f"unix://{engine.socket}", "--group", "root"),
            *("--storage-driver", "vfs", "--cgroup-parent", f"/{engine.name}"),
            *(
                "--bridge",
                engine.name,
                "--iptables=false",
                "--ip6tables=false",
                "--ip-forward=false",
                "--ip-masq=false",
            ),
        ]

    return EngineProcess(command, ["dockerd", "containerd", "runc"])


def podman() -> EngineProcess:
    """Podman's service, not started."""

    def command(engine: EngineProcess) -> Sequence[str]:
        folder = engine.folder
        return [
            "podman",
            *("--root", str(folder / "root"), "--runroot", str(folder / "runroot"), "--tmpdir", str(folder / "tmp")),
            *("--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--events-backend", "file"),
            *("--runtime", "runc"),  # crun refuses a machine with both versions of cgroups
            *("system", "service", "--time=0", f"unix://{engine.socket}"),
        ]

    return EngineProcess(command, ["podman", "conmon", "runc", "catatonit"])


_shared: dict[str, EngineProcess | CannotRun] = {}


def shared(kind: str) -> EngineProcess:
    """One engine for all tests of this process, with its image. Raises `CannotRun`."""
    if kind not in _shared:
        starters: Mapping[str, Callable[[], EngineProcess]] = {"docker": dockerd, "podman": podman}
        try:
            engine = starters[kind]()
            atexit.register(engine.remove)
            engine.start()
            engine.import_empty_image()
            _shared[kind] = engine
        except CannotRun as reason:
            _shared[kind] = reason
    found = _shared[kind]
    if isinstance(found, CannotRun):
        raise found
    return found
