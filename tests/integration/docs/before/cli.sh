# A daemon with a Server `game`, on a port that no example on the page uses.
cat > game.py <<PYTHON
import sys

import sticky

app = sticky.App("game")
command = [sys.executable, "$EXAMPLES/../tests/integration/apps/echo_ws.py", "{port}"]


@app.server(name="game", command=command, hosts=["localhost"])
@sticky.sessioned(max_concurrency=100)
class Game:
    pass


@app.server(command=command, hosts=["server.localhost"])
@sticky.sessioned()
class Server:
    pass


@app.local_entrypoint()
def main():
    session = Game.sessions.start()
    Game.sessions.terminate(session.token)
PYTHON
cat > sticky.toml <<TOML
[servers.game]
command = ["python3", "$EXAMPLES/../tests/integration/apps/echo_ws.py", "{port}"]
max_concurrency = 100
TOML
printf '[servers.game]\nidle_timeout = 300\n' > beside-the-app.toml
mkdir -p releases/42 elsewhere && cp sticky.toml releases/42 && cp game.py elsewhere
printf '#!/bin/sh\ncurl -sL -o /dev/null "$1"\n' > browser && chmod +x browser
export BROWSER=$PWD/browser
setsid twistd -n --pidfile= sticky --config sticky.toml --listen tcp:8081:interface=127.0.0.1 > log 2>&1 < /dev/null &
until [ -s state/proxy-token ] && [ -s state/url ]; do sleep 0.1; done
