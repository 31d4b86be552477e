"""The old daemon's side of a restart: which descriptors pass, what the new one's last words were, who goes on when it fails."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from sticky import errors
from sticky.restarting import SAID_LATE, STARTS_WITHIN, TAKES_OVER_WITHIN, CommandLine, Restart, Restarter
from sticky.succession import TAKE_OVER, UP, VARIABLE, inherited, sockets_of
from tests.fakes.descriptors import no_descriptors_left
from tests.fakes.links import End


class FakeReactor(Clock):
    """Spawns nothing, and remembers."""

    def __init__(self) -> None:
        super().__init__()
        self.env: dict[str, str] = {}
        self.said = -1
        self.link: Any = None
        self.protocol: Any = None
        self.spawn_fails: OSError | None = None

    def adoptStreamConnection(self, fd: int, family: int, factory: Any) -> None:
        self.link = factory.buildProtocol(None)
        self.link.makeConnection(End())

    def spawnProcess(
        self, protocol: Any, path: str, args: Sequence[str], env: dict[str, str], cwd: str, childFDs: dict[int, Any]
    ) -> None:
        if self.spawn_fails is not None:
            raise self.spawn_fails
        self.env, self.said = env, os.dup(childFDs[2])
        self.protocol = protocol


class FakeOld:
    """Notes what is asked of the daemon."""

    def __init__(self, lock: int) -> None:
        self.done: list[str] = []
        self.rested: Deferred[int] = Deferred()
        self.ephemeral = False
        self._lock = lock

    def lock(self) -> int:
        if self.ephemeral:
            raise errors.BadRequest("nothing to hand over")
        return self._lock

    def listening(self) -> Mapping[str, Sequence[socket.socket]]:
        return {}

    def rest(self) -> Deferred[int]:
        self.done.append("rest")
        return self.rested

    def wake(self) -> None:
        self.done.append("wake")

    def leave(self, path: str) -> None:
        self.done.append(f"leave {path}")


class RestarterTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.reactor = FakeReactor()
        lock = os.open(os.devnull, os.O_RDONLY)
        self.addCleanup(os.close, lock)
        self.old = FakeOld(lock)
        self.pid_file = Path(self.mktemp())
        self.pid_file.write_text("1")
        self.restarter = Restarter(self.old, CommandLine(["python", "twistd"], Path("/"), self.pid_file), self.reactor)

    def says(self, text: str) -> None:
        os.write(self.reactor.said, text.encode())

    def lost(self) -> None:
        self.reactor.link.connectionLost()
        self.reactor.advance(SAID_LATE)

    def started(self) -> None:
        """The new one runs, and its pid is told: a process that does nothing stands for it."""
        self.new = subprocess.Popen(["sleep", "60"])
        self.addCleanup(self.new.wait)
        self.addCleanup(self.new.kill)
        self.reactor.protocol.childDataReceived(9, b"%d" % self.new.pid)
        self.reactor.protocol.childConnectionLost(9)

    def ready(self) -> Deferred[Any]:
        """It is about to take over."""
        self.started()
        asked: Deferred[Any] = self.reactor.link.serves[TAKE_OVER]({"pid": self.new.pid})
        return asked

    def test_it_hands_over_when_the_new_one_is_up(self) -> None:
        answer = self.restarter.restart()
        self.assertFalse(self.pid_file.exists(), "twistd would take us for another daemon")
        self.assertEqual(self.old.done, [])
        asked = self.ready()
        self.assertNoResult(asked)
        self.old.rested.callback(1)
        self.assertEqual(self.successResultOf(asked), {"proxies": 1})
        self.reactor.link.serves[UP]({"socket": "there", "pid": 7, "version": "2"})
        self.assertEqual(self.old.done, ["rest", "leave there"])
        self.assertEqual(self.successResultOf(answer), {"pid": 7, "version": "2"})
        self.assertIs(self.restarter.state, Restart.LEFT)
        self.assertFalse(self.reactor.link.transport.closed, "the answer to that is on its way")
        self.lost()
        self.assertEqual(self.old.done, ["rest", "leave there"])
        self.assertIsNone(self.new.poll())
        self.assertRaises(errors.RestartUnderWay, self.restarter.restart)
        self.assertRaises(errors.RestartUnderWay, self.restarter.may_change)
        self.successResultOf(self.restarter.decide())

    def test_one_that_does_not_start_is_told_with_its_last_words_and_another_may_be_tried(self) -> None:
        for _ in range(2):
            answer = self.restarter.restart()
            self.says("sticky: warning: old\nsticky: a.toml: nonsense: is not a setting\nsomething else\n")
            self.lost()
            self.assertIn(
                "nonsense: is not a setting", str(self.failureResultOf(answer, errors.BadConfiguration).value)
            )
            self.assertEqual((self.old.done, self.pid_file.read_text()), ([], "1"))

    def test_one_that_fails_while_it_takes_over_wakes_the_old_one(self) -> None:
        answer = self.restarter.restart()
        self.ready()
        self.old.rested.callback(1)
        self.lost()
        self.failureResultOf(answer, errors.BadConfiguration)
        self.assertEqual(self.old.done, ["rest", "wake"])

    def test_one_that_dies_before_this_one_rests_wakes_it_when_it_does(self) -> None:
        answer = self.restarter.restart()
        asked = self.ready()
        self.lost()
        self.assertEqual(self.old.done, ["rest"])
        self.assertNoResult(answer)
        self.old.rested.callback(1)
        self.assertEqual(self.old.done, ["rest", "wake"])
        self.failureResultOf(answer, errors.BadConfiguration)
        self.successResultOf(asked)

    def test_one_that_cannot_rest_wakes_again(self) -> None:
        answer = self.restarter.restart()
        asked = self.ready()
        self.old.rested.errback(OSError(5, "Input/output error"))
        self.failureResultOf(asked, OSError)
        self.lost()
        self.failureResultOf(answer, errors.BadConfiguration)
        self.assertEqual(self.old.done, ["rest", "wake"])

    def test_one_that_takes_for_ever_is_cut_off(self) -> None:
        for pid_comes_late in (False, True):
            answer = self.restarter.restart()
            if not pid_comes_late:
                self.started()
            self.reactor.advance(STARTS_WITHIN)
            self.assertTrue(self.reactor.link.transport.closed)
            self.lost()
            self.failureResultOf(answer, errors.BadConfiguration)
            if pid_comes_late:
                self.started()
            self.assertEqual(self.new.wait(30), -signal.SIGKILL, "it would keep the lock")

    def test_one_that_ended_before_its_pid_is_read_and_one_that_is_not_wanted_any_more_are_left_alone(self) -> None:
        answer = self.restarter.restart()
        ended = subprocess.Popen(["true"])
        ended.wait()
        self.reactor.protocol.childDataReceived(9, b"%d" % ended.pid)
        self.reactor.protocol.childConnectionLost(9)
        self.lost()
        self.failureResultOf(answer, errors.BadConfiguration)
        held = set(os.listdir("/proc/self/fd"))
        answer = self.restarter.restart()
        self.lost()
        self.failureResultOf(answer, errors.BadConfiguration)
        self.started()
        self.assertIsNone(self.new.poll())
        self.assertEqual(len(set(os.listdir("/proc/self/fd")) - held), 1)  # this test's own copy of its standard error

    def test_one_that_takes_for_ever_to_take_over_is_killed_before_this_one_wakes(self) -> None:
        answer = self.restarter.restart()
        self.ready()
        self.old.rested.callback(1)
        self.reactor.advance(TAKES_OVER_WITHIN)
        self.assertEqual(self.new.wait(30), -signal.SIGKILL)
        self.assertTrue(self.reactor.link.deaf, "two would be in charge if its word came now")
        self.assertEqual(self.old.done, ["rest"])
        self.lost()
        self.failureResultOf(answer, errors.BadConfiguration)
        self.assertEqual(self.old.done, ["rest", "wake"])

    def test_nothing_may_be_changed_that_the_new_one_has_read(self) -> None:
        self.restarter.may_change()
        answer = self.restarter.restart()
        self.assertRaises(errors.RestartUnderWay, self.restarter.may_change)
        self.lost()
        self.failureResultOf(answer)
        self.restarter.may_change()

    def test_told_to_end_while_the_new_one_starts_it_ends_that_first(self) -> None:
        self.successResultOf(self.restarter.decide())
        answer = self.restarter.restart()
        self.started()
        decided = self.restarter.decide()
        self.assertEqual(self.new.wait(30), -signal.SIGKILL)
        self.assertNoResult(decided)
        self.lost()
        self.successResultOf(decided)
        self.failureResultOf(answer, errors.BadConfiguration)
        self.assertEqual((self.old.done, self.pid_file.read_text()), ([], "1"))

    def test_told_to_end_while_the_new_one_takes_over_it_stays_in_charge(self) -> None:
        answer = self.restarter.restart()
        self.ready()
        decided = [self.restarter.decide(), self.restarter.decide()]
        self.assertEqual(self.new.wait(30), -signal.SIGKILL)
        self.old.rested.callback(1)
        self.lost()
        for one in decided:
            self.successResultOf(one)
        self.failureResultOf(answer, errors.BadConfiguration)
        self.assertEqual(self.old.done, ["rest", "wake"])

    def test_told_to_end_when_the_new_one_has_just_died_it_goes_on_to_its_end(self) -> None:
        answer = self.restarter.restart()
        self.ready()
        self.old.rested.callback(1)
        self.new.kill()
        self.new.wait()
        decided = self.restarter.decide()
        self.assertNoResult(decided)
        self.lost()
        self.successResultOf(decided)
        self.failureResultOf(answer, errors.BadConfiguration)
        self.assertEqual(self.old.done, ["rest", "wake"])

    def test_one_at_a_time(self) -> None:
        answer = self.restarter.restart()
        self.assertRaises(errors.RestartUnderWay, self.restarter.restart)
        self.lost()
        self.failureResultOf(answer)

    def test_a_daemon_with_nothing_to_hand_over_says_so_each_time(self) -> None:
        self.old.ephemeral = True
        for _ in range(2):
            refusal = self.assertRaises(errors.BadRequest, self.restarter.restart)
            self.assertIn("nothing to hand over", str(refusal))
        self.assertIs(self.restarter.state, Restart.NONE)

    def test_one_whose_process_cannot_be_made_is_told_once_and_another_may_be_tried(self) -> None:
        self.reactor.spawn_fails = OSError(12, "Cannot allocate memory")
        answer = self.restarter.restart()
        self.assertIn("Cannot allocate", str(self.failureResultOf(answer, errors.BadConfiguration).value))
        self.lost()
        self.assertEqual((self.reactor.getDelayedCalls(), self.restarter.state), ([], Restart.NONE))
        self.reactor.spawn_fails = None
        answer = self.restarter.restart()
        self.lost()
        self.failureResultOf(answer, errors.BadConfiguration)

    def test_without_descriptors_it_is_refused_and_may_be_tried_again(self) -> None:
        with no_descriptors_left():
            answer = self.restarter.restart()
        said = str(self.failureResultOf(answer, errors.BadConfiguration).value)
        self.assertIn("Too many open files", said)
        self.assertEqual((self.restarter.state, self.pid_file.read_text()), (Restart.NONE, "1"))
        self.assertEqual(self.reactor.getDelayedCalls(), [])
        self.test_it_hands_over_when_the_new_one_is_up()

    def test_nor_does_it_keep_what_it_had_when_they_ran_out(self) -> None:
        held = set(os.listdir("/proc/self/fd"))
        for step in ("memfd_create", "dup"):
            with mock.patch.object(os, step, side_effect=OSError(errno.EMFILE, "Too many open files")):
                answer = self.restarter.restart()
            self.failureResultOf(answer, errors.BadConfiguration)
            self.assertEqual(set(os.listdir("/proc/self/fd")), held, step)

    def test_what_is_handed_over_is_found_once(self) -> None:
        answer = self.restarter.restart()
        environ = {VARIABLE: self.reactor.env[VARIABLE]}
        self.assertEqual({"link", "lock", "stderr", "listeners"}, set(json.loads(environ[VARIABLE])))
        listener = socket.create_server(("127.0.0.1", 0))
        numbers = {name: os.dup(listener.fileno()) for name in ("link", "lock", "stderr", "one")}
        one = numbers.pop("one")
        environ[VARIABLE] = json.dumps({**numbers, "listeners": {"tcp:1": [one]}})
        found = inherited(environ)
        assert found is not None
        self.assertIsNone(inherited(environ), "nobody else finds it")
        self.assertFalse(os.get_inheritable(one))
        (taken,) = sockets_of(found)["tcp:1"]
        self.assertEqual(taken.getsockname(), listener.getsockname())
        taken.close()
        listener.close()
        for number in numbers.values():
            os.close(number)
        self.lost()
        self.failureResultOf(answer)
