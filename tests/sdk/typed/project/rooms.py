"""A Server on an app that is reached through its module, and one of an annotated variable."""

import sticky

from . import base


@base.app.server(name="rooms")
@sticky.sessioned()
class Rooms:
    @sticky.enter()
    async def start(self) -> None: ...


@base.other.server()
@sticky.sessioned()
class Hall:
    @sticky.enter()
    def start(self) -> None: ...


class Backend:
    """Has a method of the same name, and is no app."""

    def server(self, kind: type) -> type:
        return kind


backend = Backend()


@backend.server
class Plain: ...
