"""The examples as README says to start them, in real browsers: state stays in a session, and a full container is followed by another.

`game` has tests of its own. Streamlit and Gradio are large: they run with STICKY_LONG_TESTS, from an environment that is kept.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from urllib.request import Request, urlopen

from selenium.common.exceptions import StaleElementReferenceException, WebDriverException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from twisted.trial.unittest import SynchronousTestCase

from tests.integration.docs.environments import web_apps
from tests.integration.running_daemon import ROOT, Running, until
from tests.integration.test_game_browser import Window

EXAMPLES = ROOT / "examples"
#: Keeps a page's WebSockets, so that a test can drop them as a network would.
REMEMBER = """
window.sockets = [];
window.WebSocket = class extends WebSocket {
  constructor(...all) { super(...all); window.sockets.push(this); }
};
"""


class ExampleCase(SynchronousTestCase):
    """Runs `sticky serve` on an example in a copy of its folder."""

    def serve(self, name: str, file: str, python: str = sys.executable) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="sticky-example-")).resolve()
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        shutil.copytree(EXAMPLES / name, self.folder / name, ignore=shutil.ignore_patterns("state", "__pycache__"))
        app = self.folder / name / file
        state = self.folder / "state"
        command = [python, "-m", "sticky.cli", "serve", str(app), "--state-dir", str(state)]
        self.daemon = Running(
            [*command, "--listen", "tcp:0:interface=127.0.0.1"], self.folder / "log", {"PYTHONPATH": str(ROOT)}
        )
        self.addCleanup(self.daemon.stop)
        left_at = state / "url"
        lines = self.daemon.wait_for("it listens", lambda: left_at.exists() and left_at.read_text().splitlines())
        assert lines
        self.url = lines[0].strip()
        proxy_token = state / "proxy-token"
        self.headers = {"Authorization": f"Bearer {proxy_token.read_text().strip()}"} if proxy_token.exists() else {}

    def start(self) -> str:
        """A new session's token."""
        request = Request(f"{self.url}/_modal/sessions/start", method="POST", headers=self.headers)
        with urlopen(request, timeout=90) as answer:
            return str(json.load(answer)["token"])

    def link(self, token: str) -> str:
        return f"{self.url}/?modal_session_token={token}"

    def window(self, name: str, token: str) -> Window:
        """A browser on its way into a session."""
        window = Window(self.folder / name)
        self.addCleanup(window.driver.quit)
        window.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": REMEMBER})
        window.driver.get(self.link(token))
        return window

    def text(self, window: Window) -> str:
        return str(window.driver.execute_script("return document.body ? document.body.innerText : ''"))

    def shows(self, window: Window, text: str, within: float = 60.0) -> None:
        try:
            until(f"the page shows {text!r}", lambda: text in self.text(window), within)
        except AssertionError as problem:
            raise AssertionError(f"{problem}\n{self.text(window)}\n{self.daemon.output()[-3000:]}") from None

    def container(self, window: Window) -> str:
        """The container's id, which stands on the page."""
        self.shows(window, "container ct-")
        return self.text(window).partition("container ")[2].split()[0]

    def press(self, find: Callable[[], None]) -> None:
        """Pages build themselves anew, so that an element may be gone when it is pressed."""

        def pressed() -> bool:
            try:
                find()
            except (StaleElementReferenceException, WebDriverException):
                return False
            return True

        until("the button is there", pressed, 60)

    def picture(self, window: Window, name: str) -> None:
        """Into STICKY_PICTURES, for whoever wants to look."""
        folder = os.environ.get("STICKY_PICTURES")
        if folder:
            window.driver.save_screenshot(str(Path(folder) / f"{name}.png"))


class ChatTests(ExampleCase):
    def enter(self, window: Window, name: str) -> None:
        self.shows(window, "say your name")
        self.say(window, name)
        self.shows(window, f"in the room as {name}")

    def say(self, window: Window, text: str) -> None:
        window.driver.find_element(By.ID, "text").send_keys(text, Keys.ENTER)

    def test_a_room_is_heard_by_those_in_it_and_by_nobody_else(self) -> None:
        self.serve("chat", "chat.py")
        room = self.start()
        ann, bob, eve = self.window("ann", room), self.window("bob", room), self.window("eve", self.start())
        for window, name in ((ann, "Ann"), (bob, "Bob"), (eve, "Eve")):
            self.enter(window, name)
        self.say(ann, "hello <b>Bob</b>")
        self.shows(bob, "Ann: hello <b>Bob</b>")
        self.picture(bob, "chat")
        # A dropped connection comes back to what was said.
        bob.driver.execute_script("sockets.at(-1).close()")
        self.shows(ann, "Bob: has left")
        until("it is connected again", lambda: self.text(bob).count("Bob: is here") == 2, 30)
        self.shows(bob, "Ann: hello <b>Bob</b>")
        # A page may start another room, and its link invites.
        ann.driver.find_element(By.ID, "new").click()
        self.enter(ann, "Ann")
        invitation = str(ann.driver.find_element(By.ID, "invite").get_attribute("value"))
        eve.driver.get(invitation)
        self.enter(eve, "Eve")
        self.shows(ann, "Eve: is here")
        self.assertNotIn("hello", self.text(eve))
        self.assertNotIn("Eve", self.text(bob))
        self.assertNotIn(room, self.daemon.output())

    def test_the_end_of_a_room_is_told(self) -> None:
        self.serve("chat", "chat.py")
        room = self.start()
        ann = self.window("ann", room)
        self.enter(ann, "Ann")
        fields = {"x-modal-server-session-token": room, "x-modal-server-session-grace": "0"}
        urlopen(Request(f"{self.url}/_modal/sessions/terminate", method="POST", headers=fields), timeout=30).close()
        self.shows(ann, "this room is over (terminated)")


class NotebookTests(ExampleCase):
    def cell(self, window: Window, code: str) -> None:
        """Run one, and wait for the page that has it."""
        before = len(self.outputs(window))
        window.driver.find_element(By.NAME, "code").send_keys(code)
        window.driver.find_element(By.TAG_NAME, "button").click()
        until("the cell has run", lambda: len(self.outputs(window)) > before)

    def outputs(self, window: Window) -> list[str]:
        script = "return Array.from(document.querySelectorAll('pre'), (element) => element.innerText)"
        found: list[str] = window.driver.execute_script(script)
        return found

    def test_each_session_counts_in_an_interpreter_of_its_own(self) -> None:
        self.serve("notebook", "notebook.py")
        ann, bob = self.window("ann", self.start()), self.window("bob", self.start())
        for window, first in ((ann, 10), (bob, 20)):
            self.cell(window, f"n = {first}")
            self.cell(window, "n += 1; n")
        for window, last in ((ann, 11), (bob, 21)):
            self.assertEqual([shown.strip() for shown in self.outputs(window)], ["", str(last)])
        self.cell(ann, "1 / 0")
        self.shows(ann, "ZeroDivisionError: division by zero")
        self.picture(ann, "notebook")
        self.assertNotEqual(self.container(ann), self.container(bob))


class WebAppCase(ExampleCase):
    """What Streamlit and Gradio have in common: a page that counts in a visitor's own state."""

    name = ""

    def setUp(self) -> None:
        self.serve(self.name, "app.py", str(web_apps() / "python"))

    def count(self, window: Window) -> None:
        """Press the button."""
        raise AssertionError("each page has its own")

    def counted(self, window: Window, number: int) -> None:
        self.shows(window, f"You have counted to {number}.")

    def two_count_apart(self) -> None:
        tokens = [self.start() for _ in range(3)]
        ann, bob, eve = (self.window(name, token) for name, token in zip(("ann", "bob", "eve"), tokens, strict=True))
        for window in (ann, bob, eve):
            self.counted(window, 0)
        for number in (1, 2, 3):
            self.count(ann)
            self.counted(ann, number)
        self.count(bob)
        self.counted(bob, 1)
        self.picture(ann, self.name)
        ann.driver.execute_script("sockets.forEach((socket) => socket.close())")
        self.count(ann)
        self.counted(ann, 4)
        self.counted(bob, 1)
        # Two visitors fill a container.
        first, second, third = (self.container(window) for window in (ann, bob, eve))
        self.assertEqual(first, second)
        self.assertNotEqual(second, third)


class StreamlitTests(WebAppCase):
    name = "streamlit"

    def count(self, window: Window) -> None:
        until("it is connected", lambda: window.driver.execute_script("return sockets.at(-1)?.readyState === 1"), 60)
        self.press(lambda: window.driver.find_element(By.CSS_SELECTOR, "[data-testid=stButton] button").click())

    def test_each_visitor_counts_alone_and_keeps_the_count_over_a_dropped_connection(self) -> None:
        self.two_count_apart()


class GradioTests(WebAppCase):
    name = "gradio"

    def count(self, window: Window) -> None:
        self.press(lambda: window.driver.find_element(By.ID, "count").click())

    def counted(self, window: Window, number: int) -> None:
        def shown() -> bool:
            script = "return document.querySelector('#said textarea')?.value"
            return bool(window.driver.execute_script(script) == f"You have counted to {number}.")

        until(f"the count is {number}", shown, 60)

    def test_each_visitor_counts_alone(self) -> None:
        self.two_count_apart()
