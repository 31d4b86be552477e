"""`sticky init`: a small app to begin with, and a configuration file with the settings that are asked for first."""

from __future__ import annotations

from pathlib import Path

import click

from sticky.cli.options import command, json_output
from sticky.cli.output import as_json as print_json
from sticky.cli.output import note, say
from sticky.cli.problems import Problem, Status

APP = '''\
"""A counter for each session: the smallest thing that needs its requests to reach the same container.

    sticky serve app.py             # serves it, and again whenever this file changes
    sticky sessions open            # a session in the browser; reload the page and watch it count
    sticky run app.py               # runs main() below with a daemon of its own
"""

import os
import subprocess
import sys
import urllib.request
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import sticky

app = sticky.App("counter")


# port=None: the program listens on the PORT of its environment, so any number of copies can run.
@app.server(port=None, max_containers=4, scaledown_window=60)
# A session stays on one container for its whole life; a container holds up to 20 of them.
@sticky.sessioned(max_concurrency=20)
class Server:
    @sticky.enter()
    def start(self):
        # A container is ready once this has returned and its port answers.
        self.program = subprocess.Popen([sys.executable, __file__])

    @sticky.exit()
    def stop(self):
        self.program.terminate()


class Page(BaseHTTPRequestHandler):
    """What a container does: counts, in memory."""

    counts = Counter()

    def do_GET(self):
        if self.path == "/favicon.ico":  # browsers ask for an icon, which counts for nothing
            self.send_error(404)
            return
        session = self.headers["x-modal-server-session-id"]  # Sticky says whose request this is
        self.counts[session] += 1
        text = f"request {self.counts[session]} of session {session} on {os.environ['STICKY_CONTAINER_ID']}\\n".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


@app.local_entrypoint()
def main():
    session = Server.sessions.start(idle_timeout=60)
    for _ in range(3):
        request = urllib.request.Request(
            Server.get_url(), headers={"Modal-Authorization": f"Bearer {session.token}"}
        )
        print(urllib.request.urlopen(request).read().decode(), end="")
    Server.sessions.terminate(session.token)


if __name__ == "__main__":  # in the container
    ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Page).serve_forever()
'''

CONFIG = """\
# What app.py does not say: where to listen and who may start sessions.
#
#     sticky check app.py --config sticky.toml
#     sticky serve app.py --config sticky.toml
#     twistd -n --pidfile= sticky --app app.py --config sticky.toml
#
# Every setting, with its range and default: docs/configuration.md

[daemon]
listen = ["tcp:8080:interface=127.0.0.1"]
# listen = ["ssl:8443:privateKey=key.pem:certKey=cert.pem"]       # TLS

# Who may start sessions. Without any, the daemon makes a token for development in state/proxy-token.
# Make one with: sticky tokens create --owner alice

[servers.Server]
# url = "https://counter.example.org"     # what clients see, behind a proxy of your own
# min_containers = 1                      # one that is always warm
idle_timeout = 600                        # seconds until a session ends that nobody uses
"""


def add_to(root: click.Group) -> None:
    """Register the command."""

    @command(root, "init", "sticky init counter && cd counter && sticky serve app.py")
    @click.argument("folder", metavar="[FOLDER]", default=".", type=click.Path(path_type=Path))
    @click.option("--force", is_flag=True, help="Replace files that are there.")
    @json_output
    def init(folder: Path, force: bool, as_json: bool) -> None:
        """Write an app.py and sticky.toml to begin with."""
        write(folder, force)
        if as_json:
            print_json({"files": [str(folder / "app.py"), str(folder / "sticky.toml")]})
            return
        where = "" if folder == Path() else f"cd {folder} && "
        note(f"wrote {folder / 'app.py'} and {folder / 'sticky.toml'}; next:")
        say(f"{where}sticky serve app.py")


def write(folder: Path, force: bool) -> None:
    """Both files, or neither."""
    files = {folder / "app.py": APP, folder / "sticky.toml": CONFIG}
    for path in files:
        if path.exists() and not force:
            raise Problem(
                f"{path} is there already", Status.FAILED, "Choose another folder, or replace it with --force."
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            path.write_text(text, "utf-8")
    except OSError as error:
        raise Problem(f"cannot write to {folder}: {error.strerror}") from None
