"""A container for tests: echoes WebSocket messages on the port it is given, and answers 200 to plain requests.

Of a library that is there at once: most daemons that tests start have one of these.
"""

from __future__ import annotations

import os
import sys
from http import HTTPStatus

from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve

NAME = os.environ["STICKY_CONTAINER_ID"]


def echo(client: ServerConnection) -> None:
    """Says back what it hears, and its container's id first."""
    client.send(NAME)
    for message in client:
        client.send(message)


def page(client: ServerConnection, request: Request) -> Response | None:
    """What is around the WebSocket."""
    if request.path.partition("?")[0] == "/ws":
        return None
    return client.respond(HTTPStatus.OK, NAME)


serve(echo, "127.0.0.1", int(sys.argv[1]), process_request=page, compression=None, max_size=None).serve_forever()
