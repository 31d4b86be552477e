"""How the session tokens of a daemon come about: what one says of a session at this moment, and the signature. Keeps none."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from sticky.core.container import Container
from sticky.core.tokens import Claims
from sticky.core.values import ServerName, SessionId


@attrs.frozen
class Minting:
    """Signs, and knows the wall clock: the one place where Unix time is written into something."""

    sign: Callable[[Claims], str] = attrs.field(repr=False)
    wall: Callable[[], float]  #: Unix time, for what is written into tokens

    def claims(self, server: ServerName, container: Container, session: SessionId, now: float) -> Claims:
        """What a token of this session says if it is made now: its hard expiry is the container's age limit."""
        wall = self.wall()
        left = max(0.0, container.dies_at - now)
        return Claims(session, server, container.deployment, container.id, int(wall), int(wall + left))
