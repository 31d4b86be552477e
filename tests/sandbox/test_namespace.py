"""Global names of a session: what a function brings along, and what it finds. Client and sandbox in one process, by pickle."""

from __future__ import annotations

import pickle
import threading
import types
from collections.abc import Callable
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from sticky.sandbox.namespace import Namespaces
from sticky.sdk.calls.capture import packed_arguments, packed_function
from sticky.sdk.exception import InvalidError

SOURCE = """
import math
count = 0
lock_me = None

def load(n):
    global data
    data = list(range(n))
    return len(data)

def total():
    return sum(data)

def bump():
    global count
    count += 1
    return count

def helper(x):
    return bump() * 100 + x

def calls_a_helper(x):
    return helper(x)

def uses_a_module(x):
    return math.floor(x)

class Shape:
    kinds = ["round"]
    def __init__(self, size):
        self.size = size
    @property
    def area(self):
        return helper(self.size)
    @staticmethod
    def none():
        return bump()
    @classmethod
    def known(cls):
        return cls.kinds

def make(size):
    return Shape(size).area + Shape.none()

def with_defaults(a, b=2, *, c=3):
    return a, b, c

def closing(n):
    def inner(x):
        return x + n
    return inner
"""


def written(source: str) -> dict[str, Any]:
    """A user's module, which the sandbox cannot import."""
    module = types.ModuleType("__main__")
    exec(compile(source, "notebook", "exec"), module.__dict__)
    return module.__dict__


class Sandbox:
    """One session."""

    def __init__(self) -> None:
        self.namespaces = Namespaces()

    def __call__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        spec = pickle.loads(packed_function(function))
        given, named = pickle.loads(packed_arguments(args, kwargs, "__main__"))
        return self.namespaces.function(spec)(*given, **named)


class NamespaceTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.names = written(SOURCE)
        self.call = Sandbox()

    def test_rule_1_what_one_function_sets_another_finds(self) -> None:
        self.assertEqual(self.call(self.names["load"], 10), 10)
        self.assertEqual(self.call(self.names["total"]), 45)

    def test_data_is_set_only_where_the_session_has_none(self) -> None:
        self.assertEqual([self.call(self.names["bump"]) for _ in range(3)], [1, 2, 3])
        self.names["count"] = 50
        self.assertEqual(self.call(self.names["bump"]), 4)
        self.assertEqual(self.names["count"], 50, "nothing of it happens here")

    def test_a_helper_comes_along_and_shares_the_names(self) -> None:
        self.assertEqual(self.call(self.names["calls_a_helper"], 7), 107)
        self.assertEqual(self.call(self.names["calls_a_helper"], 7), 207)

    def test_functions_are_taken_anew(self) -> None:
        self.call(self.names["calls_a_helper"], 7)
        exec("def helper(x):\n    return -x\n", self.names)
        self.assertEqual(self.call(self.names["calls_a_helper"], 7), -7)

    def test_classes_see_the_sessions_names_in_every_kind_of_method(self) -> None:
        self.assertEqual(self.call(self.names["make"], 5), 105 + 2)
        self.assertEqual(self.call(self.names["bump"]), 3)

    def test_modules_defaults_keywords_and_closures(self) -> None:
        self.assertEqual(self.call(self.names["uses_a_module"], 2.5), 2)
        self.assertEqual(self.call(self.names["with_defaults"], 1), (1, 2, 3))
        self.assertEqual(self.call(self.names["with_defaults"], 1, c=9), (1, 2, 9))
        self.assertEqual(self.call(self.names["closing"](5), 1), 6)

    def test_two_sessions_share_nothing(self) -> None:
        other = Sandbox()
        self.call(self.names["bump"])
        self.assertEqual(other(self.names["bump"]), 1)


class RefusalTests(SynchronousTestCase):
    def test_an_argument_that_cannot_go_is_named(self) -> None:
        error = self.assertRaises(InvalidError, packed_arguments, (1, threading.Lock()), {}, "__main__")
        self.assertIn("argument 2", str(error))
        error = self.assertRaises(InvalidError, packed_arguments, (), {"door": threading.Lock()}, "__main__")
        self.assertIn("'door'", str(error))

    def test_so_is_a_global_name(self) -> None:
        names = written("import threading\nlock = threading.Lock()\ndef use():\n    return lock\n")
        self.assertIn("'lock'", str(self.assertRaises(InvalidError, packed_function, names["use"])))

    def test_what_is_no_function_is_refused(self) -> None:
        for thing in (len, print, str, 3):
            self.assertRaises(InvalidError, packed_function, thing)
