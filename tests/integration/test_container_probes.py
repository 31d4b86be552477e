"""Whose socket listens, and does it answer: against this machine's own kernel."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import cast

from twisted.internet import reactor
from twisted.internet.defer import TimeoutError
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.protocol import Protocol, ServerFactory
from twisted.trial.unittest import TestCase

from sticky.containers import listeners
from sticky.containers.knocking import IProbeReactor, Knocker, http_status
from sticky.containers.listeners import Listener, tcp_listeners, unix_listeners
from sticky.containers.ownership import listening_sockets, listens_on, members, owns_listener, sockets
from sticky.containers.ports import bindable
from sticky.core.values import ContainerId
from sticky.isticky import TCPAddress, UNIXAddress

REACTOR = cast(IProbeReactor, reactor)
NOBODY = ContainerId("ct-nobody")


def inode(listener: socket.socket) -> int:
    return os.fstat(listener.fileno()).st_ino


class _SocketTestCase(TestCase):
    def setUp(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="sticky-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.path = f"{self.folder}/a socket"

    def listen(self, host: str = "127.0.0.1", port: int = 0, **options: bool) -> socket.socket:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        if not port:
            # One that is free on every address. Asked for one address, the kernel may give a port that something else holds
            # on another, if only a connection in TIME_WAIT.
            with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as everywhere:
                port = everywhere.getsockname()[1]
        server = socket.create_server((host, port), family=family, **options)
        self.addCleanup(server.close)
        return server

    def listen_unix(self) -> socket.socket:
        server = socket.socket(socket.AF_UNIX)
        self.addCleanup(server.close)
        server.bind(self.path)
        server.listen()
        return server


class ListenerTests(_SocketTestCase):
    def test_netlink_and_the_table_agree(self) -> None:
        one = self.listen()
        port = one.getsockname()[1]
        six = self.listen("::1", port)
        expected = {Listener("127.0.0.1", port, inode(one)), Listener("::1", port, inode(six))}
        self.assertEqual(set(listeners._by_table(port)), expected)
        self.assertEqual(set(tcp_listeners(port)), expected)

    def test_without_a_port_all_are_told_by_either(self) -> None:
        servers = [self.listen(), self.listen("0.0.0.0"), self.listen("::1")]
        expected = {Listener(one.getsockname()[0], one.getsockname()[1], inode(one)) for one in servers}
        self.assertLessEqual(expected, set(listeners._by_table(None)))
        self.assertLessEqual(expected, set(tcp_listeners()))

    def test_a_kernel_without_inet_diag_is_asked_by_the_table(self) -> None:
        server = self.listen()

        def refused(port: int) -> list[Listener]:
            raise OSError("no inet_diag")

        self.patch(listeners, "_by_netlink", refused)
        port = server.getsockname()[1]
        self.assertEqual(tcp_listeners(port), [Listener("127.0.0.1", port, inode(server))])

    def test_connections_and_bound_sockets_are_no_listeners(self) -> None:
        server = self.listen()
        client = socket.create_connection(server.getsockname())
        self.addCleanup(client.close)
        accepted, _ = server.accept()
        self.addCleanup(accepted.close)
        self.assertEqual([found.inode for found in tcp_listeners(server.getsockname()[1])], [inode(server)])
        self.assertEqual(tcp_listeners(client.getsockname()[1]), [])

    def test_unix_sockets_by_path(self) -> None:
        server = self.listen_unix()
        client = socket.socket(socket.AF_UNIX)
        self.addCleanup(client.close)
        client.connect(self.path)
        self.assertEqual(unix_listeners(self.path, os.getpid()), {inode(server)})
        self.assertEqual(unix_listeners(self.path + "x", os.getpid()), set())

    def test_the_address_itself_goes_before_a_wildcard(self) -> None:
        wildcard = self.listen("0.0.0.0")
        port = wildcard.getsockname()[1]
        self.assertEqual(listening_sockets(TCPAddress("127.0.0.1", port)), {inode(wildcard)})
        self.assertEqual(listening_sockets(TCPAddress("127.0.0.2", port)), {inode(wildcard)})
        shared = self.listen("0.0.0.0", reuse_port=True)
        exact = self.listen("127.0.0.1", shared.getsockname()[1], reuse_port=True)
        self.assertEqual(listening_sockets(TCPAddress("127.0.0.1", shared.getsockname()[1])), {inode(exact)})
        mine = self.listen("127.0.0.2")
        self.assertEqual(listening_sockets(TCPAddress("127.0.0.1", mine.getsockname()[1])), set())

    def test_a_dual_stack_wildcard_takes_ipv4(self) -> None:
        both = self.listen("::", dualstack_ipv6=True)
        self.assertEqual(listening_sockets(TCPAddress("127.0.0.1", both.getsockname()[1])), {inode(both)})


class OwnershipTests(_SocketTestCase):
    def test_a_process_owns_its_sockets_and_nobody_elses(self) -> None:
        server = self.listen()
        address = TCPAddress("127.0.0.1", server.getsockname()[1])
        self.assertIn(inode(server), sockets(os.getpid()))
        self.assertTrue(owns_listener(NOBODY, os.getpid(), address))
        child = self.sleeper()
        self.assertFalse(owns_listener(NOBODY, child.pid, address))

    def test_where_a_process_and_those_that_it_started_listen(self) -> None:
        script = (
            "import socket, sys; s = socket.create_server(('127.0.0.1', 0));"
            "print(s.getsockname()[1], flush=True); sys.stdin.read()"
        )
        for wrapped in ([], ["sh", "-c", '"$@"; :', "sh"], ["sh", "-c", 'sh -c \'"$@"; :\' sh "$@"; :', "sh"]):
            child = subprocess.Popen(
                [*wrapped, sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            self.addCleanup(child.communicate)
            assert child.stdout is not None
            port = int(child.stdout.readline())
            self.assertEqual([found.port for found in listens_on(child.pid)], [port], wrapped)
            self.assertIn(port, [found.port for found in listens_on(os.getpid())])
        self.assertEqual(listens_on(self.sleeper().pid), [])

    def test_a_network_that_is_gone_has_no_listeners(self) -> None:
        self.assertEqual(listens_on(os.getpid(), "1/0"), [])

    def test_a_port_that_is_shared_with_a_stranger_is_not_owned(self) -> None:
        mine = self.listen(reuse_port=True)
        port = mine.getsockname()[1]
        self.assertTrue(owns_listener(NOBODY, os.getpid(), TCPAddress("127.0.0.1", port)))
        script = (
            "import socket, sys; s = socket.create_server(('127.0.0.1', int(sys.argv[1])), reuse_port=True);"
            "print('up', flush=True); sys.stdin.read()"
        )
        child = subprocess.Popen(
            [sys.executable, "-c", script, str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self.addCleanup(child.communicate)
        assert child.stdout is not None
        self.assertEqual(child.stdout.readline(), b"up\n")
        self.assertFalse(owns_listener(NOBODY, child.pid, TCPAddress("127.0.0.1", port)))

    def test_nobody_listening_is_nobody_owning(self) -> None:
        server = self.listen()
        port = server.getsockname()[1]
        server.close()
        self.assertFalse(owns_listener(NOBODY, os.getpid(), TCPAddress("127.0.0.1", port)))

    def test_members_are_the_session_and_whoever_carries_the_id(self) -> None:
        leader = self.sleeper()
        marked = self.sleeper(STICKY_CONTAINER_ID="ct-me")
        other = self.sleeper(STICKY_CONTAINER_ID="ct-me2")
        self.assertEqual(members(ContainerId("ct-me"), leader.pid), sorted([leader.pid, marked.pid]))
        self.assertEqual(members(ContainerId("ct-me"), leader.pid, leader_exited=True), [marked.pid])
        self.assertNotIn(other.pid, members(ContainerId("ct-me"), leader.pid))

    def test_zombies_are_no_members(self) -> None:
        child = self.sleeper()
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        self.assertEqual(members(NOBODY, child.pid), [])

    def sleeper(self, **env: str) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(["sleep", "600"], env={"PATH": os.environ["PATH"], **env}, start_new_session=True)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        return child


class PortTests(_SocketTestCase):
    def test_a_listener_on_any_address_takes_the_port(self) -> None:
        for host in ("127.0.0.1", "0.0.0.0", "::1", "127.0.0.9"):
            self.assertFalse(bindable(self.listen(host).getsockname()[1]), host)

    def test_a_port_whose_connections_linger_is_free(self) -> None:
        server = self.listen()
        port = server.getsockname()[1]
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
        accepted.close()
        client.close()
        server.close()
        self.assertTrue(bindable(port))


class KnockTests(_SocketTestCase):
    def setUp(self) -> None:
        super().setUp()
        self.knocker = Knocker()
        self.addCleanup(self.knocker.close)

    def test_a_listener_answers_at_once_and_a_closed_port_does_not(self) -> None:
        server = self.listen()
        address = TCPAddress("127.0.0.1", server.getsockname()[1])
        self.assertTrue(self.knocker.knock(address))
        server.close()
        self.assertFalse(self.knocker.knock(address))

    def test_unix_sockets_too(self) -> None:
        address = UNIXAddress(self.path)
        self.assertFalse(self.knocker.knock(address))
        server = self.listen_unix()
        self.assertTrue(self.knocker.knock(address))
        server.close()  # the file stays
        self.assertFalse(self.knocker.knock(address))

    def test_a_full_backlog_is_no_answer_and_holds_one_socket_at_most(self) -> None:
        server = self.listen()
        server.listen(0)
        address = TCPAddress("127.0.0.1", server.getsockname()[1])
        answers = [self.knocker.knock(address) for _ in range(10)]
        self.assertFalse(answers[-1])
        before = len(os.listdir("/proc/self/fd"))
        self.assertFalse(self.knocker.knock(address))
        self.assertEqual(len(os.listdir("/proc/self/fd")), before)
        self.knocker.close()
        self.assertEqual(len(os.listdir("/proc/self/fd")), before - 1)

    def test_descriptors_above_a_thousand_work(self) -> None:
        server = self.listen()
        low = os.open("/dev/null", os.O_RDONLY)
        self.addCleanup(os.close, low)
        held = [os.dup(low) for _ in range(1030)]
        try:
            self.assertTrue(self.knocker.knock(TCPAddress("127.0.0.1", server.getsockname()[1])))
        finally:
            for descriptor in held:
                os.close(descriptor)


class _Says(Protocol):
    answer: bytes

    def dataReceived(self, data: bytes) -> None:
        cast(_Served, self.factory).requests.append(data)
        assert self.transport is not None
        self.transport.write(self.answer)


class _Served(ServerFactory):
    noisy = False
    protocol = _Says

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.requests: list[bytes] = []

    def buildProtocol(self, addr: object) -> Protocol:
        protocol = _Says()
        protocol.factory = self
        protocol.answer = self.answer
        return protocol


class HTTPStatusTests(TestCase):
    def serve(self, answer: bytes) -> tuple[_Served, TCPAddress]:
        served = _Served(answer)
        port = REACTOR.listenTCP(0, served, interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        return served, TCPAddress("127.0.0.1", port.getHost().port)  # type: ignore[attr-defined]

    async def test_the_status_is_taken_and_the_rest_left(self) -> None:
        served, address = self.serve(b"HTTP/1.1 204 Gone fishing\r\nContent-Length: 99999\r\n\r\nx")
        self.assertEqual(await http_status(REACTOR, address, "/healthz?deep=1"), 204)
        (request,) = served.requests
        self.assertTrue(request.startswith(b"GET /healthz?deep=1 HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n" % address.port))

    async def test_what_is_not_http_fails(self) -> None:
        _, address = self.serve(b"220 mail.example.org ESMTP\r\n")
        with self.assertRaises(Exception) as caught:
            await http_status(REACTOR, address, "/")
        self.assertIn("not an HTTP answer", str(caught.exception))

    async def test_silence_fails_after_the_time_that_was_given(self) -> None:
        _, address = self.serve(b"")
        with self.assertRaises(TimeoutError):
            await http_status(REACTOR, address, "/", timeout=0.05)

    async def test_nobody_there_fails(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        with self.assertRaises(ConnectionRefusedError):
            await http_status(REACTOR, TCPAddress("127.0.0.1", port), "/")

    async def test_unix_sockets_too(self) -> None:
        path = Path(tempfile.mkdtemp(prefix="sticky-")) / "s"
        self.addCleanup(shutil.rmtree, path.parent)
        server = socket.socket(socket.AF_UNIX)
        self.addCleanup(server.close)
        server.bind(str(path))
        server.listen()

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.0 404 \r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        self.addCleanup(thread.join)
        self.assertEqual(await http_status(REACTOR, UNIXAddress(str(path)), "/"), 404)
