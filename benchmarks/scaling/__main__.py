"""`python -m benchmarks.scaling`: runs the simulations and prints the tables, or puts them into a page. Knows no rule."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from benchmarks.scaling.report import SETTINGS, Row, Setting, describe, judge, summarize, verdict
from benchmarks.scaling.traces import day, random_seeds, random_traffic, workloads

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
ON_RANDOM = ("default (spread)", "pack", "target 0.7 (spread)", "target 0.7, pack", "target 0.7, pack, buffer 1")


def run(job: tuple[str, int, Setting]) -> Row:
    """One simulation; the process that runs it makes the traffic anew from its name or seed."""
    name, seed, setting = job
    return judge(setting, day(name) if name else random_traffic(seed))


def main(arguments: Sequence[str]) -> int:
    """The command. Progress goes to stderr, figures to stdout or the page."""
    names = list(workloads())
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    parser.add_argument("traces", nargs="*", default=[*names, "random"], help=f"of {', '.join(names)}, random")
    parser.add_argument("--jobs", type=int, default=2, help="simulations at once (2)")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the figures between the marks in this page")
    options = parser.parse_args(arguments)
    if unknown := set(options.traces) - {*names, "random"}:
        parser.error(f"no such trace: {', '.join(sorted(unknown))}")

    jobs = [(name, 0, setting) for name in options.traces if name != "random" for setting in SETTINGS]
    if "random" in options.traces:
        few = [setting for setting in SETTINGS if setting.label in ON_RANDOM]
        jobs += [("", seed, setting) for setting in few for seed in random_seeds()]
    rows: dict[str, list[Row]] = {}
    began = time.monotonic()
    with ProcessPoolExecutor(options.jobs) as pool:
        for done, ((name, _, _), row) in enumerate(zip(jobs, pool.map(run, jobs), strict=True), 1):
            rows.setdefault(name, []).append(row)
            took = time.monotonic() - began
            print(f"\r{done} of {len(jobs)} simulations, {took:.0f} s ", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)

    lines = list(verdict(row for name, mine in rows.items() if name for row in mine))
    for name, mine in rows.items():
        lines += describe(mine) if name else summarize(mine)
    text = "\n".join(lines).strip()
    if options.write is None:
        print(text)
    else:
        before, _, rest = options.write.read_text().partition(BEGIN)
        _, mark, after = rest.partition(END)
        if not mark:
            parser.error(f"{options.write} has no marks {BEGIN} and {END}")
        options.write.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
