"""Sockets made in another network namespace. The namespaces are real ones, and the tests skip where none can be made."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from unittest import SkipTest

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectError
from twisted.internet.protocol import ClientFactory
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase, TestCase

from sticky import networks
from sticky.edge.dialling import Dialler

#: Makes a namespace with its loopback up, listens on 127.0.0.1:7, says so, and ends when its stdin does.
RESIDENT = """
import ctypes, fcntl, socket, struct, sys
if ctypes.CDLL(None).unshare(0x40000000): sys.exit("forbidden")
s = socket.socket()
fcntl.ioctl(s, 0x8914, struct.pack("16sh14x", b"lo", 1))
s.bind(("127.0.0.1", 7)); s.listen()
print("up", flush=True); sys.stdin.read()
"""


class DialTests(TestCase):
    """The edge's dialler on the real reactor."""

    async def test_who_is_not_there_any_more_is_a_failed_connection_and_no_exception(self) -> None:
        failed: Deferred[list[Failure]] = Deferred()
        factory = ClientFactory()
        factory.clientConnectionFailed = lambda connector, reason: failed.callback([reason])  # type: ignore[method-assign]
        Dialler(reactor).connectTCP("127.0.0.1", 9, factory, 5, network=f"{os.getpid()}/1")
        (reason,) = await failed
        self.assertIsInstance(reason.value, ConnectError)


class NetworkTests(SynchronousTestCase):
    def resident(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-I", "-S", "-c", RESIDENT]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.communicate)
        assert process.stdout is not None
        if process.stdout.readline() != b"up\n":
            raise SkipTest("network namespaces are forbidden here")
        return process

    def test_an_empty_name_is_the_daemons_own_network_and_costs_no_call(self) -> None:
        self.assertIs(networks.inside(""), networks.inside(""))
        with networks.inside(""):
            self.assertTrue(networks.ours(networks.of(os.getpid())))

    def test_a_socket_that_is_made_inside_connects_there_from_outside(self) -> None:
        network = networks.of(self.resident().pid)
        self.assertFalse(networks.ours(network))
        with networks.inside(network):
            connection = socket.socket()
        with connection:
            connection.connect(("127.0.0.1", 7))
        with socket.socket() as ours:
            self.assertRaises(ConnectionRefusedError, ours.connect, ("127.0.0.1", 7))

    def test_the_way_back_is_taken_whatever_happens_inside(self) -> None:
        network = networks.of(self.resident().pid)
        before = os.stat("/proc/thread-self/ns/net").st_ino
        open_before = len(os.listdir("/proc/self/fd"))

        def fail() -> None:
            with networks.inside(network):
                self.assertNotEqual(os.stat("/proc/thread-self/ns/net").st_ino, before)
                raise ZeroDivisionError

        self.assertRaises(ZeroDivisionError, fail)
        self.assertEqual(os.stat("/proc/thread-self/ns/net").st_ino, before)
        self.assertEqual(len(os.listdir("/proc/self/fd")), open_before)

    def test_one_that_is_gone_cannot_be_entered(self) -> None:
        process = self.resident()
        network = networks.of(process.pid)
        process.communicate()
        self.assertRaises(OSError, networks.inside(network).__enter__)

    def test_a_pid_that_is_another_processs_by_now_is_not_taken_for_it(self) -> None:
        _, _, inode = networks.of(os.getpid()).partition("/")
        forged = f"{os.getpid()}/{int(inode) + 1}"
        refused = self.assertRaises(OSError, networks.inside(forged).__enter__)
        self.assertEqual(refused.errno, errno.ENETDOWN)
