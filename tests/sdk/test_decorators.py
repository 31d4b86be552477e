"""The rules of a Server class and of what may stand on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.trial.unittest import TestCase

import sticky
from sticky.exception import InvalidError
from sticky.sdk.decorators import check_class, enter_hooks, hook_names


class Base:
    @sticky.enter()
    def one(self) -> None: ...

    @sticky.enter()
    async def two(self) -> None: ...

    @sticky.exit()
    def last(self) -> None: ...


class HookTests(TestCase):
    def refused(self, text: str, act: Callable[[], Any]) -> None:
        with self.assertRaises(InvalidError) as caught:
            act()
        self.assertIn(text, str(caught.exception))

    def test_hooks_keep_the_order_of_the_class_body(self) -> None:
        self.assertEqual(("one", "two"), hook_names(Base, "enter"))
        self.assertEqual(("last",), hook_names(Base, "exit"))

    def test_a_base_class_comes_first(self) -> None:
        class Derived(Base):
            @sticky.enter()
            def zero(self) -> None: ...

        self.assertEqual(("one", "two", "zero"), hook_names(Derived, "enter"))

    def test_an_override_without_mark_is_no_hook(self) -> None:
        class Derived(Base):
            def one(self) -> None: ...

        self.assertEqual(("two",), hook_names(Derived, "enter"))

    def test_an_override_with_mark_keeps_its_place(self) -> None:
        class Derived(Base):
            @sticky.enter()
            def one(self) -> None: ...

        self.assertEqual(("one", "two"), hook_names(Derived, "enter"))

    def test_parentheses_are_asked_for(self) -> None:
        self.refused("write @sticky.enter() with parentheses", lambda: sticky.enter(lambda self: None))
        self.refused("write @sticky.exit() with parentheses", lambda: sticky.exit(lambda self: None))
        self.refused("write @sticky.sessioned() with parentheses", lambda: sticky.sessioned(Base))

    def test_a_hook_takes_self_and_nothing_else(self) -> None:
        def hook(self: object, port: int) -> None: ...

        self.refused("hook(self: 'object', port: 'int') -> 'None'; it must take self", lambda: sticky.enter()(hook))

    def test_a_hook_with_defaults_is_fine(self) -> None:
        def hook(self: object, port: int = 3) -> None: ...

        self.assertIs(hook, sticky.enter()(hook))

    def test_a_generator_is_no_hook(self) -> None:
        def hook(self: object) -> Any:
            yield

        async def stream(self: object) -> Any:
            yield

        self.refused("which yields", lambda: sticky.enter()(hook))
        self.refused("which yields", lambda: sticky.exit()(stream))

    def test_a_class_is_no_hook(self) -> None:
        self.refused("@sticky.enter() is on Base, a type; it must be on a method", lambda: sticky.enter()(Base))

    def test_a_hook_is_of_one_kind(self) -> None:
        def hook(self: object) -> None: ...

        sticky.enter()(hook)
        self.refused("the other kind of hook already", lambda: sticky.exit()(hook))


class SessionedTests(HookTests):
    def test_it_must_be_on_a_class(self) -> None:
        def function() -> None: ...

        decorate: Any = sticky.sessioned()
        self.refused("a function; it must be on a class, below @app.server()", lambda: decorate(function))

    def test_it_must_stand_below_app_server(self) -> None:
        class Game(Base): ...

        server = sticky.App("a").server()(Game)
        decorate: Any = sticky.sessioned()
        self.refused("must stand below @app.server() on Game, not above it", lambda: decorate(server))

    def test_its_arguments_are_checked_at_once(self) -> None:
        self.refused(
            "max_concurrency=1001 is not allowed; it must be a whole number from 1 to 1000",
            lambda: sticky.sessioned(max_concurrency=1001),
        )
        self.refused("target_concurrency=0 is", lambda: sticky.sessioned(target_concurrency=0))
        wrong: Any = True
        self.refused("max_concurrency=True is", lambda: sticky.sessioned(max_concurrency=wrong))

    def test_a_base_class_does_not_make_its_subclasses_sessioned(self) -> None:
        @sticky.sessioned()
        class First(Base): ...

        class Second(First): ...

        app = sticky.App("a")
        first, second = app.server()(First), app.server()(Second)
        assert first.declaration is not None and second.declaration is not None
        self.assertEqual((True, False), (first.declaration.sessioned, second.declaration.sessioned))


class SnapTests(TestCase):
    def test_snap_hooks_come_first_whatever_their_place(self) -> None:
        class Heavy(Base):
            @sticky.enter(snap=True)
            def load(self) -> None: ...

            @sticky.enter(snap=True)
            async def table(self) -> None: ...

        self.assertEqual((("load", "table"), ("one", "two")), enter_hooks(Heavy))
        self.assertEqual(((), ("one", "two")), enter_hooks(Base))

    def test_an_override_decides_anew(self) -> None:
        class Heavy(Base):
            @sticky.enter(snap=True)
            def one(self) -> None: ...

        class Light(Heavy):
            @sticky.enter()
            def one(self) -> None: ...

        self.assertEqual((("one",), ("two",)), enter_hooks(Heavy))
        self.assertEqual(((), ("one", "two")), enter_hooks(Light))

    def test_a_server_of_snap_hooks_alone_could_start_nothing(self) -> None:
        class Idle:
            @sticky.enter(snap=True)
            def load(self) -> None: ...

        with self.assertRaisesRegex(InvalidError, "no enter hook but with snap=True; a Server must have one without"):
            check_class(Idle, needs_hook=True)

    def test_snap_is_true_or_false_and_said_once(self) -> None:
        with self.assertRaisesRegex(InvalidError, r"snap='yes'\) is not allowed; it must be True or False"):
            sticky.enter(snap="yes")  # type: ignore[arg-type]
        with self.assertRaisesRegex(InvalidError, "twice, with and without snap"):
            sticky.enter()(sticky.enter(snap=True)(lambda self: None))
