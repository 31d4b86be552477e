"""A chat: each session is a room, in the memory of the container that has it.

pip install websockets && sticky serve chat.py
"""

import asyncio
import json
import os
from collections import deque
from pathlib import Path

from websockets.asyncio.server import broadcast, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Response

import sticky

app = sticky.App("chat")
PAGE = Path(__file__).with_name("chat.html")
IDLE = 600  # seconds that an empty room is kept


class Room:
    def __init__(self):
        self.members = set()
        self.said = deque(maxlen=100)  # what newcomers are shown


# Anybody may open a room, as on a public site; being in it still takes the room's token.
@app.server(port=None, idle_timeout=IDLE, max_containers=4, unauthenticated=True)
@sticky.sessioned(max_concurrency=50)
class Chat:
    @sticky.enter()
    async def start(self):
        self.rooms = {}
        self.server = await serve(
            self.talk, os.environ["STICKY_HOST"], int(os.environ["PORT"]), process_request=self.page, max_size=4096
        )

    @sticky.exit()
    async def stop(self):
        self.server.close()

    def page(self, connection, request):
        """Plain requests get the page; what asks for /ws goes on to be a WebSocket."""
        if request.path.partition("?")[0] == "/ws":
            return None
        body = PAGE.read_bytes()
        return Response(200, "OK", Headers({"Content-Type": "text/html", "Content-Length": str(len(body))}), body)

    async def talk(self, connection):
        session = connection.request.headers["x-modal-server-session-id"]  # Sticky says whose connection this is
        room = self.rooms.setdefault(session, Room())
        try:
            name = str(await connection.recv())[:40].strip() or "somebody"  # the first message
        except ConnectionClosed:
            return  # it left without a word
        for line in room.said:
            await connection.send(line)
        room.members.add(connection)
        try:
            self.say(room, name, "is here")
            async for text in connection:
                self.say(room, name, str(text))
        finally:
            room.members.discard(connection)
            self.say(room, name, "has left")
            # Nobody tells a program that a session has ended: an empty room goes when its session is sure to have gone.
            asyncio.get_running_loop().call_later(IDLE, self.forget, session)

    def say(self, room, name, text):
        line = json.dumps({"name": name, "text": text, "container": os.environ["STICKY_CONTAINER_ID"]})
        room.said.append(line)
        broadcast(room.members, line)

    def forget(self, session):
        if session in self.rooms and not self.rooms[session].members:
            del self.rooms[session]
