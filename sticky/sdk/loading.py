"""From a target on a command line to an App object, by importing user code.

Owns which file or module a target names and what is wrong with it. Only ever called in a process that is the user's own: the
containers' runtime, or `sticky run`.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import traceback
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from sticky.sdk.app import App
from sticky.sdk.decorators import sessioned_mark
from sticky.sdk.exception import InvalidError


class LoadError(InvalidError):
    """An app cannot be loaded. `trace` is the user's traceback, or empty."""

    def __init__(self, message: str, trace: str = "") -> None:
        super().__init__(message)
        self.trace = trace


def split_target(target: str) -> tuple[str, str | None]:
    """`game.py:Server` -> (`game.py`, `Server`); without a name the second is None."""
    head, colon, name = target.rpartition(":")
    if colon and head and name.isidentifier():
        return head, name
    return target, None


def names_file(target: str) -> bool:
    """Whether a target (without `:Name`) means a file and not a module."""
    return target.endswith(".py") or os.sep in target


def no_file(path: Path) -> str:
    """What is to be said of a path that is no file. It has to be absolute."""
    if path.is_dir():
        return f"{path} is a folder: name the app's file in it, such as {path / 'app.py'}"
    return f"there is no file {path}"


def load_app(target: str) -> App:
    """Import a file or module and give the one App in it. Raises `LoadError`; `sys.path` and `sys.modules` change.

    An error raised by the import is reported with its traceback, `SystemExit` included; only KeyboardInterrupt passes.
    """
    module = _import_file(Path(target)) if names_file(target) else _import_module(target)
    apps = list({id(value): value for value in vars(module).values() if isinstance(value, App)}.values())
    if not apps:
        if Path(target).is_dir():  # Python takes any folder for a package
            raise LoadError(no_file(Path(os.path.abspath(target))))
        raise LoadError(f"there is no App in {target}: write app = sticky.App(...)")
    if len(apps) > 1:
        names = ", ".join(repr(app.name) for app in apps)
        raise LoadError(f"there are several Apps in {target} ({names}): keep one")
    for name, value in vars(module).items():
        if isinstance(value, type) and value.__module__ == module.__name__ and sessioned_mark(value) is not None:
            raise LoadError(f"{name} in {target} has @sticky.sessioned() but is no Server: put @app.server() above it")
    return apps[0]


class _Fresh(SourceFileLoader):
    """Reads the source and no cache: that goes by seconds and size, and somebody may be editing."""

    def get_code(self, fullname: str) -> CodeType:
        """See `importlib.abc.InspectLoader`."""
        return self.source_to_code(self.get_data(self.path), self.path)


def _import_file(path: Path) -> ModuleType:
    path = path.absolute()
    if not path.is_file():
        raise LoadError(no_file(path))
    # What `python game.py` would do, so that the file finds its neighbours.
    sys.path.insert(0, str(path.parent))
    name = path.stem if path.stem not in sys.modules else f"_sticky_app_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path, loader=_Fresh(name, str(path)))
    if spec is None or spec.loader is None:
        raise LoadError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        sys.modules.pop(name, None)
        raise _failed(str(path), error) from None
    return module


def _import_module(name: str) -> ModuleType:
    if name.endswith(".toml"):
        raise LoadError(
            f"{name} holds settings and is no app; start it with: twistd -n --pidfile= sticky --config {name}"
        )
    if not all(part.isidentifier() for part in name.split(".")):
        path = Path(os.path.abspath(name))
        raise LoadError(f"{path} is not a Python file: its name must end with .py" if path.is_file() else no_file(path))
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        parents = {".".join(name.split(".")[:length]) for length in range(1, name.count(".") + 2)}
        if isinstance(error, ModuleNotFoundError) and error.name in parents:
            if Path(name).is_file():
                raise LoadError(f"{name} is not a Python file: its name must end with .py") from None
            raise LoadError(
                f"there is no module {name}, and no file of that name (looked in {os.getcwd()} and the Python path)"
            ) from None
        raise _failed(name, error) from None


def _failed(where: str, error: BaseException) -> LoadError:
    last = str(error) if isinstance(error, InvalidError) else traceback.format_exception_only(error)[-1].strip()
    return LoadError(
        f"importing {where} failed: {last}{_place(error)}",
        "".join(traceback.format_exception(type(error), error, error.__traceback__)),
    )


def _place(error: BaseException) -> str:
    """The user's own line, not ours."""
    if isinstance(error, SyntaxError):
        return f" ({error.filename}, line {error.lineno})"
    ours = str(Path(__file__).parent)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(("<frozen", ours)):
            return f" ({frame.filename}, line {frame.lineno})"
    return ""
