"""A notebook: each session has an interpreter of its own, so `n = 1` in one cell and `n += 1` in the next count.

sticky serve notebook.py

It runs what its users type, as the daemon's user: see "Security" before anybody else may use it.
"""

import ast
import contextlib
import html
import io
import os
import subprocess
import sys
import traceback
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs

import sticky

app = sticky.App("notebook")


# A container for each session: what one of them breaks, no other one notices. One more waits for the next to come.
@app.server(port=None, buffer_containers=1, max_containers=4, scaledown_window=30)
@sticky.sessioned(max_concurrency=1)
class Notebook:
    @sticky.enter()
    def start(self):
        self.program = subprocess.Popen([sys.executable, __file__])

    @sticky.exit()
    def stop(self):
        self.program.terminate()


class Page(BaseHTTPRequestHandler):
    """What a container does. All cells share one namespace, as long as the container lives."""

    names = {"__name__": "__main__"}
    cells = []

    def do_GET(self):
        cells = "".join(
            f"<p>[{number}] <code>{html.escape(code)}</code></p><pre>{html.escape(out)}</pre>"
            for number, (code, out) in enumerate(self.cells, 1)
        )
        form = '<form method="post"><textarea name="code" rows="3" cols="60" autofocus></textarea><button>Run</button></form>'
        where = f"<small>container {os.environ['STICKY_CONTAINER_ID']}</small>"
        page = f'<!doctype html><meta charset="utf-8"><title>Notebook</title><h1>Notebook</h1>{cells}{form}{where}'
        self.answer(200, page.encode())

    def do_POST(self):
        length = int(self.headers.get("Content-Length", 0))
        if length > 100_000:
            return self.answer(413, b"a cell has 100 kB at most")
        [code] = parse_qs(self.rfile.read(length).decode()).get("code", [""])
        self.cells.append((code, run(code, self.names)))
        return self.answer(303, b"", Location="/")

    def answer(self, status, body, **fields):
        self.send_response(status)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        for name, value in fields.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def run(code, names):
    """What a cell prints, then the value of its last line, or its traceback."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            body = ast.parse(code)
            last = body.body.pop() if body.body and isinstance(body.body[-1], ast.Expr) else None
            exec(compile(body, "<cell>", "exec"), names)
            if last is not None:
                value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
                if value is not None:
                    print(repr(value))
        except Exception:
            print(traceback.format_exc(limit=-1).strip())
    return out.getvalue()


if __name__ == "__main__":  # in the container
    HTTPServer((os.environ["STICKY_HOST"], int(os.environ["PORT"])), Page).serve_forever()
