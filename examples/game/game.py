"""The game as a Sticky app: two rooms to a container, up to four containers, none when nobody plays.

`twistd -n sticky --app game.py` serves it. Its containers run `glowworms/server.py`, which knows nothing of Sticky but the
header that names the session.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import sticky

app = sticky.App("game")


# Anybody may start a room, as on a public game site; playing in it still takes the room's token.
@app.server(port=None, max_containers=4, scaledown_window=30, unauthenticated=True)
@sticky.sessioned(max_concurrency=2, target_concurrency=2)
class Game:
    """One container: a game server with the rooms in its memory."""

    @sticky.enter()
    def start(self) -> None:
        # It listens on PORT, which it inherits; hence `port=None` above.
        self.server = subprocess.Popen([sys.executable, "-m", "glowworms.server"], cwd=Path(__file__).parent)

    @sticky.exit()
    def stop(self) -> None:
        self.server.wait(timeout=10)  # SIGTERM has reached it as well: it goes to the whole process group
