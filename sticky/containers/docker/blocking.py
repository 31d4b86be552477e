"""Single questions to an Engine before the event loop runs. Must not be used later: they block, for at most TIMEOUT seconds.

Adoption is decided while the daemon starts, in one step, before anything is answered to anybody; a local Engine tells in a
millisecond.
"""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from sticky.containers.docker.faults import EngineNonsense, EngineRefused, EngineUnreachable, connecting

TIMEOUT = 5.0  #: seconds


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("docker", timeout=TIMEOUT)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(TIMEOUT)
        self.sock.connect(self._path)


def ask(path: str, target: str, params: Mapping[str, str]) -> Any:
    """GET from the Engine at the socket `path`; the JSON value. Raises `EngineError`.

    Without a version, which an Engine takes for its own; what is asked here is the same in all of them.
    """
    connection = _Connection(path)
    try:
        connection.request("GET", f"{target}?{urlencode(params)}")
        response = connection.getresponse()
        body = response.read()
        found = json.loads(body) if body.strip() else None
    except (TimeoutError, http.client.HTTPException) as error:
        raise EngineUnreachable(path, f"gave no answer: {error or type(error).__name__}") from None
    except OSError as error:
        raise connecting(path, error.errno, str(error)) from None
    except ValueError:
        raise EngineNonsense(path, f"its answer to {target} is not JSON") from None
    finally:
        connection.close()
    if response.status >= 300:
        message = found.get("message") if isinstance(found, dict) else None
        raise EngineRefused(response.status, str(message))
    return found
