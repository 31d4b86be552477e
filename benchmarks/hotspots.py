"""Where the daemon's time goes under small GETs, by function, in microseconds a request. Needs py-spy (`pip install py-spy`).

Run as `python -m benchmarks.hotspots [--seconds S] [--load get|connect|tls]`. A sampling profiler: what it shows as one line
of `send` or `recv` is mostly the kernel's work. Functions that are inlined by C code (regular expressions, `bytes.find`)
count as their caller's.
"""

from __future__ import annotations

import argparse
import collections
import re
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.proxies import Proxies
from benchmarks.rig import HERE, LOAD_CORE, Broken, Proxy, Rig, Unavailable, counting, pinned, wrk

CONNECTIONS = 64
SAMPLES_PER_SECOND = 400
SHOWN = 45


def load(proxy: Proxy, kind: str, seconds: float) -> dict[str, float]:
    """The load under which it is looked at."""
    return wrk(proxy, CONNECTIONS, seconds, fields=proxy.fields, close=kind == "connect", tls=kind == "tls")


def sampler() -> str:
    """The path of py-spy. Raises Unavailable."""
    beside = Path(sys.executable).parent / "py-spy"
    found = str(beside) if beside.exists() else shutil.which("py-spy")
    if found is None:
        raise Unavailable("py-spy is not installed")
    return found


def sampled(proxy: Proxy, kind: str, seconds: int, folder: Path) -> list[tuple[list[str], int]]:
    """Stacks of the main thread, outermost call first, and how often each was seen."""
    raw = folder / "stacks"
    command = [sampler(), "record", "-p", str(proxy.process.pid), "-d", str(seconds), "-r", str(SAMPLES_PER_SECOND)]
    spy = subprocess.Popen(
        pinned(LOAD_CORE, *command, "-f", "raw", "-o", raw),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        load(proxy, kind, seconds + 2)
        _, said = spy.communicate(timeout=30)
    finally:
        if spy.poll() is None:
            spy.kill()
            spy.wait()
    if spy.returncode:
        raise Broken(said[-300:])
    stacks = []
    for line in raw.read_text().splitlines():
        stack, _, count = line.rpartition(" ")
        frames = [_short(frame) for frame in stack.split(";")]
        if any("mainLoop" in frame for frame in frames):  # the other threads wait
            stacks.append((frames, int(count)))
    return stacks


def _short(frame: str) -> str:
    frame = re.sub(r":\d+\)$", ")", frame)
    return re.sub(r"\((?:.*/site-packages/|" + re.escape(str(HERE.parent)) + r"/|.*/lib/python[\d.]+/)", "(", frame)


def main() -> int:
    """Print two tables: time in a function itself, and with all that it calls."""
    parser = argparse.ArgumentParser(description="Where the daemon's time goes under small GETs.")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--load", choices=("get", "connect", "tls"), default="get")
    asked = parser.parse_args()
    try:
        with Rig() as rig:
            proxy = Proxies(rig).get("sticky")
            load(proxy, asked.load, 1)
            with counting(proxy) as spent:
                report = load(proxy, asked.load, 3)
            stacks = sampled(proxy, asked.load, asked.seconds, rig.folder("stacks"))
    except (Unavailable, Broken) as error:
        sys.stderr.write(f"benchmarks: {error}\n")
        return 1
    cost = spent["ns"] / 1e3 / report["count"]  # measured without the sampler
    alone: collections.Counter[str] = collections.Counter()
    below: collections.Counter[str] = collections.Counter()
    for frames, count in stacks:
        alone[frames[-1]] += count
        for frame in set(frames):
            below[frame] += count
    total = sum(alone.values()) or 1
    print(f"{cost:.1f} µs of CPU a request; {total} samples\n")
    for title, counter in (("in the function itself", alone), ("with what it calls", below)):
        print(f"| µs/request {title} | function |\n| --- | --- |")
        for frame, count in counter.most_common(SHOWN):
            print(f"| {count / total * cost:.2f} | {frame} |")
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
