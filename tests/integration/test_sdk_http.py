"""The SDK's POST over real sockets: whole answers, and every way in which none comes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

from twisted.trial.unittest import TestCase

from sticky.sdk.http import LONGEST_ANSWER, Failure, Reply, post

OK = b"HTTP/1.1 200 OK\r\n"


class PostTests(TestCase):
    def serve(self, answer: Callable[[socket.socket], object]) -> str:
        """One connection: reads a head, lets `answer` write, closes. The head is kept in `self.head`."""
        listener = socket.create_server(("127.0.0.1", 0))
        self.head = b""

        def run() -> None:
            with listener, listener.accept()[0] as connection:
                connection.settimeout(20)
                while not self.head.endswith(b"\r\n\r\n"):
                    self.head += connection.recv(4096)
                answer(connection)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        self.addCleanup(thread.join, 20)
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    def answered(self, text: bytes) -> Reply | Failure:
        return post(self.serve(lambda connection: connection.sendall(text)) + "/a/b", {"X-Key": "1"}, 20)

    def test_it_posts_without_a_body(self) -> None:
        outcome = self.answered(OK + b'Content-Length: 11\r\n\r\n{"a": true}')
        self.assertEqual(Reply(200, b'{"a": true}'), outcome)
        lines = self.head.split(b"\r\n")
        self.assertEqual(b"POST /a/b HTTP/1.1", lines[0])
        self.assertIn(b"X-Key: 1", lines)
        self.assertIn(b"Content-Length: 0", lines)

    def test_a_redirect_is_an_answer_and_not_followed(self) -> None:
        outcome = self.answered(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n")
        self.assertEqual(Reply(302, b""), outcome)

    def test_a_chunked_answer_is_whole(self) -> None:
        outcome = self.answered(OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n")
        self.assertEqual(Reply(200, b"{}"), outcome)

    def test_answers_that_break_off_are_failures(self) -> None:
        for text in (
            b"",
            b"HTTP/1.1 2",
            OK + b"Content-Length: 100\r\n\r\n{}",
            OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{}",
            b"SSH-2.0-OpenSSH\r\n",
        ):
            self.assertIsInstance(self.answered(text), Failure, text)

    def test_an_endless_answer_is_a_failure(self) -> None:
        text = OK + f"Content-Length: {LONGEST_ANSWER + 1}\r\n\r\n".encode() + b"x" * (LONGEST_ANSWER + 1)

        def flood(connection: socket.socket) -> None:
            try:
                connection.sendall(text)
            except OSError:
                pass

        self.assertEqual(Failure("the answer broke off or is too long"), post(self.serve(flood), {}, 20))

    def test_silence_is_a_failure_after_the_timeout(self) -> None:
        done = threading.Event()
        url = self.serve(lambda connection: done.wait(20))
        self.assertEqual(Failure("silence for 0.2 seconds"), post(url, {}, 0.2))
        done.set()

    def test_nobody_there_is_a_failure(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        self.assertEqual(Failure("Connection refused"), post(f"http://127.0.0.1:{port}", {}, 20))

    def test_a_name_that_is_none_is_a_failure(self) -> None:
        self.assertIsInstance(post("http://no-such-host.invalid", {}, 20), Failure)
