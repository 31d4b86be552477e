"""How many containers a Server has, looked at and changed while it runs. A call of the admin API; must not know what scaling does."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from sticky.sdk.calling import Carriers, call
from sticky.sdk.daemon import Daemon
from sticky.sdk.exception import ExecutionError, InvalidError
from sticky.sdk.limits import NUMBERS, check_number
from sticky.sdk.steps import Steps


@attrs.frozen(kw_only=True)
class AutoscalerSettings:
    """The settings that hold now. Windows are seconds."""

    min_containers: int
    max_containers: int
    buffer_containers: int
    scaleup_window: float
    scaledown_window: float
    #: names of those that an update has set, and not the deployed definition
    updated: tuple[str, ...] = ()

    @classmethod
    def read(cls, fields: Mapping[str, object]) -> AutoscalerSettings:
        """From an answer. Raises `ExecutionError` for anything else."""
        given = {name: fields.get(name) for name in NAMES}
        updated = fields.get("updated")
        if not all(NUMBERS[name].allows(value) for name, value in given.items()) or not isinstance(updated, list):
            raise ExecutionError("the daemon's answer about its autoscaler makes no sense: is it of another version?")
        return cls(**given, updated=tuple(map(str, updated)))  # type: ignore[arg-type]


NAMES = tuple(field.name for field in attrs.fields(AutoscalerSettings) if field.name in NUMBERS)


class Autoscaler:
    """The autoscaler of one Server. Needs the admin API: its daemon's state directory, or STICKY_ADMIN_URL with an admin token."""

    def __init__(self, app: str, server: str, daemon: Daemon, carriers: Carriers | None = None) -> None:
        self._app = app
        self._server = server
        self._daemon = daemon
        self.carriers = Carriers() if carriers is None else carriers

    def __repr__(self) -> str:
        return f"<autoscaler of {self._server!r}>"

    @call
    def settings(self) -> Steps[AutoscalerSettings]:
        """What holds now. Raises `NotFoundError`, `AuthError`, `ConnectionError`, `ExecutionError`."""
        reply = yield from self._daemon.admin("GET", self._path)
        return AutoscalerSettings.read(reply.fields)

    @call
    def update(
        self,
        *,
        min_containers: int | None = None,
        max_containers: int | None = None,
        buffer_containers: int | None = None,
        scaleup_window: float | None = None,
        scaledown_window: float | None = None,
    ) -> Steps[AutoscalerSettings]:
        """Change these; what is left out stays. It holds at once, through restarts, and until the next deploy.

        Gives what holds then; containers follow as there is demand, and none that has a session is stopped. Raises
        `InvalidError` for a value that is not allowed or not with the others (nothing has changed then), and as `settings`.
        """
        given = {
            "min_containers": min_containers,
            "max_containers": max_containers,
            "buffer_containers": buffer_containers,
            "scaleup_window": scaleup_window,
            "scaledown_window": scaledown_window,
        }
        changes = {name: value for name, value in given.items() if value is not None}
        if not changes:
            raise InvalidError(f"autoscaler.update() changes nothing; give some of {', '.join(NAMES)}")
        for name, value in changes.items():
            check_number(name, value, NUMBERS[name])
        reply = yield from self._daemon.admin("POST", self._path, changes)
        return AutoscalerSettings.read(reply.fields)

    @property
    def _path(self) -> str:
        return f"/v1/servers/{self._server}/autoscaler"
