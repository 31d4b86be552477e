"""What `app.server` and `app.local_entrypoint` declare, and what they refuse at decoration time."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import TestCase

import sticky
from sticky.exception import InvalidError
from sticky.sdk.declaration import ServerDeclaration
from sticky.sdk.limits import NUMBERS


class Game:
    @sticky.enter()
    def start(self) -> None: ...


def declared(*, sessioned: dict[str, Any] | None = None, **arguments: Any) -> ServerDeclaration:
    """Declare a class like Game and give what the daemon would be told."""

    class Arena(Game): ...

    target: type = Arena if sessioned is None else sticky.sessioned(**sessioned)(Arena)
    server = sticky.App("games").server(**arguments)(target)
    assert server.declaration is not None
    return server.declaration


class ServerTests(TestCase):
    def refused(self, text: str, **arguments: Any) -> None:
        with self.assertRaises(InvalidError) as caught:
            declared(**arguments)
        self.assertIn(text, str(caught.exception))

    def test_the_class_name_is_the_default_name(self) -> None:
        self.assertEqual("Arena", declared().name)
        self.assertEqual("other-name", declared(name="other-name").name)

    def test_only_what_is_given_is_declared(self) -> None:
        self.assertEqual({}, dict(declared().settings))
        self.assertEqual(
            {"min_containers": 0, "serial": False}, dict(declared(min_containers=0, serial=False).settings)
        )

    def test_the_port_is_8000_unless_the_command_takes_one(self) -> None:
        self.assertEqual(8000, declared().port)
        self.assertIsNone(declared(port=None).port)
        app = sticky.App("a")
        plain: Any = type("Plain", (), {})
        server = app.server(command=["./run", "--port={port}"])(plain)
        assert server.declaration is not None
        self.assertEqual((None, ("./run", "--port={port}")), (server.declaration.port, server.declaration.command))

    def test_sessioned_arguments_may_stand_in_either_place(self) -> None:
        below = declared(sessioned={"max_concurrency": 64, "target_concurrency": 3})
        above = declared(sessioned={}, max_concurrency=64, target_concurrency=3)
        self.assertEqual(below, above)
        self.assertTrue(below.sessioned)

    def test_sessioned_arguments_that_disagree_are_refused(self) -> None:
        self.refused(
            "max_concurrency=64 is not allowed; it must be given once: @app.server() says 32",
            sessioned={"max_concurrency": 64},
            max_concurrency=32,
        )

    def test_one_decorator_may_serve_two_classes(self) -> None:
        decorate = sticky.App("a").server(min_containers=1)

        @sticky.sessioned(max_concurrency=5)
        class First(Game): ...

        class Second(Game): ...

        first, second = decorate(First).declaration, decorate(Second).declaration
        assert first is not None and second is not None
        self.assertNotIn("max_concurrency", second.settings)

    def test_bounds_between_arguments(self) -> None:
        self.refused(
            "target_concurrency=5 is not allowed; it must be from 1 to max_concurrency, which is 4",
            sessioned={"max_concurrency": 4, "target_concurrency": 5},
        )
        self.refused(
            "min_containers=9 is not allowed; it must be from 0 to max_containers, which is 8", min_containers=9
        )
        self.refused("max_containers, which is 2", max_containers=2, buffer_containers=3)
        self.refused(
            "max_total_containers=2 is not allowed; it must be such that max_containers (8)", max_total_containers=2
        )
        self.refused("max_idle_timeout, which is 43200", idle_timeout=50_000)
        self.refused(
            "container_max_age=100 is not allowed; it must be such that idle_timeout (600) is at most max_idle_timeout (50)",
            container_max_age=100,
        )

    def test_every_number_is_checked_at_both_ends(self) -> None:
        for key, allowed in NUMBERS.items():
            for value in (allowed.low - 1, allowed.high + 1, float("nan"), float("inf"), "1", True, [1]):
                self.refused(f"{key}=", **{key: value})
                self.refused(str(allowed), **{key: value})

    @given(st.sampled_from(sorted(NUMBERS)), st.one_of(st.integers(), st.floats(), st.text(max_size=5), st.booleans()))
    def test_a_number_is_declared_as_it_is_or_refused_by_name(self, key: str, value: Any) -> None:
        try:
            settings = declared(**{key: value}).settings
        except InvalidError as error:
            self.assertTrue(str(error).startswith(f"{key}={value!r} is not allowed; it must be "), str(error))
        else:
            self.assertTrue(NUMBERS[key].allows(value))
            self.assertEqual({key: value}, dict(settings))

    def test_wrong_types_and_choices(self) -> None:
        self.refused("serial='yes' is not allowed; it must be True or False", serial="yes")
        self.refused("placement='random' is not allowed; it must be 'spread' or 'pack'", placement="random")
        self.refused("hosts='a.localhost' is not allowed; it must be a list of texts", hosts="a.localhost")
        self.refused("ended_status=404 is not allowed; it must be 410 or 401", ended_status=404)
        self.refused("port=0 is not allowed; it must be a whole number from 1 to 65535", port=0)
        self.refused("port='8000' is", port="8000")
        self.refused("name='a b' is not allowed; it must be 1 to 63", name="a b")
        self.refused("memory='much' is not allowed; it must be a size such as '512Mi'", memory="much")
        self.refused("ready={'path': 'x'}", ready={"path": "x"})
        self.refused("command='python x' is not allowed; it must be a list of texts", command="python x")
        self.refused("command=[] is not allowed", command=[])
        self.refused("python='' is not allowed", python="")

    def test_a_long_value_is_cut(self) -> None:
        self.refused("..." + " is not allowed", name="x" * 500)

    def test_ready_by_path(self) -> None:
        self.assertEqual({"ready": {"path": "/healthz"}}, dict(declared(ready={"path": "/healthz"}).settings))

    def test_values_of_env_are_never_repeated(self) -> None:
        with self.assertRaises(InvalidError) as caught:
            declared(env={"PASSWORD": b"hunter2"})
        self.assertIn("env['PASSWORD'] is a bytes", str(caught.exception))
        self.assertNotIn("hunter2", str(caught.exception))
        self.refused("env has the name '1A'", env={"1A": "x"})
        self.refused("env is a list", env=["A"])

    def test_secrets_are_references_only(self) -> None:
        self.assertEqual({"secrets": {"KEY": "env:KEY"}}, dict(declared(secrets=["KEY"]).settings))
        self.assertEqual({"secrets": {"KEY": "env:OTHER"}}, dict(declared(secrets={"KEY": "env:OTHER"}).settings))
        with self.assertRaises(InvalidError) as caught:
            declared(secrets={"KEY": "hunter2"})
        self.assertIn("secrets['KEY'] is not a reference", str(caught.exception))
        self.assertNotIn("hunter2", str(caught.exception))
        self.refused("secrets is a str", secrets="KEY")

    def test_a_command_is_instead_of_hooks_and_python(self) -> None:
        self.refused("has hooks and command=", command=["./run"])
        self.refused("python='/v/bin/python' is not allowed", command=["./run"], python="/v/bin/python")


class SnapshotTests(TestCase):
    class Heavy:
        @sticky.enter(snap=True)
        def load(self) -> None: ...

        @sticky.enter()
        def serve(self) -> None: ...

    def declare(self, **arguments: Any) -> ServerDeclaration:
        server = sticky.App("app").server(**arguments)(self.Heavy)
        assert server.declaration is not None
        return server.declaration

    def test_it_is_declared(self) -> None:
        heavy = self.declare(preimport=["numpy", "sklearn.svm"])
        self.assertTrue(heavy.snap)
        self.assertEqual(heavy.settings, {"preimport": ["numpy", "sklearn.svm"]})
        self.assertFalse(declared().snap)

    def test_what_cannot_be_forked_is_refused_and_says_why(self) -> None:
        for arguments, text in (
            (
                {"isolation": {"network": True}},
                "isolation['network']=True is not allowed; it must be left out for containers",
            ),
            ({"isolation": {"read_only": True}}, "it takes a process of its own from its beginning"),
            (
                {"isolation": {"descendants": "pid_namespace"}},
                "isolation['descendants']='pid_namespace' is not allowed",
            ),
            (
                {"backend": "docker"},
                "snapshot=False runs enter(snap=True) hooks and imports preimport in each container",
            ),
        ):
            with self.assertRaises(InvalidError) as caught:
                self.declare(**arguments)
            self.assertIn(text, str(caught.exception))
            self.declare(**arguments, snapshot=False)

    def test_what_goes_with_it(self) -> None:
        self.declare(
            isolation={"network": False, "descendants": "cgroup"}, memory="512Mi", user="nobody", backend="process"
        )

    def test_preimport_is_names_of_modules_and_not_for_a_command(self) -> None:
        for wrong in ("numpy", ["a b"], ["-x"], [""], [1]):
            with self.assertRaisesRegex(InvalidError, "preimport="):
                self.declare(preimport=wrong)
        with self.assertRaisesRegex(InvalidError, "a command is run without Python"):
            sticky.App("app").server(command=["x"], preimport=["numpy"])


class ClassRuleTests(TestCase):
    def refused(self, text: str, cls: Any) -> None:
        app = sticky.App("a")
        with self.assertRaises(InvalidError) as caught:
            app.server()(cls)
        self.assertIn(text, str(caught.exception))
        self.assertEqual({}, app.servers)

    def test_a_function_is_no_server(self) -> None:
        def start() -> None: ...

        self.refused("a function; it must be on a class", start)

    def test_an_own_init_is_refused(self) -> None:
        class Early(Game):
            def __init__(self) -> None: ...

        self.refused("has an __init__; a Server must not: move it into a method with @sticky.enter()", Early)

    def test_an_inherited_init_is_refused(self) -> None:
        class Early(Game):
            def __init__(self) -> None: ...

        class Later(Early): ...

        self.refused("Later has an __init__", Later)

    def test_a_server_needs_an_enter_hook_or_a_command(self) -> None:
        class Idle:
            @sticky.exit()
            def stop(self) -> None: ...

        self.refused("has no enter hook", Idle)

    def test_names_are_unique_in_an_app(self) -> None:
        app = sticky.App("games")
        app.server()(Game)
        with self.assertRaisesRegex(InvalidError, "the app 'games' has this Server already"):
            app.server()(Game)

    def test_parentheses_are_asked_for(self) -> None:
        with self.assertRaisesRegex(InvalidError, r"write @app.server\(\) with parentheses"):
            sticky.App("a").server(Game)

    def test_arguments_are_keyword_only(self) -> None:
        server: Any = sticky.App("a").server
        with self.assertRaisesRegex(
            InvalidError, "was given 2 arguments without a name; it takes none; by name it takes name, port"
        ):
            server(None, 8000)

    def test_an_app_needs_a_name_for_logs_and_urls(self) -> None:
        wrong: Any
        for wrong in ("", "a/b", "-x", "x" * 64, None, 3):
            with self.assertRaisesRegex(InvalidError, "name="):
                sticky.App(wrong)


class EntrypointTests(TestCase):
    def test_it_is_registered_and_stays_a_function(self) -> None:
        app = sticky.App("a")

        def main(count: int = 1) -> int:
            return count

        self.assertIs(main, app.local_entrypoint()(main))
        self.assertEqual(("main",), app.declaration().entrypoints)

    def test_it_takes_no_required_arguments(self) -> None:
        def main(count: int) -> None: ...

        with self.assertRaisesRegex(InvalidError, "its arguments must have defaults"):
            sticky.App("a").local_entrypoint()(main)

    def test_it_is_a_function_and_needs_parentheses(self) -> None:
        with self.assertRaisesRegex(InvalidError, "must be on a function"):
            sticky.App("a").local_entrypoint()(Game)
        with self.assertRaisesRegex(InvalidError, "with parentheses"):
            sticky.App("a").local_entrypoint(lambda: None)

    def test_two_of_one_name_are_refused(self) -> None:
        app = sticky.App("a")

        def main() -> None: ...

        app.local_entrypoint()(main)
        with self.assertRaisesRegex(InvalidError, "'main' already"):
            app.local_entrypoint()(main)
