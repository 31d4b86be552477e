"""The container under test: a number for each session, in memory only. A request or a WebSocket message adds one."""

from __future__ import annotations

import os
import sys
from collections import Counter

from aiohttp import WSMsgType, web

CONTAINER = os.environ["STICKY_CONTAINER_ID"]
counts: Counter[str] = Counter()


def _add(request: web.Request) -> dict[str, object]:
    session = request.headers["x-modal-server-session-id"]
    counts[session] += 1
    return {"container": CONTAINER, "session": session, "count": counts[session]}


async def plain(request: web.Request) -> web.Response:
    """One more."""
    return web.json_response(_add(request))


async def socket(request: web.Request) -> web.WebSocketResponse:
    """One more for each message."""
    answers = web.WebSocketResponse()
    await answers.prepare(request)
    async for message in answers:
        if message.type is WSMsgType.TEXT:
            await answers.send_json(_add(request))
    return answers


app = web.Application()
app.router.add_get("/ws", socket)
app.router.add_get("/{tail:.*}", plain)
web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None, access_log=None)
