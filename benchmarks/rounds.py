"""The method: every variant once a round, ratios inside the round, medians and ranges over the rounds; tables. Starts nothing itself.

The machine may be busy with other things, and busier in one minute than in the next: what is compared is measured close
together, and the order changes from round to round.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs

from benchmarks.proxies import Proxies
from benchmarks.rig import BUILD, Broken, Proxy, Rig, Unavailable, versions

EXTRA = frozenset({"sticky-messages", "sticky-before"})  #: variants that run only when they are asked for

Figures = dict[str, float]
Measure = Callable[[Proxies, str, float], Figures]  #: (proxies, variant, seconds)


@attrs.frozen
class Column:
    """One figure of a case."""

    key: str  #: in Figures
    title: str
    form: str = "{:.1f}"
    ratio: str | None = None  #: title of a column with the ratio to the first peer, or None
    less_is_better: bool = True  #: then the ratio is peer / variant: above 1 is better than the peer


@attrs.frozen
class Case:
    """One kind of load."""

    name: str
    title: str
    measure: Measure
    variants: tuple[str, ...]
    columns: tuple[Column, ...]
    rounds: int | None = None  #: at most so many
    reference: str = "nginx"


@attrs.define
class Outcome:
    """What a case gave: by variant a list with an entry per round; None: that one could not be measured."""

    case: Case
    figures: dict[str, list[Figures | None]]
    faults: dict[str, str]

    def values(self, variant: str, key: str) -> list[float]:
        """The variant's figure in each round that has it."""
        return [f[key] for f in self.figures[variant] if f is not None and key in f]

    def ratios(self, variant: str, reference: str, column: Column) -> list[float]:
        """The ratio in each round that has both."""
        found = []
        for ours, theirs in zip(self.figures[variant], self.figures.get(reference, []), strict=False):
            if ours and theirs and ours.get(column.key) and theirs.get(column.key):
                ratio = theirs[column.key] / ours[column.key]
                found.append(ratio if column.less_is_better else 1 / ratio)
        return found


def spread(values: Sequence[float], form: str = "{:.2f}") -> str:
    """Median and range."""
    if not values:
        return "-"
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{form.format(middle)} ({form.format(low)}-{form.format(high)})"


def run_case(case: Case, proxies: Proxies, rounds: int, seconds: float) -> Outcome:
    """All rounds of a case. A variant that fails is left out of the rounds that follow, and the report says why."""
    outcome = Outcome(case, {name: [] for name in case.variants}, {})
    for nth in range(min(rounds, case.rounds or rounds)):
        turn = nth % len(case.variants)
        for name in case.variants[turn:] + case.variants[:turn]:
            figures: Figures | None = None
            if name not in outcome.faults:
                try:
                    figures = case.measure(proxies, name, seconds)
                except (Unavailable, Broken, OSError) as error:
                    outcome.faults[name] = str(error).strip()
            outcome.figures[name].append(figures)
        sys.stderr.write(f"{case.name}: round {nth + 1} done\n")
    return outcome


def table(outcome: Outcome) -> str:
    """The case as a markdown table, and below it what could not be measured."""
    case = outcome.case
    columns = [c for c in case.columns if any(outcome.values(name, c.key) for name in case.variants)]
    titles = ["variant"]
    for column in columns:
        titles += [column.title] + ([column.ratio] if column.ratio else [])
    lines = [f"### {case.title}", "", "| " + " | ".join(titles) + " |", "| " + " | ".join("---" for _ in titles) + " |"]
    for name in case.variants:
        if name in outcome.faults:
            continue
        cells = [name]
        for column in columns:
            values = outcome.values(name, column.key)
            cells.append(column.form.format(statistics.median(values)) if values else "-")
            if column.ratio:
                cells.append("1" if name == case.reference else spread(outcome.ratios(name, case.reference, column)))
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", *(f"{name}: not measured: {why}" for name, why in outcome.faults.items())]
    return "\n".join(lines).rstrip() + "\n"


def against(outcomes: Sequence[Outcome], variant: str) -> str:
    """One variant against each peer: the first column of every case, peer / variant inside the round."""
    peers = ["nginx", "nginx-log", "haproxy", "chp"]
    lines = [
        f"### {variant} against its peers (above 1: better than the peer)",
        "",
        "| case | figure | " + " | ".join(peers) + " |",
        "| --- | --- | " + " | ".join("---" for _ in peers) + " |",
    ]
    for outcome in outcomes:
        if variant in outcome.figures:
            column = outcome.case.columns[0]
            cells = [spread(outcome.ratios(variant, peer, column)) for peer in peers]
            lines.append(f"| {outcome.case.name} | {column.title} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def settled(proxy: Proxy) -> int:
    """Resident bytes, when they have stopped to grow: for two seconds, because on a busy machine growth comes in steps."""
    deadline = time.monotonic() + 30
    last, since = proxy.resident(), time.monotonic()
    while time.monotonic() < min(since + 2, deadline):
        time.sleep(0.2)
        now = proxy.resident()
        if abs(now - last) > 200_000:
            last, since = now, time.monotonic()
    return last


def options(about: str, cases: Sequence[str]) -> argparse.ArgumentParser:
    """The command line that all benchmarks of the wire share."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--rounds", type=int, default=5, help="rounds per case; medians want 5 or more (default 5)")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of one measurement (default 2)")
    parser.add_argument(
        "--quick", action="store_true", help="2 rounds of 1 second: shows that all works, no figures to quote"
    )
    parser.add_argument("--cases", nargs="+", metavar="CASE", help=f"only these: {' '.join(cases)}")
    parser.add_argument("--variants", nargs="+", metavar="VARIANT", help="only these of each case")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="where all figures go (default: benchmarks/.build/results/)"
    )
    return parser


def main(name: str, about: str, cases: Sequence[Case]) -> int:
    """Run the cases that the command line asks for; the tables go to stdout, all figures to a JSON file."""
    parser = options(about, [case.name for case in cases])
    asked = parser.parse_args()
    unknown = set(asked.cases or ()) - {case.name for case in cases}
    if unknown:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    rounds, seconds = (2, 1.0) if asked.quick else (asked.rounds, asked.seconds)
    outcomes = []
    try:
        with Rig() as rig:
            proxies = Proxies(rig)
            for case in cases:
                if asked.cases and case.name not in asked.cases:
                    continue
                if asked.variants:
                    # One that belongs to no case by default is added to all.
                    kept = tuple(v for v in asked.variants if v in case.variants or v in EXTRA)
                    case = attrs.evolve(case, variants=kept or case.variants)
                outcome = run_case(case, proxies, rounds, seconds)
                outcomes.append(outcome)
                print(table(outcome), flush=True)
    except Unavailable as error:
        sys.stderr.write(f"benchmarks: {error}\n")
        return 1
    print(against(outcomes, "sticky"))
    write(name, asked.json, {o.case.name: {"figures": o.figures, "faults": o.faults} for o in outcomes})
    return 1 if any(outcome.faults for outcome in outcomes) else 0


def write(name: str, path: Path | None, results: dict[str, Any]) -> None:
    """Keep all figures, with what they were measured on."""
    if path is None:
        folder = BUILD / "results"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}.json"
    path.write_text(json.dumps({"versions": versions(), "results": results}, indent=1))
    sys.stderr.write(f"all figures are in {path}\n")
