"""What `import sticky` offers, each name loaded when it is first used.

The daemon, the containers' runtime and users' programs all import this package: it must stay free of work, and must never
import the event loop.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sticky import exception as exception
    from sticky.sdk.answers import ServerSessionCredentials as ServerSessionCredentials
    from sticky.sdk.answers import SessionStatus as SessionStatus
    from sticky.sdk.app import App as App
    from sticky.sdk.autoscaler import AutoscalerSettings as AutoscalerSettings
    from sticky.sdk.calls.functions import Session as Session
    from sticky.sdk.calls.functions import remote as remote
    from sticky.sdk.decorators import enter as enter
    from sticky.sdk.decorators import exit as exit
    from sticky.sdk.decorators import sessioned as sessioned
    from sticky.sdk.server import Server as Server

_HOMES = {
    "App": "sticky.sdk.app",
    "AutoscalerSettings": "sticky.sdk.autoscaler",
    "Server": "sticky.sdk.server",
    "Session": "sticky.sdk.calls.functions",
    "remote": "sticky.sdk.calls.functions",
    "ServerSessionCredentials": "sticky.sdk.answers",
    "SessionStatus": "sticky.sdk.answers",
    "enter": "sticky.sdk.decorators",
    "exit": "sticky.sdk.decorators",
    "sessioned": "sticky.sdk.decorators",
}

__all__ = [
    "App",
    "AutoscalerSettings",
    "Server",
    "ServerSessionCredentials",
    "Session",
    "SessionStatus",
    "enter",
    "exception",
    "exit",
    "remote",
    "sessioned",
]


def __getattr__(name: str) -> object:
    if name == "exception":
        return importlib.import_module("sticky.exception")
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'sticky' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
