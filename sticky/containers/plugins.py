"""How a container backend announces itself: a Twisted plugin with a name and where its class is, imported when first used.

Must not import any backend: listing what is installed costs nothing and pulls in no event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import attrs
from twisted.plugin import IPlugin, getPlugins
from twisted.python.reflect import namedAny
from zope.interface import Attribute, Interface, implementer


class IBackendPlugin(Interface):
    """A way to run containers, found in `twisted.plugins`."""

    name: str = Attribute("as in the `backend` setting: lower-case letters, digits, - and _")

    def load() -> Callable[..., Any]:
        """The backend's class or factory: called with what its own documentation says, it gives an `IContainerBackend`."""


@implementer(IPlugin, IBackendPlugin)
@attrs.frozen
class BackendPlugin:
    """A backend by dotted name."""

    name: str
    dotted: str

    def load(self) -> Callable[..., Any]:
        """Import and return it. Raises ImportError or AttributeError where it is not installed whole."""
        return cast("Callable[..., Any]", namedAny(self.dotted))


def installed() -> Mapping[str, IBackendPlugin]:
    """The backends of this environment by name; of two with one name the first found."""
    backends: dict[str, IBackendPlugin] = {}
    for plugin in getPlugins(IBackendPlugin):
        backends.setdefault(plugin.name, plugin)
    return backends
