"""A Server as users hold it: what a decorated class becomes, and what `from_name` gives.

Owns the object; must not know HTTP (`sessions`), nor where a daemon is found (`daemon`).
"""

from __future__ import annotations

from sticky.sdk.arguments import named
from sticky.sdk.autoscaler import Autoscaler
from sticky.sdk.calling import Carriers, call
from sticky.sdk.daemon import Daemon
from sticky.sdk.declaration import ServerDeclaration
from sticky.sdk.exception import InvalidError
from sticky.sdk.limits import DEFAULTS, check_name
from sticky.sdk.sessions import Sessions
from sticky.sdk.steps import Steps


class Server:
    """A handle on one Server. Making one asks nobody: the daemon is looked up when a call needs it."""

    def __init__(
        self,
        app: str,
        name: str,
        *,
        cls: type | None = None,
        declaration: ServerDeclaration | None = None,
        daemon: Daemon | None = None,
        carriers: Carriers | None = None,
    ) -> None:
        self.app = app
        self.name = name
        self.declaration = declaration  #: None for a Server known by name only
        self.cls = cls  #: the user's own class, for the containers' runtime
        self.carriers = Carriers() if carriers is None else carriers
        self._daemon = Daemon() if daemon is None else daemon

    def __repr__(self) -> str:
        return f"<sticky.Server {self.name!r} of app {self.app!r}>"

    def __call__(self, *arguments: object, **keywords: object) -> object:
        """Not for users: a Server class is built inside its container only. Raises `InvalidError`."""
        raise InvalidError(
            f"{self.name} is a Server: it is built inside its containers, use {self.name}.sessions.start()"
        )

    @classmethod
    @named("Server.from_name")
    def from_name(cls, app: str, name: str) -> Server:
        """A Server that a daemon runs, by the names of its app and itself; one that has no app is its own.

        Lazy: an unknown name is found out at first use, by a `NotFoundError` that lists those there are.
        """
        return cls(check_name("app", app), check_name("name", name))

    @property
    def sessions(self) -> Sessions:
        """Starting, looking at and ending sessions of this Server."""
        wait = None
        if self.declaration is not None:
            declared = self.declaration.settings.get("queue_timeout", DEFAULTS.queue_timeout)
            wait = float(declared) if isinstance(declared, int | float) else None
        return Sessions(self.app, self.name, self._daemon, longest_wait=wait, carriers=self.carriers)

    @property
    def autoscaler(self) -> Autoscaler:
        """How many containers it has."""
        return Autoscaler(self.app, self.name, self._daemon, self.carriers)

    @call
    def get_url(self) -> Steps[str]:
        """Where clients reach it, without a slash at its end.

        Raises `NotFoundError` if the daemon does not know the Server, `ConnectionError` if no daemon is found.
        """
        return (yield from self._daemon.find(self.app, self.name)).url
