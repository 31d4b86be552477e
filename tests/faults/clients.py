"""Clients as they should be: each tries again what may be tried again, and tells the model what it was answered."""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import Callable, Coroutine
from typing import Any

import aiohttp
import attrs

from tests.faults.model import Model, Stay

TRIES_FOR = 90.0  #: seconds that a client goes on with one thing
PAUSE = 0.2  #: seconds between two tries
_NETWORK = (aiohttp.ClientError, asyncio.TimeoutError, OSError)
_CUT = (*_NETWORK, aiohttp.WSMessageTypeError)  #: also a Close where a message was expected


class GaveUp(Exception):
    """Nobody served for longer than a client waits."""


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
    retries: int = 0

    async def _until(self, what: str, once: Callable[[], Any]) -> tuple[int, dict[str, object]]:
        """Ask until there is an answer that is no 5xx."""
        deadline = time.monotonic() + TRIES_FOR
        while True:
            try:
                async with once() as answer:
                    if answer.status < 500:
                        return answer.status, await answer.json()
            except _NETWORK:
                pass
            self.retries += 1
            if time.monotonic() > deadline:
                raise GaveUp(what)
            await asyncio.sleep(PAUSE)

    def _control(self, call: str, **fields: str) -> Any:
        headers = {"Authorization": f"Bearer {self.bearer}", **fields}
        return self.http.post(f"{self.url}/_modal/sessions/{call}", headers=headers)

    async def start(self) -> Stay:
        """A session, found again by its key where the answer was lost."""
        key = secrets.token_hex(16)
        status, body = await self._until("start", lambda: self._control("start", **{"x-idempotency-key": key}))
        if status != 200:
            raise AssertionError(f"a start was answered with {status} {body}")
        return self.model.started(str(body["session_id"]), str(body["token"]), bool(body["created"]))

    async def ask(self, stay: Stay) -> None:
        """One request."""
        before_end = not (stay.terminated or stay.over)
        headers = {"Modal-Authorization": f"Bearer {stay.token}"}
        status, body = await self._until("get", lambda: self.http.get(self.url, headers=headers))
        if status == 200:
            count = int(str(body["count"]))
            self.model.answered(stay, str(body["session"]), str(body["container"]), count, before_end)
        else:
            self.model.refused(stay, status, str(body.get("error")))

    async def terminate(self, stay: Stay) -> None:
        """End it, and see that it has ended."""
        stay.terminating = True
        fields = {"x-modal-server-session-token": stay.token}
        status, _ = await self._until("terminate", lambda: self._control("terminate", **fields))
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
                except _CUT:
                    pass
                if not self.stopped.is_set():
                    await asyncio.sleep(PAUSE)
                    await self.ask(stay)

    async def _count(self, stay: Stay) -> None:
        headers = {"Modal-Authorization": f"Bearer {stay.token}"}
        async with self.http.ws_connect(f"{self.url}/ws", headers=headers) as opened:
            while not self.stopped.is_set():
                await opened.send_str("1")
                body = await opened.receive_json(timeout=20)
                self.model.answered(stay, body["session"], body["container"], body["count"], True)
                await asyncio.sleep(0.1)

    def begin(self, what: Coroutine[Any, Any, None]) -> None:
        """Run one of these."""
        task: asyncio.Task[None] = asyncio.ensure_future(what)
        self.busy.add(task)
        task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        self.busy.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.model.broken.append(f"a client failed: {task.exception()!r}")

    async def arrivals(self, rate: float) -> None:
        """So many visits a second, whatever is going on."""
        next_at = time.monotonic()
        while not self.stopped.is_set():
            self.begin(self.visit())
            next_at += 1 / rate
            await asyncio.sleep(max(0.0, next_at - time.monotonic()))
