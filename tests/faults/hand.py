"""The hand that does harm: faults of every kind at random times, and a supervisor's work, so that there is a daemon again.

What lasts a while (a full disk, no descriptors) goes on while other faults happen.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from collections.abc import Callable

from tests.faults import cutting
from tests.faults.clients import Clients
from tests.faults.ground import Ground, kill
from tests.faults.report import KINDS, Report
from tests.integration.running_daemon import ROOT

SAY_EVERY = 10  #: kills of the daemon, in a long run
LOOKS_EVERY = 0.1  #: seconds between two looks whether the daemon is there
STARTS_AGAIN_AFTER = 0.3  #: seconds, as a supervisor would
JUST_BEFORE = 2.0  #: seconds before a kill in which starts are counted
CLOCK_WITHIN = 3600  #: seconds that the clock is ahead or behind at most: less than any token lives


class Hand:
    """Does the harm. `held` names what lasts just now: meanwhile a daemon need not be able to start."""

    def __init__(self, ground: Ground, clients: Clients, report: Report, chance: random.Random) -> None:
        self._ground = ground
        self._clients = clients
        self._report = report
        self._chance = chance
        self._began = time.monotonic()
        self._held: dict[str, asyncio.Task[None]] = {}
        self._held_until = 0.0

    async def work(self) -> None:
        """Until the daemon has been killed as often as was planned, or once and time is up, and what lasts is over.

        Kinds are dealt like cards: in any order, and each in its turn.
        """
        plan = self._report.plan
        cards = [kind for kind in plan.kinds if kind not in self._ground.left_out for _ in range(KINDS[kind])]
        deck: list[str] = []
        faults = self._report.faults
        watching = asyncio.ensure_future(self._watch())
        try:
            while deck or faults["daemon"] < plan.daemon_kills:
                if faults["daemon"] and self._seconds() > plan.seconds:
                    break
                deck = deck or self._chance.sample(cards, len(cards))
                await asyncio.sleep(self._chance.uniform(*plan.between))
                if watching.done():
                    break  # it says why, below
                await getattr(self, f"_{deck.pop()}")()
            while self._held:
                await asyncio.wait(self._held.values())
            await self._served()
        finally:
            watching.cancel()
            try:
                await watching
            except asyncio.CancelledError:
                pass

    def _seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self._began

    # --- the supervisor

    async def _watch(self) -> None:
        """A daemon that ends by itself is started again; nobody should ever see that, but while something lasts."""
        while True:
            await asyncio.sleep(LOOKS_EVERY)
            status = self._ground.ended()
            if status is None:
                continue
            if self._lasting():
                self._report.faults["daemon refused to start"] += 1
            else:
                words = self._ground.last_words()
                self._clients.model.broken.append(f"a daemon ended by itself with status {status}: {words}")
            await asyncio.sleep(STARTS_AGAIN_AFTER)
            self._ground.start()

    def _lasting(self) -> bool:
        """Whether something lasts, or did a moment ago."""
        return bool(self._held) or time.monotonic() < self._held_until

    def _hold(self, kind: str, over: Callable[[], None]) -> None:
        """It lasts for a while from now on."""

        async def last(seconds: float) -> None:
            try:
                await asyncio.sleep(seconds)
            finally:
                over()
                # Whoever met it at its end may say so a little later.
                self._held_until = time.monotonic() + 5.0
                del self._held[kind]

        self._held[kind] = asyncio.ensure_future(last(self._chance.uniform(*self._report.plan.hold)))
        self._report.faults[kind] += 1

    # --- what is done

    async def _daemon(self) -> None:
        disturbed = self._lasting()
        self._report.at_kills.append(self._clients.answered_lately(JUST_BEFORE))
        self._ground.kill_daemon()
        at = time.monotonic()
        self._report.faults["daemon"] += 1
        self._ground.start()
        await self._served()
        if disturbed:
            self._report.faults["daemon meanwhile"] += 1  # its time says what lasted, not what a daemon needs
        else:
            self._report.down.append(time.monotonic() - at)
        if not self._report.faults["daemon"] % SAY_EVERY:
            self._report.seconds = self._seconds()
            sys.stderr.write("\n".join(self._report.lines()) + "\n")

    async def _served(self) -> None:
        stay = await self._clients.start(hasty=True)
        await self._clients.ask(stay, hasty=True)
        self._clients.begin(self._clients.terminate(stay))

    async def _worker(self) -> None:
        workers = self._ground.workers()
        if workers:
            kill(self._chance.choice(workers))
            self._report.faults["worker"] += 1

    async def _container(self) -> None:
        containers = self._ground.containers()
        if containers:
            pid = self._chance.choice(sorted(containers))
            self._clients.model.killed.add(containers[pid])
            kill(pid)
            self._report.faults["container"] += 1

    async def _restart(self) -> None:
        disturbed = self._lasting()
        command = [sys.executable, "-m", "sticky.cli", "restart", "--state-dir", str(self._ground.state)]
        process = await asyncio.create_subprocess_exec(
            *command, cwd=self._ground.folder, env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        said, _ = await process.communicate()
        if not process.returncode:
            self._report.faults["restart"] += 1
        elif disturbed or self._lasting():
            self._report.faults["restart refused"] += 1
        else:
            self._clients.model.broken.append(f"a restart failed: {said.decode().strip()[-300:]}")

    async def _cut(self) -> None:
        """A part of all connections, between clients and daemon or between daemon and containers."""
        clients, share = self._chance.random() < 0.5, self._chance.uniform(0.2, 1.0)
        for pid in [*self._ground.daemons(), *self._ground.workers()]:
            for own, _, connection in cutting.connections(pid):
                with connection:
                    if (own == self._ground.port) is clients and self._chance.random() < share:
                        cutting.cut(connection)
                        self._report.faults["connection"] += 1
        self._report.faults["cut"] += 1

    async def _disk(self) -> None:
        if "disk" not in self._held:
            self._ground.fill_disk()
            self._hold("disk", self._ground.empty_disk)

    async def _clock(self) -> None:
        self._ground.set_clock(self._chance.randint(-CLOCK_WITHIN, CLOCK_WITHIN))
        self._report.faults["clock"] += 1

    async def _descriptors(self) -> None:
        if "descriptors" not in self._held:
            self._ground.limit_descriptors(self._chance.uniform(0.5, 1.0))
            self._hold("descriptors", self._ground.free_descriptors)
