"""What stands where a daemon of one process has its edge: open sockets, workers that accept from them, and their way in."""

from __future__ import annotations

from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred

from sticky.workers.pool import Workers
from sticky.workers.proxies import Proxies


class WorkerFront(Service):
    """See the module. `listeners` holds the sockets; nobody is accepted before the start."""

    def __init__(self, listeners: Service, proxies: Proxies, workers: Workers) -> None:
        self._listeners = listeners
        self._proxies = proxies
        self._workers = workers

    def privilegedStartService(self) -> None:
        """Bind, before privileges are dropped."""
        super().privilegedStartService()  # type: ignore[no-untyped-call]
        self._listeners.privilegedStartService()

    def startService(self) -> None:
        """Run workers."""
        super().startService()  # type: ignore[no-untyped-call]
        if not self._proxies.socket:
            self._proxies.open()
        try:
            self._listeners.startService()
        finally:  # where there are workers, those who connect are not to wait for ever
            self._workers.startService()
            self._proxies.let_in()

    def stopService(self) -> Deferred[None]:
        """End the workers, then close the sockets."""
        super().stopService()  # type: ignore[no-untyped-call]
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        await self._workers.stopService()
        await self._proxies.close()
        closing: Any = self._listeners.stopService()
        await closing
