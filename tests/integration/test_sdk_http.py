"""One request of the SDK over real sockets, in each of its three forms: whole answers, and every way in which none comes."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import TestCase

from sticky.sdk import asynchronous, http
from sticky.sdk.steps import LONGEST_ANSWER, Ask, Failure, Reply
from sticky.sdk.twisted import perform as perform_twisted

OK = b"HTTP/1.1 200 OK\r\n"


class Peer:
    """Takes one connection: reads a head, lets `answer` write, closes. What it read is in `head`."""

    def __init__(self, answer: Callable[[socket.socket], object], path: Path | None = None) -> None:
        if path is None:
            self._listener = socket.create_server(("127.0.0.1", 0))
        else:
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(str(path))
            self._listener.listen()
        self._answer = answer
        self.url = "" if path is not None else f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.head = b""
        self.gone = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def join(self) -> None:
        self._thread.join(20)

    def _run(self) -> None:
        with self._listener, self._listener.accept()[0] as connection:
            connection.settimeout(20)
            while not self.head.partition(b"\r\n\r\n")[1]:
                self.head += connection.recv(4096)
            try:
                self._answer(connection)
            except OSError:
                pass
        self.gone.set()


class PerformTests(TestCase):
    timeout = 60

    def blocking(self, ask: Ask) -> Deferred[Reply | Failure]:
        from twisted.internet.threads import deferToThread

        return deferToThread(http.perform, ask)

    def on_asyncio(self, ask: Ask) -> Deferred[Reply | Failure]:
        from twisted.internet.threads import deferToThread

        return deferToThread(lambda: asyncio.run(asynchronous.perform(ask)))

    def on_twisted(self, ask: Ask) -> Deferred[Reply | Failure]:
        from twisted.internet import reactor

        return perform_twisted(reactor, ask)

    async def each(
        self, body: Callable[[Callable[[Ask], Deferred[Reply | Failure]]], Coroutine[Any, Any, None]]
    ) -> None:
        for form in (self.blocking, self.on_asyncio, self.on_twisted):
            await body(form)

    def peer(self, answer: Callable[[socket.socket], object], path: Path | None = None) -> Peer:
        peer = Peer(answer, path)
        self.addCleanup(peer.join)
        return peer

    def ask(self, url: str, timeout: float = 20, **more: Any) -> Ask:
        return Ask(method=more.pop("method", "POST"), url=url, timeout=timeout, **more)

    async def test_it_sends_what_it_is_given_and_nothing_of_the_environment(self) -> None:
        async def body(form: Callable[[Ask], Deferred[Reply | Failure]]) -> None:
            peer = self.peer(lambda connection: connection.sendall(OK + b'Content-Length: 11\r\n\r\n{"a": true}'))
            outcome = await form(self.ask(f"{peer.url}/a/b?c=d%20e", headers={"X-Key": "1"}))
            self.assertEqual(Reply(200, b'{"a": true}'), outcome)
            lines = peer.head.lower().split(b"\r\n")
            self.assertEqual(b"post /a/b?c=d%20e http/1.1", lines[0])
            for line in (b"x-key: 1", b"content-length: 0", f"host: {peer.url.removeprefix('http://')}".encode()):
                self.assertEqual(1, lines.count(line), (form, line, lines))

        self.patch_environ({"http_proxy": "http://127.0.0.1:1", "HTTP_PROXY": "http://127.0.0.1:1"})
        await self.each(body)

    def patch_environ(self, values: Mapping[str, str]) -> None:
        import os

        before = dict(os.environ)
        os.environ.update(values)
        self.addCleanup(os.environ.update, before)
        for name in values.keys() - before.keys():
            self.addCleanup(os.environ.pop, name)

    async def test_a_body_and_a_unix_socket(self) -> None:
        with TemporaryDirectory() as folder:

            async def body(form: Callable[[Ask], Deferred[Reply | Failure]]) -> None:
                path = Path(folder, f"{form.__name__}.sock")
                seen: list[bytes] = []

                def answer(connection: socket.socket) -> None:
                    whole = peer.head
                    while not whole.endswith(b'{"a": 1}'):
                        whole += connection.recv(4096)
                    seen.append(whole)
                    connection.sendall(OK + b"Content-Length: 2\r\n\r\n{}")

                peer = self.peer(answer, path)
                outcome = await form(self.ask("http://sticky/v1/x", body=b'{"a": 1}', socket=path))
                self.assertEqual(Reply(200, b"{}"), outcome)
                self.assertIn(b"content-length: 8\r\n", seen[0].lower())

            await self.each(body)

    async def test_a_get_has_no_body(self) -> None:
        async def body(form: Callable[[Ask], Deferred[Reply | Failure]]) -> None:
            peer = self.peer(lambda connection: connection.sendall(OK + b"Content-Length: 2\r\n\r\n{}"))
            self.assertEqual(Reply(200, b"{}"), await form(self.ask(peer.url, method="GET")))
            self.assertTrue(peer.head.startswith(b"GET / HTTP/1.1\r\n"))

        await self.each(body)

    async def test_a_name_below_localhost_is_this_machine(self) -> None:
        async def body(form: Callable[[Ask], Deferred[Reply | Failure]]) -> None:
            peer = self.peer(lambda connection: connection.sendall(OK + b"Content-Length: 2\r\n\r\n{}"))
            url = peer.url.replace("127.0.0.1", "game.localhost")
            self.assertEqual(Reply(200, b"{}"), await form(self.ask(url)))
            self.assertIn(f"host: {url.removeprefix('http://')}\r\n".encode(), peer.head.lower())

        await self.each(body)

    async def test_a_redirect_is_an_answer_and_not_followed(self) -> None:
        async def body(form: Callable[[Ask], Deferred[Reply | Failure]]) -> None:
            text = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
            self.assertEqual(Reply(302, b""), await form(self.ask(self.peer(lambda to: to.sendall(text)).url)))

        await self.each(body)

    async def test_answers_that_end_in_other_ways_are_whole(self) -> None:
        async def body(form: Callable[[Ask], Deferred[Reply | Failure]]) -> None:
            for text in (OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", OK + b"\r\n{}"):
                peer = self.peer(lambda connection, text=text: connection.sendall(text))  # type: ignore[misc]
                self.assertEqual(Reply(200, b"{}"), await form(self.ask(peer.url)), (form, text))

        await self.each(body)

    async def test_answers_that_break_off_are_failures(self) -> None:
        async def body(form: Callable[[Ask], Deferred[Reply | Failure]]) -> None:
            for text in (
                b"",
                b"HTTP/1.1 2",
                OK + b"Content-Length: 100\r\n\r\n{}",
                OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{}",
                b"SSH-2.0-OpenSSH\r\n",
            ):
                peer = self.peer(lambda connection, text=text: connection.sendall(text))  # type: ignore[misc]
                self.assertIsInstance(await form(self.ask(peer.url)), Failure, (form, text))

        await self.each(body)

    async def test_an_endless_answer_is_a_failure(self) -> None:
        async def body(form: Callable[[Ask], Deferred[Reply | Failure]]) -> None:
            for head in (OK + f"Content-Length: {LONGEST_ANSWER + 1}\r\n\r\n".encode(), OK + b"\r\n"):
                peer = self.peer(lambda to, head=head: to.sendall(head + b"x" * (LONGEST_ANSWER + 1)))  # type: ignore[misc]
                outcome = await form(self.ask(peer.url))
                self.assertEqual(Failure("the answer broke off or is too long"), outcome, (form, head))

        await self.each(body)

    async def test_silence_is_a_failure_after_the_timeout(self) -> None:
        async def body(form: Callable[[Ask], Deferred[Reply | Failure]]) -> None:
            done = threading.Event()
            peer = self.peer(lambda connection: done.wait(20))
            self.assertEqual(Failure("silence for 0.2 seconds"), await form(self.ask(peer.url, 0.2)))
            done.set()

        await self.each(body)

    async def test_nobody_there_is_a_failure(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]

        async def body(form: Callable[[Ask], Deferred[Reply | Failure]]) -> None:
            outcome = await form(self.ask(f"http://127.0.0.1:{port}"))
            assert isinstance(outcome, Failure)
            self.assertIn("refused", outcome.reason.lower())
            for ask in (
                self.ask("http://no-such-host.invalid"),
                self.ask("http://sticky", socket=Path("/nowhere/admin.sock")),
                self.ask("http://sticky", socket=Path("/" + "x" * 200)),
                self.ask(f"https://127.0.0.1:{port}"),
            ):
                self.assertIsInstance(await form(ask), Failure, (form, ask))

        await self.each(body)

    async def test_tls_that_nobody_vouches_for_is_a_failure(self) -> None:
        async def body(form: Callable[[Ask], Deferred[Reply | Failure]]) -> None:
            # A peer that speaks no TLS at all: the handshake is refused, and nothing of the request was sent.
            listener = socket.create_server(("127.0.0.1", 0))
            seen: list[bytes] = []

            def run() -> None:
                with listener, listener.accept()[0] as connection:
                    connection.settimeout(20)
                    seen.append(connection.recv(65536))
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

            thread = threading.Thread(target=run, daemon=True)
            thread.start()
            outcome = await form(
                self.ask(f"https://127.0.0.1:{listener.getsockname()[1]}", headers={"X": "wk-a.ws-SECRET"})
            )
            thread.join(20)
            self.assertIsInstance(outcome, Failure, form)
            self.assertNotIn(b"SECRET", seen[0])

        await self.each(body)


class CancelTests(TestCase):
    """Whoever gives up leaves the queue: the connection is closed at once."""

    timeout = 60

    async def test_twisted(self) -> None:
        from twisted.internet import reactor

        peer = Peer(lambda connection: connection.recv(1))
        asked = perform_twisted(reactor, Ask(method="POST", url=peer.url, timeout=20))
        await self.until(lambda: peer.head.endswith(b"\r\n\r\n"))
        asked.cancel()
        await self.assertFailure(asked, CancelledError)
        await self.until(peer.gone.is_set)

    async def test_asyncio(self) -> None:
        from twisted.internet.threads import deferToThread

        peer = Peer(lambda connection: connection.recv(1))

        async def give_up() -> None:
            task = asyncio.create_task(asynchronous.perform(Ask(method="POST", url=peer.url, timeout=20)))
            while not peer.head.endswith(b"\r\n\r\n"):
                await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.wait([task])
            self.assertTrue(task.cancelled())

        await deferToThread(lambda: asyncio.run(give_up()))
        await self.until(peer.gone.is_set)

    async def until(self, true: Callable[[], bool]) -> None:
        from twisted.internet import reactor
        from twisted.internet.task import deferLater

        for _ in range(2000):
            if true():
                return
            await deferLater(reactor, 0.01)
        self.fail("did not come true in 20 seconds")
