"""Clients as they should be: each tries again what may be tried again, and tells the model what it was answered."""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import aiohttp
import attrs

from tests.faults.model import Model, Stay

TRIES_FOR = 180.0  #: seconds that a client goes on with one thing
WAITS_FOR = 30.0  #: seconds for one answer; a start may wait in the queue for 60
PAUSE, LONGEST_PAUSE = 0.2, 2.0  #: seconds between two tries: doubles from the first to the second, as good clients do
HASTE = 0.05  #: seconds between two tries of the one who measures
#: Clients at once: twice as many as 50 starts a second need, a quarter of the sessions that there is room for.
MOST = 150
CATCHES_UP = 1.0  #: seconds of arrivals that are made up for when this process was late
_NETWORK = (aiohttp.ClientError, asyncio.TimeoutError, OSError)
_CUT = (*_NETWORK, aiohttp.WSMessageTypeError)  #: also a Close where a message was expected


class GaveUp(Exception):
    """Nobody served for longer than a client waits. The text says what was wanted, and what the last try met."""


@attrs.define(eq=False)
class Clients:
    """All clients of one run."""

    url: str
    bearer: str = attrs.field(repr=False)
    model: Model
    chance: random.Random
    http: aiohttp.ClientSession
    stopped: asyncio.Event = attrs.field(factory=asyncio.Event)
    busy: set[asyncio.Task[None]] = attrs.field(factory=set)
    counts_every: float = 0.1  #: seconds between two messages of a counter
    retries: int = 0
    answered_at: deque[float] = attrs.field(factory=partial(deque, maxlen=10_000))  #: when starts were
    held_back: int = 0  #: visits that did not take place because too many were under way

    async def _until(self, what: str, once: Callable[[], Any], hasty: bool = False) -> tuple[int, dict[str, object]]:
        """Ask until there is an answer that is no 5xx."""
        deadline = time.monotonic() + TRIES_FOR
        pause = HASTE if hasty else PAUSE
        while True:
            try:
                async with once() as answer:
                    if answer.status < 500:
                        return answer.status, await answer.json()
                    setback = f"{answer.status} {await _code(answer)}"
            except _NETWORK as error:
                hung = isinstance(error, asyncio.TimeoutError) and not isinstance(error, aiohttp.ServerTimeoutError)
                setback = f"{what} hung" if hung else type(error).__name__
            self.retries += 1
            self.model.setbacks[setback] += 1
            if time.monotonic() > deadline:
                raise GaveUp(f"{what}: {setback}")
            await asyncio.sleep(pause if hasty else pause * self.chance.uniform(0.5, 1.0))
            pause = pause if hasty else min(pause * 2, LONGEST_PAUSE)

    def _control(self, call: str, name: str, value: str, waits_for: float = WAITS_FOR) -> Any:
        headers = {"Authorization": f"Bearer {self.bearer}", name: value}
        timeout = aiohttp.ClientTimeout(total=waits_for, sock_connect=5)
        return self.http.post(f"{self.url}/_modal/sessions/{call}", headers=headers, timeout=timeout)

    async def start(self, hasty: bool = False) -> Stay:
        """A session, found again by its key where the answer was lost."""
        key = secrets.token_hex(16)
        starting = partial(self._control, "start", "x-idempotency-key", key, 75.0)
        status, body = await self._until("start", starting, hasty)
        if status != 200:
            raise AssertionError(f"a start was answered with {status} {body}")
        self.answered_at.append(time.monotonic())
        return self.model.started(str(body["session_id"]), str(body["token"]), bool(body["created"]))

    def answered_lately(self, seconds: float) -> float:
        """Starts a second that were answered in the last so many."""
        since = time.monotonic() - seconds
        return sum(at > since for at in self.answered_at) / seconds

    async def ask(self, stay: Stay, hasty: bool = False) -> None:
        """One request."""
        before_end = not (stay.terminated or stay.over)
        headers = {"Modal-Authorization": f"Bearer {stay.token}"}
        timeout = aiohttp.ClientTimeout(total=WAITS_FOR, sock_connect=5)
        status, body = await self._until(
            "get", lambda: self.http.get(self.url, headers=headers, timeout=timeout), hasty
        )
        if status == 200:
            count = int(str(body["count"]))
            self.model.answered(stay, str(body["session"]), str(body["container"]), count, before_end)
        else:
            self.model.refused(stay, status, str(body.get("error")))

    async def terminate(self, stay: Stay) -> None:
        """End it, and see that it has ended."""
        stay.terminating = True
        ending = partial(self._control, "terminate", "x-modal-server-session-token", stay.token)
        status, _ = await self._until("terminate", ending)
        self.model.terminate_answered(stay, status)
        await self.ask(stay)

    async def visit(self) -> None:
        """A short stay: start, a few requests, terminate."""
        stay = await self.start()
        for _ in range(self.chance.randint(1, 3)):
            await self.ask(stay)
            if stay.over:
                return
            await asyncio.sleep(self.chance.uniform(0.1, 1.0))
        await self.terminate(stay)

    async def counter(self) -> None:
        """A long stay with a WebSocket that counts, and comes back whenever it is cut. A new one when its container is lost."""
        while not self.stopped.is_set():
            stay = await self.start()
            while stay.over is None and not self.stopped.is_set():
                try:
                    await self._count(stay)
                except _CUT as error:
                    if isinstance(error, asyncio.TimeoutError):
                        self.model.setbacks["a WebSocket hung"] += 1
                if not self.stopped.is_set():
                    await asyncio.sleep(PAUSE)
                    await self.ask(stay)

    async def _count(self, stay: Stay) -> None:
        headers = {"Modal-Authorization": f"Bearer {stay.token}"}
        async with self.http.ws_connect(f"{self.url}/ws", headers=headers) as opened:
            while not self.stopped.is_set():
                await opened.send_str("1")
                body = await opened.receive_json(timeout=WAITS_FOR)
                self.model.answered(stay, body["session"], body["container"], body["count"], True)
                await asyncio.sleep(self.counts_every)

    def begin(self, what: Coroutine[Any, Any, None]) -> None:
        """Run one of these."""
        task: asyncio.Task[None] = asyncio.ensure_future(what)
        self.busy.add(task)
        task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        self.busy.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, GaveUp):
            self.model.gave_up[str(error)] += 1  # nobody promised how long: its session is asked for again at the end
        elif error is not None:
            self.model.broken.append(f"a client failed: {error!r}")

    async def arrivals(self, rate: float) -> None:
        """So many visits a second, whatever is going on, but not more than `MOST` at once.

        Without that bound a machine that is too slow for the rate gets slower with every second, until someone gives up: not
        for a fault, but because thousands wait for the places of hundreds.
        """
        next_at = time.monotonic()
        while not self.stopped.is_set():
            if len(self.busy) < MOST:
                self.begin(self.visit())
            else:
                self.held_back += 1
            next_at = max(next_at + 1 / rate, time.monotonic() - CATCHES_UP)
            await asyncio.sleep(max(0.0, next_at - time.monotonic()))

    async def finish(self, arriving: asyncio.Task[None]) -> None:
        """Nobody new comes; whoever is under way comes to the end."""
        self.stopped.set()
        await arriving
        while self.busy:
            await asyncio.wait(self.busy)

    async def all_findable(self) -> None:
        """Each session that was promised and not ended answers, and none that has ended."""
        for stay in list(self.model.stays.values()):
            if stay.over is None:
                await self.ask(stay)


async def _code(answer: aiohttp.ClientResponse) -> str:
    """What a refusal calls itself."""
    try:
        return str((await answer.json())["error"])
    except (ValueError, KeyError, aiohttp.ContentTypeError):
        return "without a code"
