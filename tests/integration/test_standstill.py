"""A daemon that gets no processor for a while (it is stopped, its machine is): it cuts nobody for the time that it did not look."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import requests

from tests.integration.daemon_case import APPS, DaemonCase, server
from tests.integration.running_daemon import until

GATED = json.dumps([sys.executable, str(APPS / "gated.py"), "{port}"])
PATIENCE = 8.0  #: seconds that an answer may take


class StandstillTests(DaemonCase):
    def test_an_answer_that_came_while_it_stood_still_is_passed_on(self) -> None:
        self.serve(server("one", GATED, response_timeout=PATIENCE))
        token = self.token()
        with ThreadPoolExecutor(1) as clients:
            waiting = clients.submit(self.wait, token)
            until("it is asked", lambda: self.get(token, "/inside").text == "1")
            os.kill(self.daemon.pid, signal.SIGSTOP)
            try:
                (container,) = self.children()
                port = Path(f"/proc/{container}/cmdline").read_bytes().split(b"\0")[-2].decode()
                requests.get(f"http://127.0.0.1:{port}/go", timeout=60)
                time.sleep(PATIENCE + 2)  # of a real process that stands still: longer than it may take
            finally:
                os.kill(self.daemon.pid, signal.SIGCONT)
            self.assertEqual(waiting.result().status_code, 200)

    def wait(self, token: str) -> requests.Response:
        return requests.get(f"{self.url}/wait", headers={"Modal-Authorization": f"Bearer {token}"}, timeout=60)
