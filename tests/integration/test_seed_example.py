"""The seeds' own example, with only the import changed, against the real daemon: `sticky run` prints the directory listing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import TestCase

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 120  #: seconds; a stop may take 45 by itself

# The port is not the documented 8000, which this machine may use for something else; the rest is the document's.
EXAMPLE = """
import subprocess, requests, sticky

app = sticky.App("curvytron")

@app.server(port={port})
@sticky.sessioned()
class Server:
    @sticky.enter()
    def start(self):
        subprocess.Popen(["python3", "-m", "http.server", "{port}"])

@app.local_entrypoint()
def main():
    session = Server.sessions.start(idle_timeout=600)
    headers = {{"Modal-Authorization": f"Bearer {{session.token}}"}}
    print(requests.get(Server.get_url(), headers=headers).text)
    Server.sessions.terminate(session.token)
"""
PORT = 18731


class SeedExampleTests(TestCase):
    def run_example(self, text: str) -> subprocess.CompletedProcess[str]:
        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        (folder / "game.py").write_text(text)
        (folder / "a-file-to-be-listed.txt").touch()
        return subprocess.run(
            [sys.executable, "-m", "sticky.cli", "run", "game.py"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )

    def test_it_prints_the_listing_of_the_containers_directory(self) -> None:
        done = self.run_example(EXAMPLE.format(port=PORT))
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn("Directory listing for /", done.stdout)
        self.assertIn("a-file-to-be-listed.txt", done.stdout)
        for line in done.stderr.splitlines():  # what the container wrote, and nothing else
            self.assertRegex(line, r"^Server ct-\S{6} \| ")

    def test_a_wrong_app_is_one_line_and_status_2(self) -> None:
        done = self.run_example(EXAMPLE.format(port=PORT).replace("sessioned()", "sessioned(max_concurrency=0)"))
        self.assertEqual(2, done.returncode)
        self.assertIn("max_concurrency=0 is not allowed; it must be a whole number from 1 to 1000", done.stderr)
        self.assertEqual("", done.stdout)
