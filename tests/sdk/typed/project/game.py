"""A Server on an app that is imported."""

import sticky

from .base import app


@app.server(port=None, max_containers=4, isolation={"network": True}, rlimits={"nofile": 1024})
@sticky.sessioned(max_concurrency=64)
class Game:
    @sticky.enter()
    def start(self) -> None: ...


@app.server(command=["./chat", "{port}"])
@sticky.sessioned()
class Chat:
    """A command needs no hook."""
