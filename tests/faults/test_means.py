"""The means of the fault injection do what they say: a cut is one at both ends, a daemon that does not start is seen."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.faults import cutting
from tests.faults.ground import Ground
from tests.faults.soak import Sample, slope
from tests.integration.running_daemon import until


class CuttingTests(SynchronousTestCase):
    def test_both_ends_are_reset_and_others_are_not(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            pairs = [(socket.create_connection(("127.0.0.1", port)), listener.accept()[0]) for _ in range(2)]
        for pair in pairs:
            for end in pair:
                self.addCleanup(end.close)
        (client, server), (other_client, other_server) = pairs
        wanted = client.getsockname()[1], port
        try:
            for own, other, copy in cutting.connections(os.getpid()):
                with copy:
                    if (own, other) == wanted:
                        cutting.cut(copy)
        except PermissionError:
            raise SkipTest("descriptors of processes may not be looked at here") from None
        self.assertRaises(ConnectionResetError, client.recv, 1)
        self.assertRaises(ConnectionResetError, server.recv, 1)
        other_client.sendall(b"x")
        self.assertEqual(other_server.recv(1), b"x")

    def test_a_process_that_is_gone_has_none(self) -> None:
        self.assertEqual(list(cutting.connections(2**22 + 1)), [])


class GroundTests(SynchronousTestCase):
    def test_a_daemon_that_does_not_start_is_seen_with_its_words(self) -> None:
        ground = Ground(1, daemon="nonsense = 1\n")
        self.addCleanup(ground.close)
        ground.start()
        self.assertEqual(until("it ends", ground.ended, within=120), 2)
        self.assertIn("nonsense", ground.last_words())

    def test_no_port_is_one_that_outgoing_connections_are_given(self) -> None:
        ground = Ground(1)
        self.addCleanup(ground.close)
        with open("/proc/sys/net/ipv4/ip_local_port_range") as given:
            first, last = map(int, given.read().split())
        self.assertNotIn(ground.port, range(first, last + 1))

    def test_a_daemon_whose_clock_is_ours_can_sleep(self) -> None:
        ground = Ground(1, ("clock",))
        self.addCleanup(ground.close)
        if "clock" in ground.left_out:
            raise SkipTest(ground.left_out["clock"])
        ground.set_clock(3600)
        program = "import time; time.sleep(0.05); print(time.time())"
        done = subprocess.run(
            [sys.executable, "-c", program], env=ground.environment, capture_output=True, text=True, timeout=60
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertGreater(float(done.stdout), time.time() + 3500)


class SlopeTests(SynchronousTestCase):
    def test_it_is_in_mib_an_hour(self) -> None:
        samples = [Sample(at, 50 * 1024 * 1024 + at * 1024 * 1024 // 1800, 1, 0.0) for at in range(0, 3600, 15)]
        self.assertAlmostEqual(slope(samples), 2.0, places=3)

    def test_a_step_up_and_down_again_is_none(self) -> None:
        samples = [Sample(float(at), 1 << 20 if at == 2 else 0, 1, 0.0) for at in range(5)]
        self.assertAlmostEqual(slope(samples), 0.0)
