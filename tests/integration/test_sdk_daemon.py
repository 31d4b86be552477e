"""The SDK against a real daemon, in its three forms: found by its admin socket, sessions, scaling, and errors."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import requests
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

import sticky
from sticky import exception
from sticky.sdk.twisted import TwistedServer
from tests.integration.daemon_case import ECHO, DaemonCase, server
from tests.integration.running_daemon import ROOT

TOKENS = """
[[proxy_tokens]]
id = "wk-alice"
secret_hash = "blake2b:3b6e2fb9ad2a9b25d2d3ab5a2ce6ff4f2a3f2ef2a0fb2ea9d8a2ecf6f0a3ac11"
owner = "alice"

"""
BLOCKING = """
import sys, sticky
server = sticky.Server.from_name("echo", "echo")
session = server.sessions.start(idle_timeout=60)
assert server.sessions.status(session.token).state == "active"
server.sessions.terminate(session.token)
loaded = sorted(name for name in sys.modules if name.partition(".")[0] in ("twisted", "asyncio"))
print(server.get_url(), loaded)
"""
ASYNCIO = """
import asyncio, sys, sticky
async def main():
    server = sticky.Server.from_name("echo", "echo")
    session = await server.sessions.start.aio(idle_timeout=60)
    assert (await server.sessions.status.aio(session.token)).state == "active"
    await server.sessions.terminate.aio(session.token)
    print(await server.get_url.aio(), sorted(name for name in sys.modules if name.partition(".")[0] == "twisted"))
asyncio.run(main())
"""


class SdkCase(TestCase):
    timeout = 180

    def serve(self, config: str) -> DaemonCase:
        case = DaemonCase()
        self.addCleanup(case.doCleanups)
        case.serve(config)
        self.environ("STICKY_STATE_DIR", str(case.folder / "state"))
        for name in ("STICKY_URL", "STICKY_PROXY_TOKEN", "STICKY_CONTAINER_ID", "STICKY_SERVER"):
            self.environ(name, None)
        return case

    def environ(self, name: str, value: str | None) -> None:
        before = os.environ.pop(name, None)
        self.addCleanup(lambda: os.environ.pop(name, None) if before is None else os.environ.update({name: before}))
        if value is not None:
            os.environ[name] = value


class FormTests(SdkCase):
    """One body, three ways. Each of `form`'s calls is awaited where it runs."""

    async def body(self, make: Callable[[str, str], Any], make_call: Callable[[Any], Callable[..., Any]]) -> None:
        game = make("echo", "echo")
        sessions, scaler = game.sessions, game.autoscaler
        url = await make_call(game.get_url)()
        credentials = await make_call(sessions.start)(idle_timeout=77)
        self.assertTrue(credentials.created)
        status = await make_call(sessions.status)(credentials.token)
        self.assertEqual(("active", 77), (status.state, status.idle_timeout))
        self.assertEqual(credentials.session_id, (await make_call(sessions.extend)(credentials.token)).session_id)
        self.assertIn(credentials.session_id, [one.session_id for one in await make_call(sessions.list)()])
        headers = {"Modal-Authorization": f"Bearer {credentials.token}"}
        self.assertEqual(200, requests.get(f"{url}/", headers=headers, timeout=30).status_code)
        for _ in range(2):
            await make_call(sessions.terminate)(credentials.token)
        with self.assertRaises(exception.SessionEndedError) as ended:
            await make_call(sessions.status)(credentials.token)
        self.assertEqual("terminated", ended.exception.reason)
        self.assertNotIn(credentials.token, str(ended.exception))
        await self.named(sessions, make_call)
        settings = await make_call(scaler.update)(max_containers=5)
        self.assertEqual((5, ("max_containers",)), (settings.max_containers, settings.updated))
        self.assertEqual(5, (await make_call(scaler.settings)()).max_containers)
        with self.assertRaisesRegex(exception.InvalidError, "min_containers = 6 is above max_containers, which is 5"):
            await make_call(scaler.update)(min_containers=6)
        for app, name, said in (("echo", "ehco", "there are: echo"), ("other", "echo", "not 'other'")):
            with self.assertRaisesRegex(exception.NotFoundError, said):
                await make_call(make(app, name).sessions.start)()

    async def named(self, sessions: Any, make_call: Callable[[Any], Callable[..., Any]]) -> None:
        name = "Raum 7 / Grün \N{SNOWMAN}"
        first = await make_call(sessions.start)(name=name)
        again = await make_call(sessions.start)(name=name)
        self.assertEqual((True, False, first.session_id), (first.created, again.created, again.session_id))
        self.assertEqual(name, (await make_call(sessions.status)(first.token)).name)
        await make_call(sessions.terminate)(first.token)
        with self.assertRaises(exception.SessionEndedError) as over:
            await make_call(sessions.start)(name=name)
        self.assertEqual("terminated", over.exception.reason)
        await make_call(sessions.release)(name)
        third = await make_call(sessions.start)(name=name)
        self.assertTrue(third.created)
        for _ in range(2):
            await make_call(sessions.release)(name)

    async def test_all_three(self) -> None:
        from twisted.internet import reactor

        case = await deferToThread(self.serve, server("echo", ECHO))

        def blocking(call: Any) -> Callable[..., Any]:
            async def made(*args: Any, **kwargs: Any) -> Any:
                return call(*args, **kwargs)

            return made

        def run_blocking() -> None:
            body = self.body(sticky.Server.from_name, blocking)
            self.assertRaises(StopIteration, body.send, None)

        await deferToThread(run_blocking)
        await deferToThread(lambda: asyncio.run(self.body(sticky.Server.from_name, lambda call: call.aio)))
        await self.body(lambda app, name: TwistedServer.from_name(app, name, reactor), lambda call: call)
        self.assertTrue(await deferToThread(case.daemon.alive))


class FoundTests(SdkCase):
    def run_program(self, program: str, folder: Path) -> str:
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        return done.stdout.strip()

    def test_blocking_programs_load_no_loop_and_asyncio_ones_no_twisted(self) -> None:
        case = self.serve(server("echo", ECHO))
        self.environ("STICKY_STATE_DIR", None)  # ./state
        for program in (BLOCKING, ASYNCIO):
            self.assertEqual(f"{case.url} []", self.run_program(program, case.folder))

    def test_configured_tokens_do_not_lock_the_owner_out(self) -> None:
        config = TOKENS + server("echo", ECHO)
        case = DaemonCase()
        self.addCleanup(case.doCleanups)
        case.serve(config)
        self.assertFalse((case.folder / "state" / "proxy-token").exists())  # there is no development token
        self.environ("STICKY_STATE_DIR", str(case.folder / "state"))
        sessions = sticky.Server.from_name("echo", "echo").sessions
        credentials = sessions.start()
        self.assertEqual([credentials.session_id], [one.session_id for one in sessions.list()])
        self.assertEqual(0o600, (case.folder / "state" / "operator-token").stat().st_mode & 0o777)

    def test_a_deferred_that_is_cancelled_leaves_the_queue(self) -> None:
        case = self.serve(server("echo", ECHO, max_containers=1, max_concurrency=1))
        case.token()

        from twisted.internet import reactor
        from twisted.internet.defer import CancelledError
        from twisted.internet.task import deferLater

        async def waiting(expected: int) -> None:
            for _ in range(300):
                found = await deferToThread(self.waiting, case)
                if found == expected:
                    return
                await deferLater(reactor, 0.05)
            self.fail(f"never {expected} in the queue")

        async def body() -> None:
            started = TwistedServer.from_name("echo", "echo", reactor).sessions.start()
            await waiting(1)
            started.cancel()
            await self.assertFailure(started, CancelledError)
            await waiting(0)

        return Deferred.fromCoroutine(body())  # type: ignore[return-value]

    def waiting(self, case: DaemonCase) -> int:
        from sticky.cli.client import Admin

        return int(Admin(case.folder / "state").status()["servers"][0]["queue"]["waiting"])


class KeptTests(SdkCase):
    def test_scaling_survives_a_crash_and_ends_with_a_deploy(self) -> None:
        case = self.serve(server("echo", ECHO))
        scaler = sticky.Server.from_name("echo", "echo").autoscaler
        scaler.update(max_containers=3)
        case.daemon.kill()
        case.run_daemon()
        self.assertEqual((3, ("max_containers",)), (scaler.settings().max_containers, scaler.settings().updated))
        from sticky.cli.client import Admin

        report = Admin(case.folder / "state").call("POST", "/v1/deploy", body={})
        self.assertEqual(("live", ["max_containers"]), (report["servers"][0]["what"], report["servers"][0]["settings"]))
        self.assertEqual((8, ()), (scaler.settings().max_containers, scaler.settings().updated))
