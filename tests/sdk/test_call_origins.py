"""Where a remote traceback's lines are found here."""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys
import traceback
from collections.abc import Callable
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

import sticky
from sticky.sdk.calls.capture import packed_function
from sticky.sdk.calls.client import Outcome
from sticky.sdk.calls.origins import located
from sticky.sdk.calls.outcomes import Sent, value_of
from sticky.sdk.exception import RemoteExecutionError


class Scale:
    @property
    def zero(self) -> float:
        return 1 / 0  # of a property

    @staticmethod
    def check(n: int) -> float:
        return 1 / n  # of a static method


def helper(n: int) -> float:
    return sum([1 / one for one in [n]])  # of a helper


@sticky.remote
def other() -> float:
    return 1 / 0  # of a remote function


def by_helper() -> None:
    helper(0)  # calls it


def by_property() -> None:
    Scale().zero  # noqa: B018  # asks for it


def by_static() -> None:
    Scale.check(0)  # calls the class


def by_remote() -> None:
    other()  # calls the other


def maker() -> Callable[[], None]:
    def enclosed() -> None:
        raise ValueError  # of a closure

    def called() -> None:
        enclosed()  # calls the closure

    return called


#: In a process of its own: unpickled here, a class would be the same one, and be changed.
SANDBOX = """
import json, pickle, sys, traceback
from sticky.sandbox.namespace import Namespaces
found = []
for packed in pickle.load(sys.stdin.buffer):
    try:
        Namespaces().function(pickle.loads(packed))()
    except Exception as error:
        found.append("".join(traceback.format_exception(type(error), error, error.__traceback__.tb_next)))
print(json.dumps(found))
"""


def failed(*functions: Callable[..., Any]) -> list[str]:
    """The tracebacks as sandboxes have them."""
    packed = pickle.dumps([packed_function(function) for function in functions])
    done = subprocess.run([sys.executable, "-c", SANDBOX], input=packed, stdout=subprocess.PIPE, check=True)
    found: list[str] = json.loads(done.stdout)
    return found


class LocatedTests(SynchronousTestCase):
    def test_each_line_of_the_users_own_code_has_its_file_and_text(self) -> None:
        cases = {
            by_helper: ["calls it", "of a helper"],
            by_property: ["asks for it", "of a property"],
            by_static: ["calls the class", "of a static method"],
            by_remote: ["calls the other", "of a remote function"],
            maker(): ["calls the closure", "of a closure"],
        }
        for (function, comments), sent in zip(cases.items(), failed(*cases), strict=True):
            self.assertIn("<dynamic-code>", sent)
            found = located(sent, function)
            self.assertNotIn("<dynamic-code>", found)
            self.assertEqual(re.findall(r"^    .*# (.*)$", found, re.MULTILINE)[:1], comments[:1])
            self.assertTrue(all(comment in found for comment in comments), found)
            self.assertIn(
                f'  File "{__file__}", line {function.__code__.co_firstlineno + 1}, in {function.__name__}\n', found
            )
            self.assertEqual(found.splitlines()[-1], sent.splitlines()[-1])

    def test_what_cannot_be_told_stays_as_it_is(self) -> None:
        first = by_helper.__code__.co_firstlineno
        for line in (
            'File "<dynamic-code>", line 99999999, in by_helper',
            f'File "<dynamic-code>", line {first + 1}, in nobody',
            f'File "/elsewhere.py", line {first + 1}, in by_helper',
        ):
            self.assertEqual(located(f"  {line}\n", by_helper), f"  {line}\n")
        self.assertEqual(located("anything", print), "anything")

    def test_a_file_that_is_not_there_is_named_without_a_line_of_it(self) -> None:
        names: dict[str, Any] = {"__name__": "nowhere"}
        exec(compile("def f():\n    1 / 0\n", "<notebook>", "exec"), names)
        self.assertEqual(
            located('  File "<dynamic-code>", line 2, in f\nZeroDivisionError\n', names["f"]),
            '  File "<notebook>", line 2, in f\nZeroDivisionError\n',
        )

    def test_the_error_shows_it_when_nobody_catches_it(self) -> None:
        said = {"outcome": "error", "code": "exception", "type": "ZeroDivisionError", "message": "division by zero"}
        sent = Sent(url="http://x", server=None, session=None, token=None)
        outcome = Outcome({**said, "traceback": failed(by_helper)[0]}, bytearray())
        error = self.assertRaises(RemoteExecutionError, value_of, sent, outcome, by_helper)
        shown = "".join(traceback.format_exception(error))
        self.assertIn("RemoteExecutionError: ZeroDivisionError: division by zero\nIn the sandbox:\nTraceback", shown)
        self.assertIn("    helper(0)  # calls it\n", shown)
        self.assertIn(error.traceback.rstrip(), shown)

    def test_one_without_a_traceback_has_no_note(self) -> None:
        said = {"outcome": "error", "code": "exception", "type": "E", "message": ""}
        sent = Sent(url="http://x", server=None, session=None, token=None)
        error = self.assertRaises(RemoteExecutionError, value_of, sent, Outcome(said, bytearray()), by_helper)
        self.assertEqual((error.traceback, hasattr(error, "__notes__")), ("", False))
