"""Arguments that a call does not take: which one, what there is, what was meant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

import sticky
from sticky.exception import InvalidError
from sticky.sdk.twisted import TwistedServer

app = sticky.App("arguments")
TOKEN = "v4.public.SECRET"


@app.server()
@sticky.sessioned()
class Game:
    @sticky.enter()
    def start(self) -> None: ...


loose: Any = sticky  # as a program without types calls it
game: Any = Game
UPDATE = "min_containers, max_containers, buffer_containers, scaleup_window, scaledown_window"
REMOTE = "timeout, memory, packages, result, disable_optimized_execution, server"


class ArgumentTests(SynchronousTestCase):
    def said(self, call: Callable[[], object]) -> str:
        return str(self.assertRaises(InvalidError, call))

    def test_every_call_names_what_it_does_not_know(self) -> None:
        twisted: Any = TwistedServer(game, Clock())
        for call, wanted in (
            (lambda: loose.App("a", nmae="b"), "sticky.App() has no argument 'nmae'; did you mean name? It takes name"),
            (lambda: loose.App(nonsense=1), "sticky.App() has no argument 'nonsense'; it takes name"),
            (lambda: loose.enter(order=1), "sticky.enter() has no argument 'order'; it takes snap"),
            (lambda: loose.exit(order=1), "sticky.exit() has no argument 'order'; it takes no arguments"),
            (
                lambda: loose.sessioned(max_concurency=64),
                "sticky.sessioned() has no argument 'max_concurency'; did you mean max_concurrency?"
                " It takes max_concurrency, target_concurrency",
            ),
            (
                lambda: app.local_entrypoint(name="x"),  # type: ignore[call-arg]
                "app.local_entrypoint() has no argument 'name'; it takes no arguments",
            ),
            (
                lambda: loose.Server.from_name("a", "b", environment="x"),
                "Server.from_name() has no argument 'environment'; it takes app, name",
            ),
            (lambda: loose.Server.from_name("a"), "Server.from_name() was not given name; it takes app, name"),
            (
                lambda: game.sessions.start(idle_timout=5),
                "sessions.start() has no argument 'idle_timout'; did you mean idle_timeout? It takes idle_timeout, name",
            ),
            (
                lambda: game.sessions.start(60, "lobby"),
                "sessions.start() was given 2 arguments without a name; it takes at most 1 arguments without a name"
                " (idle_timeout); by name it takes idle_timeout, name",
            ),
            (
                lambda: game.sessions.start(60, idle_timeout=60),
                "sessions.start() was given idle_timeout twice, by its place and by its name",
            ),
            (lambda: game.sessions.terminate(), "sessions.terminate() was not given token; it takes token, grace"),
            (lambda: game.sessions.list(limit=5), "sessions.list() has no argument 'limit'; it takes no arguments"),
            (
                lambda: game.sessions.list(5),
                "sessions.list() was given 1 arguments without a name; it takes none",
            ),
            (
                lambda: game.autoscaler.update(max_container=5),
                f"autoscaler.update() has no argument 'max_container'; did you mean max_containers? It takes {UPDATE}",
            ),
            (lambda: game.get_url(path="/"), "server.get_url() has no argument 'path'; it takes no arguments"),
            (
                lambda: twisted.sessions.start(idle_timout=5),
                "sessions.start() has no argument 'idle_timout'; did you mean idle_timeout? It takes idle_timeout, name",
            ),
            (
                lambda: twisted.autoscaler.update(max_container=5),
                f"autoscaler.update() has no argument 'max_container'; did you mean max_containers? It takes {UPDATE}",
            ),
            (
                lambda: loose.remote(memroy="1Gi"),
                f"sticky.remote() has no argument 'memroy'; did you mean memory? It takes {REMOTE}",
            ),
            (
                lambda: loose.Session(sever="x"),
                "sticky.Session() has no argument 'sever'; did you mean server? It takes name, server",
            ),
        ):
            self.assertEqual(wanted, self.said(call))

    def test_a_server_says_all_that_it_takes(self) -> None:
        said = self.said(lambda: app.server(max_containres=4))  # type: ignore[call-arg]
        start = (
            "app.server() has no argument 'max_containres'; did you mean max_containers? It takes name, port, command, "
        )
        self.assertTrue(said.startswith(start), said)
        for name in ("min_containers", "secrets", "python", "isolation"):
            self.assertRegex(said, rf"\b{name}\b")
        self.assertNotIn("self", said)
        self.assertNotIn("_missing", said)

    def test_values_are_not_repeated(self) -> None:
        for call in (
            lambda: game.sessions.terminate(tokne=TOKEN),
            lambda: game.sessions.terminate(TOKEN, TOKEN),
            lambda: game.sessions.status(TOKEN, grace=5),
        ):
            self.assertNotIn("SECRET", self.said(call))

    def test_a_value_in_the_place_of_what_a_decorator_is_on(self) -> None:
        for call, wanted in (
            (lambda: loose.App("x").server(8000), "app.server() takes its arguments by name: app.server(port=8000)"),
            (
                lambda: loose.sessioned(20),
                "sticky.sessioned() takes its arguments by name: sticky.sessioned(max_concurrency=20)",
            ),
            (lambda: loose.enter(1), "sticky.enter() takes no arguments"),
            (lambda: loose.remote("512Mi"), "@sticky.remote is on a str; it must be on a function"),
            (lambda: loose.remote(memory="1Gi")(game.cls), "@sticky.remote is on the class Game; it must be on a function"),
        ):  # fmt: skip
            self.assertEqual(wanted, self.said(call))

    def test_what_a_remote_function_asks_for_is_checked(self) -> None:
        for call, wanted in (
            (lambda: loose.remote(packages=5), "packages=5 is not allowed; it must be a list of names"),
            (lambda: loose.remote(packages="numpy"), "packages='numpy' is not allowed; it must be a list of names"),
            (lambda: loose.remote(server="a b"), "server='a b' is not allowed; it must be 1 to 63 letters"),
            (lambda: loose.Session(server=5), "server=5 is not allowed; it must be 1 to 63 letters"),
            (
                lambda: loose.remote(disable_optimized_execution=1),
                "disable_optimized_execution=1 is not allowed; it must be True or False",
            ),
        ):
            self.assertTrue(self.said(call).startswith(wanted), self.said(call))

    def test_a_right_call_is_as_ever(self) -> None:
        self.assertEqual("b", sticky.Server.from_name("a", name="b").name)
        self.assertEqual("App.server", sticky.App.server.__qualname__)
        assert sticky.App.server.__doc__ is not None
        self.assertIn("Make a class a Server.", sticky.App.server.__doc__)
