"""The unit that is shipped, under a systemd of its own: in namespaces of its own, on a copy of all files.

Where nobody may make such (no root, no systemd, a kernel without overlays) these are skipped.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import requests
from twisted.trial.unittest import SynchronousTestCase
from websockets.sync.client import connect

from tests.integration.daemon_case import APPS, marked
from tests.integration.running_daemon import ROOT, until

SYSTEMD = Path("/lib/systemd/systemd")
UNIT = ROOT / "contrib" / "systemd" / "sticky.service"
GROUPS = Path("/sys/fs/cgroup")
SPACES = ("--mount", "--pid", "--cgroup", "--uts", "--ipc")  #: systemd sets the machine's name, among other things
#: All that the unit names, and that systemd itself cannot do without, as units that do nothing.
TARGETS = ("sysinit", "basic", "shutdown", "sockets", "network-online", "umount", "final", "timers", "paths", "slices")

BOOT = r"""
set -e
mount --make-rprivate /
mount -t tmpfs tmpfs "$WORK"
mkdir "$WORK/up" "$WORK/work" "$WORK/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$WORK/up,workdir=$WORK/work" "$WORK/root"
root=$WORK/root
mkdir -p "$root/units" "$root/etc/sticky"
cp "$FOLDER"/units/* "$root/units/"
cp "$FOLDER/sticky.toml" "$root/etc/sticky/"
for folder in $REACHED; do chmod a+x "$root$folder"; done
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for node in null zero full random urandom tty; do
    touch "$root/dev/$node"
    mount --bind "/dev/$node" "$root/dev/$node"
done
mount -t proc proc "$root/proc"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount -t sysfs -o ro sysfs "$root/sys"
if [ -d /sys/fs/cgroup/systemd ]; then
    mount -t tmpfs -o mode=755 tmpfs "$root/sys/fs/cgroup"
    mkdir "$root/sys/fs/cgroup/systemd"
    mount -t cgroup -o none,name=systemd cgroup "$root/sys/fs/cgroup/systemd"
else
    mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
fi
mount -t tmpfs -o mode=755 tmpfs "$root/run"
echo 0123456789abcdef0123456789abcdef > "$root/etc/machine-id"
cd "$root"
exec chroot "$root" env -i container=other PATH="$PATH" SYSTEMD_UNIT_PATH=/units SYSTEMD_LOG_TARGET=console \
    "$SYSTEMD" --system --unit=all.target
"""


class UnitTests(SynchronousTestCase):
    def setUp(self) -> None:
        if os.geteuid() != 0 or not SYSTEMD.exists() or shutil.which("unshare") is None:
            self.skipTest("takes root, systemd and unshare(1)")
        if any(Path(path).resolve().stat().st_dev != Path("/").stat().st_dev for path in (sys.prefix, ROOT)):
            self.skipTest("what runs here lies on another file system than /")
        self.folder = Path(tempfile.mkdtemp(prefix="sticky-test-")).resolve()
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        (self.folder / "units").mkdir()
        (self.folder / "work").mkdir()
        for target in TARGETS:
            (self.folder / "units" / f"{target}.target").write_text("[Unit]\nDefaultDependencies=no\n")
        (self.folder / "units" / "all.target").write_text("[Unit]\nDefaultDependencies=no\nWants=sticky.service\n")
        (self.folder / "units" / "sticky.service").write_text(self.unit())
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        command = f'["{sys.executable}", "{APPS / "echo_ws.py"}", "{{port}}"]'
        (self.folder / "sticky.toml").write_text(
            f'[daemon]\nlisten = ["tcp:{port}:interface=127.0.0.1"]\n[servers.one]\ncommand = {command}\nmin_containers = 1\n'
        )
        self.boot()

    def unit(self) -> str:
        """As it is shipped, with the programs where they are here and a user that there is."""
        text = UNIT.read_text()
        for program in ("twistd", "sticky"):
            text = text.replace(f"/opt/sticky/bin/{program} ", f"{Path(sys.executable).with_name(program)} ")
        return re.sub(r"(?m)^User=.*$", "User=nobody", text)

    def boot(self) -> None:
        groups = [GROUPS / "systemd"] if (GROUPS / "systemd").is_dir() else [GROUPS]
        groups = [group / f"sticky-test-{os.getpid()}" for group in groups]
        for group in groups:
            try:
                group.mkdir()
            except OSError as error:
                self.skipTest(f"{group}: {error.strerror}")
            self.addCleanup(self.remove_group, group)

        def enter() -> None:
            for group in groups:
                (group / "cgroup.procs").write_text(str(os.getpid()))

        reached = {
            str(one) for path in (sys.executable, Path(sys.executable).resolve(), ROOT) for one in Path(path).parents
        }
        env = {
            **os.environ,
            "WORK": str(self.folder / "work"),
            "FOLDER": str(self.folder),
            "SYSTEMD": str(SYSTEMD),
            "REACHED": " ".join(sorted(reached)),
        }
        unshare = ["unshare", *SPACES, "--fork", "--kill-child", "sh", "-c", BOOT]
        with (self.folder / "console").open("wb") as console:
            self.outer = subprocess.Popen(
                unshare, env=env, stdin=subprocess.DEVNULL, stdout=console, stderr=console, preexec_fn=enter
            )
        self.addCleanup(self.end)
        until("systemd runs, or has said why not", lambda: self.outer.poll() is not None or self.systemd_there())
        if self.outer.poll() is not None:
            self.skipTest(f"no systemd can be had here: {(self.folder / 'console').read_text()[-300:]}")
        until("the unit is up", lambda: self.show("ActiveState") == "active")

    def systemd_there(self) -> bool:
        children = Path(f"/proc/{self.outer.pid}/task/{self.outer.pid}/children").read_text().split()
        if not children:
            return False
        self.pid = int(children[0])
        self.root = Path(f"/proc/{self.pid}/root")
        return (self.root / "run" / "systemd" / "private").exists()

    def end(self) -> None:
        self.outer.kill()  # and with it the first process of the namespace, and with that all of them
        self.outer.wait()

    def remove_group(self, group: Path) -> None:
        def removed() -> bool:
            try:
                for folder in sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True):
                    folder.rmdir()
                group.rmdir()
            except OSError:  # the last of those who were killed have not gone yet
                return False
            return True

        until("the control group is empty", removed)

    def systemctl(self, *arguments: str) -> str:
        inside = ["nsenter", "-t", str(self.pid), "-m", "-p", "-C", f"--root={self.root}", "--wd=/"]
        done = subprocess.run(
            [*inside, "systemctl", *arguments], capture_output=True, text=True, timeout=170, check=False
        )
        self.assertEqual(done.returncode, 0, f"{arguments}: {done.stdout}{done.stderr}")
        return done.stdout

    def show(self, what: str) -> str:
        return self.systemctl("show", "--value", "-p", what, "sticky").strip()

    def start(self) -> str:
        bearer = (self.root / "var/lib/sticky/proxy-token").read_text().strip()
        answer = requests.post(
            f"{self.url}/_modal/sessions/start", headers={"Authorization": f"Bearer {bearer}"}, timeout=90
        )
        self.assertEqual(answer.status_code, 200, answer.text)
        return str(answer.json()["token"])

    def ask(self, token: str) -> str | None:
        """The container that answers; None: nobody is there."""
        try:
            answer = requests.get(self.url, headers={"Modal-Authorization": f"Bearer {token}"}, timeout=60)
        except requests.ConnectionError:
            return None
        return answer.text if answer.status_code == 200 else None

    def answered(self, token: str) -> str:
        found = until("it answers", lambda: self.ask(token), within=120)
        assert found is not None
        return found

    def killed(self, times: int) -> None:
        """The main process, for the so manieth time: systemd sees it and starts another one."""
        self.systemctl("kill", "-s", "KILL", "--kill-who=main", "sticky")
        until("systemd has started it again", lambda: self.show("NRestarts") == str(times), within=120)
        until("it is up", lambda: self.show("SubState") == "running", within=120)

    def test_crashes_and_upgrades_end_no_session_and_a_stop_is_tidy(self) -> None:
        token = self.start()
        container = self.answered(token)
        for times in range(1, 8):  # however often in a row: systemd does not give up
            self.killed(times)
            self.assertEqual(self.answered(token), container)
        before = self.show("MainPID")
        fields = {"Modal-Authorization": f"Bearer {token}"}
        with connect(self.url.replace("http", "ws") + "/ws", additional_headers=fields) as opened:
            self.assertEqual(opened.recv(timeout=60), container)
            self.systemctl("reload", "sticky")
            self.assertNotEqual(self.show("MainPID"), before)
            opened.send("served by the earlier daemon")
            self.assertEqual(opened.recv(timeout=60), "served by the earlier daemon")
            # The new one dies while that is there: systemd sees it, though it did not start that one itself.
            self.killed(8)
        self.assertEqual(self.answered(token), container)
        self.systemctl("stop", "sticky")
        self.assertEqual((self.show("ActiveState"), self.show("Result")), ("inactive", "success"))
        self.assertIsNone(self.ask(token))
        self.assertEqual(self.containers(), [])

    def containers(self) -> list[int]:
        """Processes of containers in that namespace."""
        space = os.readlink(f"/proc/{self.pid}/ns/pid")
        return marked(lambda process: os.readlink(process / "ns" / "pid") == space)
