"""Arrows between the rooms go one way: who imports whom, read from the source. The table below is the architecture."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import attrs
from twisted.trial.unittest import SynchronousTestCase

ROOT = Path(__file__).parents[1]

#: Room (a folder or file directly in `sticky`) -> what of ours it may import, with everything below that name.
ARROWS: Mapping[str, Sequence[str]] = {
    "__init__": ("exception", "sdk"),
    "_version": (),
    "errors": (),
    "core": ("core", "errors"),
    "isticky": ("core.values", "core.tokens"),
    "edge": ("edge", "core.values", "core.tokens", "doors", "errors", "exhaustion", "isticky", "networks", "observe"),
    "networks": (),
    "doors": ("exhaustion",),
    "exhaustion": (),
    "peer": (),
    "control": (
        "control",
        "core.values",
        "core.tokens",
        "core.proxy_tokens",
        "errors",
        "isticky",
        "edge.wire",
        "observe",
    ),
    "observe": ("observe", "core.values", "errors", "isticky"),
    # The runtime runs inside a container and loads users' classes; nothing here knows sessions or how they are started.
    "containers": (
        "containers",
        "core.values",
        "doors",
        "errors",
        "exhaustion",
        "forking",
        "isticky",
        "networks",
        "sdk.declaration",
        "sdk.decorators",
        "sdk.exception",
        "sdk.loading",
        "sdk.server",
    ),
    "meant": (),
    "config": ("config", "core.values", "core.proxy_tokens", "errors", "meant"),
    # The service owns the fleet and feeds it; a lease is the service's side of one request.
    "service": (
        "causes",
        "core",
        "errors",
        "isticky",
        "lease",
        "turn_leases",
        "session_answers",
        "journal",
        "running",
        "granting",
        "minting",
        "observe.safely",
        "visits",
    ),
    "causes": (
        "containers.docker.faults",
        "core",
        "errors",
        "running",
    ),  # how an end that no program is to blame for is told
    "session_answers": ("core", "errors", "isticky", "journal.writer", "lease"),
    "running": ("core", "isticky", "journal", "witness"),
    "granting": ("core", "errors", "isticky", "journal.writer", "minting", "waiting"),
    "waiting": ("core.values", "isticky"),
    "minting": ("core.container", "core.tokens", "core.values"),
    "journal": ("journal", "core", "errors", "isticky", "startup"),
    "startup": (),
    "visits": ("core.values", "errors", "isticky", "observe.safely"),
    "lease": ("core.session", "core.tokens", "core.values", "errors", "isticky", "observe.safely"),
    "turn_leases": ("core.session", "core.tokens", "core.values", "errors", "isticky", "lease"),
    # What a Server runs and when that changes: the service carries out, the wiring makes the parts.
    "deployments": ("config.settings", "core.values", "isticky"),
    "deploying": ("config", "core", "daemon", "deployments", "errors", "iinspection", "sdk.exception", "service"),
    "health": ("core.values", "exhaustion", "isticky"),
    "hangup": (),
    "daemon": (
        "service",
        "lease",
        "journal",
        "notify",
        "observe.safely",
        "core.values",
        "core.tokens",
        "errors",
        "isticky",
        "startup",
    ),
    "keys": ("core.tokens", "core.proxy_tokens", "errors"),
    "forking": ("forking",),  # the same, whatever runs there
    "sandbox": ("forking", "sandbox"),  # runs in containers; its frames are shared with clients
    "sdk": (
        "sandbox.frames",
        "sdk",
        "admin.sockets",
        "core.values",
        "errors",
        "edge.wire",
        "_version",
        "exception",
        "meant",
    ),
    "exception": ("sdk.exception",),
    # The command reaches a daemon through its admin API only; what it shares with that is names and files' places.
    "cli": (
        "cli",
        "_version",
        "admin.bodies",
        "admin.sockets",
        "admin.tails",
        "errors",
        "config",
        "containers.census",  # the doctor looks at the machine as containers will
        "containers.cgroups",
        "containers.describe",
        "containers.plugins",
        "core.proxy_tokens",
        "core.values",
        "edge.wire",
        "possible",  # `sticky check` asks what a daemon asks
        "sdk",
    ),
    # The admin API sees state through iinspection alone; inspection is what looks into services and fleets for it.
    "admin": (
        "admin",
        "startup",
        "_version",
        "config.settings",
        "core.proxy_tokens",
        "core.values",
        "errors",
        "exhaustion",
        "iinspection",
        "ioperating",
        "irestarting",
        "isticky",
        "observe.access",
        "peer",
        "sdk.exception",
    ),
    "inspection": (
        "minting",
        "_version",
        "config.settings",
        "containers.logs",
        "core",
        "daemon",
        "errors",
        "iinspection",
        "isticky",
        "journal.places",
        "keys",
        "service",
        "witness",
    ),
    "iinspection": ("core.values", "isticky"),
    "ioperating": ("core.values",),
    "operating": (
        "autoscaling",
        "config",
        "core.proxy_tokens",
        "daemon",
        "errors",
        "ioperating",
        "keyring",
        "keys",
        "token_store",
    ),
    "keyring": ("core.tokens", "errors", "keys"),
    "token_store": ("core.proxy_tokens", "errors", "keys"),
    "autoscaling": ("config", "core.values", "daemon", "errors", "ioperating"),
    "witness": ("core.values", "iinspection", "isticky"),
    "listeners": ("edge.context", "exhaustion", "sockets", "startup"),
    "sockets": (),
    # One daemon after the other.
    "succession": (),
    "notify": (),
    "irestarting": ("errors",),
    "restarting": ("errors", "succession", "workers.frames"),
    "stepping_down": (
        "admin.service",
        "core.tokens",
        "core.values",
        "daemon",
        "edge.context",
        "edge.websocket",
        "errors",
        "isticky",
        "journal.service",
        "listeners",
        "observe.safely",
        "sockets",
        "turn_leases",
        "workers",
    ),
    "successor": ("_version", "admin.service", "listeners", "succession", "workers"),
    # Proxies in other processes: the seam between the edge and the daemon's state, spread over a socket.
    "workers": (
        "workers",
        "core.tokens",
        "core.values",
        "edge.client",
        "edge.context",
        "edge.limits",
        "edge.serving",
        "edge.site",
        "edge.websocket",
        "errors",
        "iinspection",
        "isticky",
        "lease",
        "observe.access",
        "observe.safely",
        "peer",
        "visits",
    ),
    # Only here everything meets.
    "wiring": ("",),
    "worker": ("",),
    "parts": ("",),
    "possible": (
        "config.settings",
        "containers.abilities",
        "containers.docker.blocking",
        "containers.docker.faults",
        "containers.isolation",
        "containers.ownership",
        "errors",
        "sockets",
    ),
    "tap": ("wiring", "startup", "config", "containers.describe", "containers.plugins", "errors", "_version"),
}

#: What the pure core must not see: clocks, chance, the machine.
# fmt: off
IMPURE = frozenset({
    "asyncio", "concurrent", "datetime", "io", "logging", "multiprocessing", "os", "pathlib",
    "random", "secrets", "select", "selectors", "shutil", "signal", "socket", "sqlite3",
    "ssl", "subprocess", "sys", "tempfile", "threading", "time", "uuid",
})
# fmt: on

#: Importing one of these imports the reactor.
REACTORS = (
    "twisted.internet.reactor",
    "twisted.web.proxy",
    "twisted.runner.procmon",
    "twisted.web.wsgi",
    "klein",
)


@attrs.frozen
class Import:
    """One imported name, as far as it can be told from the source."""

    module: str  #: "sticky.errors", "os.path"
    line: int
    top: bool  #: runs when the module is imported


def imports(tree: ast.Module) -> Iterator[Import]:
    """All imports of a module, those in functions too."""
    functions = [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    ]
    inner = {id(node) for function in functions for node in ast.walk(function)}
    for node in ast.walk(tree):
        top = id(node) not in inner
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, top)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "relative imports hide arrows"
            for alias in node.names:
                yield Import(_named(node.module or "", alias.name), node.lineno, top)


def _named(module: str, name: str) -> str:
    """`from twisted.internet import reactor` imports a module, `from sticky.errors import ConfigError` a part of one."""
    whole = f"{module}.{name}"
    folder = ROOT.joinpath(*whole.split("."))
    if whole in REACTORS or folder.is_dir() or folder.with_suffix(".py").is_file():
        return whole
    return module


def sources(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def room_of(path: Path) -> str:
    part = path.relative_to(ROOT / "sticky").parts[0]
    return part.removesuffix(".py")


def wrong_arrows(room: str, found: Sequence[Import]) -> list[str]:
    """Those of the imports that this room must not have."""
    allowed = ARROWS[room]
    wrong = []
    for one in found:
        package, _, target = one.module.partition(".")
        if (
            package == "sticky"
            and target
            and not any(not name or target == name or target.startswith(f"{name}.") for name in allowed)
        ):
            wrong.append(one.module)
    return wrong


def impurities(found: Sequence[Import], tokens: bool) -> list[str]:
    """Those of the imports that have no place in the core. `tokens`: in a file about tokens."""
    wrong = []
    for one in found:
        package = one.module.partition(".")[0]
        known = package in sys.stdlib_module_names or package in ("attrs", "sticky") or (package == "nacl" and tokens)
        if package in IMPURE or not known:
            wrong.append(one.module)
    return wrong


def reactors(found: Sequence[Import]) -> list[str]:
    """Those of the imports that install a reactor as soon as the module is imported."""
    return [one.module for one in found if one.top and one.module.startswith(REACTORS)]


PICKLES = ("pickle", "_pickle", "cloudpickle", "marshal", "shelve", "dill", "multiprocessing")  #: what unpickles


class ArrowTests(SynchronousTestCase):
    def test_no_room_imports_what_it_must_not_know(self) -> None:
        seen = set()
        for path in sources("sticky"):
            room = room_of(path)
            seen.add(room)
            self.assertIn(room, ARROWS, f"{path.relative_to(ROOT)}: a new room needs a row in the table of arrows")
            wrong = wrong_arrows(room, list(imports(ast.parse(path.read_text()))))
            self.assertEqual(wrong, [], f"{path.relative_to(ROOT)} must not import this")
        self.assertLessEqual({"core", "edge", "control", "containers", "config", "sdk", "tap"}, seen)

    def test_the_core_is_pure(self) -> None:
        paths = list(sources("sticky/core"))
        self.assertGreater(len(paths), 5)
        for path in [*paths, ROOT / "sticky/errors.py"]:
            wrong = impurities(list(imports(ast.parse(path.read_text()))), "tokens" in path.stem)
            self.assertEqual(wrong, [], f"{path.relative_to(ROOT)} must not import this")

    def test_no_module_imports_the_reactor_when_it_is_imported(self) -> None:
        for path in sources("sticky", "twisted"):
            self.assertEqual(reactors(list(imports(ast.parse(path.read_text())))), [], str(path.relative_to(ROOT)))

    def test_nothing_reads_a_pickle_but_a_sandbox_and_the_client_that_made_the_call(self) -> None:
        found = {
            str(path.relative_to(ROOT / "sticky"))
            for path in sources("sticky")
            for one in imports(ast.parse(path.read_text()))
            if one.module.partition(".")[0] in PICKLES
        }
        readers = {"sandbox/interpreter.py", "sandbox/forkserver.py", "sdk/calls/capture.py", "sdk/calls/outcomes.py"}
        self.assertEqual(found, readers)


class WalkTests(SynchronousTestCase):
    """The walk above sees what it is there to see."""

    def read(self, source: str) -> list[Import]:
        return list(imports(ast.parse(source)))

    def test_wrong_arrows_in_every_spelling(self) -> None:
        for source in (
            "import sticky.service",
            "from sticky import service",
            "from sticky.service import ServerService",
            "def late():\n    from sticky import service",
            "if TYPE_CHECKING:\n    from sticky import service as s",
        ):
            self.assertEqual(wrong_arrows("edge", self.read(source)), ["sticky.service"], source)
        self.assertEqual(
            wrong_arrows("edge", self.read("from sticky.core import fleet, values")), ["sticky.core.fleet"]
        )
        self.assertEqual(wrong_arrows("edge", self.read("import sticky.core.valuesque")), ["sticky.core.valuesque"])
        self.assertEqual(wrong_arrows("edge", self.read("from sticky import errors\nimport attrs")), [])
        self.assertEqual(wrong_arrows("wiring", self.read("from sticky.core import fleet")), [])

    def test_impure_imports(self) -> None:
        source = "import time\nfrom os.path import join\nimport twisted\nimport nacl.signing\nimport math\nimport attrs"
        self.assertEqual(impurities(self.read(source), tokens=True), ["time", "os.path", "twisted"])
        self.assertEqual(impurities(self.read("import nacl.signing"), tokens=False), ["nacl.signing"])

    def test_reactors_at_the_top_only(self) -> None:
        self.assertEqual(
            reactors(self.read("from twisted.internet import defer, reactor")), ["twisted.internet.reactor"]
        )
        self.assertEqual(reactors(self.read("class A:\n    import klein")), ["klein"])
        self.assertEqual(reactors(self.read("def run():\n    from twisted.internet import reactor")), [])
