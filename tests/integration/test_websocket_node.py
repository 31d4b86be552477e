"""Node's `ws` and Socket.IO, client and server, through a real daemon in both modes."""

from __future__ import annotations

import json
from typing import Any

from twisted.trial.unittest import SkipTest

from tests.integration import node_peers
from tests.integration.daemon_case import DaemonCase, server
from tests.integration.running_daemon import until


class NodeCase(DaemonCase):
    mode = "frames"

    def setUp(self) -> None:
        reason = node_peers.missing()
        if reason is not None:
            raise SkipTest(reason)

    def node(self, script: str) -> None:
        """A daemon whose containers run this script."""
        command = json.dumps(["node", str(node_peers.SCRIPTS / script), "{port}"])
        path = json.dumps(str(node_peers.INTO / "node_modules"))
        config = server("one", command, websocket=self.mode, ping_interval=1)
        self.serve(config + f"[servers.one.env]\nNODE_PATH = {path}\n")

    def script(self, name: str, *arguments: str) -> node_peers.Script:
        script = node_peers.Script(name, *arguments)
        self.addCleanup(script.stop)
        return script

    @property
    def address(self) -> str:
        return self.url.replace("http", "ws") + "/chat"


class WsTests(NodeCase):
    def closes(self, token: str) -> Any:
        return until("the container saw the end", lambda: self.get(token).json())

    def test_a_conversation_and_its_close_pass(self) -> None:
        self.node("ws_server.cjs")
        token = self.token()
        seen = self.script("ws_client.cjs", self.address, token).result()
        self.assertEqual(seen, {"protocol": "chat", "extensions": "permessage-deflate", "code": 3001, "reason": "bye"})
        self.assertEqual(self.closes(token), [[3001, "bye"]])

    def test_the_end_of_the_session_reaches_both(self) -> None:
        self.node("ws_server.cjs")
        token, other = self.token(), self.token()
        client = self.script("ws_client.cjs", self.address, token, "hold")
        client.holds()
        fields = {"Authorization": f"Bearer {self.bearer}", "x-modal-server-session-token": token}
        fields["x-modal-server-session-grace"] = "0"
        self.http.post(f"{self.url}/_modal/sessions/terminate", headers=fields, timeout=30)
        seen = client.result()
        self.assertEqual((seen["code"], seen["reason"]), (4410, "terminated"))
        self.assertEqual(self.closes(other), [[4410, "terminated"]])


class SocketIOTests(NodeCase):
    def test_polling_the_upgrade_rooms_and_the_end(self) -> None:
        self.node("socketio_server.cjs")
        started = self.start().json()
        clients = self.script("socketio_client.cjs", self.url, started["token"])
        clients.holds()
        fields = {"Authorization": f"Bearer {self.bearer}", "x-modal-server-session-token": started["token"]}
        fields["x-modal-server-session-grace"] = "0"
        self.http.post(f"{self.url}/_modal/sessions/terminate", headers=fields, timeout=30)
        seen = clients.result()
        one = {"first": "polling", "transport": "websocket", "session": started["session_id"]}
        self.assertEqual((seen["ours"], seen["theirs"]), (one, one))
        self.assertEqual(seen["reason"], "transport close")
        self.assertEqual(seen["code"], 4410)


class WsAsMessagesTests(WsTests):
    mode = "messages"


class SocketIOAsMessagesTests(SocketIOTests):
    mode = "messages"
