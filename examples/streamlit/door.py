"""The way in: starts a session for each visitor and sends the browser there. Your login belongs in front of this.

python3 door.py 8081
"""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import sticky

visitors = sticky.Server.from_name("streamlit", "Visitors")


class Door(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path != "/":  # browsers also ask for icons, and those shall start nothing
            return self.send_error(404)
        try:
            session = visitors.sessions.start(idle_timeout=900)
        except sticky.exception.QueueTimeout:
            return self.send_error(503, "Full just now", "Everybody's place is taken. Try again in a minute.")
        self.send_response(303)
        self.send_header("Location", f"{visitors.get_url()}/?modal_session_token={session.token}")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Length", "0")
        return self.end_headers()


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Door).serve_forever()
