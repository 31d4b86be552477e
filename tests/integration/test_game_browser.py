"""The example game in real browsers through a real daemon: rooms, containers, and coming back."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from selenium.webdriver import Chrome, ChromeOptions, ChromeService
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from twisted.trial.unittest import SynchronousTestCase

from tests.integration.running_daemon import ROOT, Daemon, Running, until

GAME = ROOT / "examples" / "game"
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
    "--window-size=1200,760",
)

#: Heading changes of worm arguments[0] over 30 steps, as this page hears them.
TURNS = """
const [number, done] = arguments, turns = [];
let step = game.world.step, before = game.world.worms.get(number)?.heading;
const watching = setInterval(() => {
  if (game.world.step === step) return;
  step = game.world.step;
  const heading = game.world.worms.get(number)?.heading;
  if (heading !== undefined && before !== undefined) turns.push(Math.atan2(Math.sin(heading - before), Math.cos(heading - before)));
  before = heading;
  if (turns.length >= 30) { clearInterval(watching); done(turns); }
}, 4);
"""

#: From now on this page's worm goes for the nearest dot that is not beside it, where it would only go round it.
HUNT = """
window.hunting = setInterval(() => {
  const me = game.me, far = (dot) => Math.hypot(dot.x - me.x, dot.y - me.y);
  if (!me?.alive) return;
  const heading = game.world.worms.get(me.n).heading;
  const ahead = (dot) => Math.cos(Math.atan2(dot.y - me.y, dot.x - me.x) - heading) > 0.8;
  const dot = [...game.world.dots.values()].filter((dot) => far(dot) > 120 || ahead(dot)).sort((a, b) => far(a) - far(b))[0];
  game.connection.send({ t: "steer", aim: Math.atan2(dot.y - me.y, dot.x - me.x) });
}, 50);
"""


class Window:
    """One browser with a profile of its own."""

    def __init__(self, profile: Path) -> None:
        browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
        assert browser and driver, "this test needs Chromium: apt-get install chromium chromium-driver"
        options = ChromeOptions()
        options.binary_location = browser
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        self.driver = Chrome(options=options, service=ChromeService(driver))
        self.driver.set_page_load_timeout(60)
        self.driver.set_script_timeout(20)

    def game(self, expression: str) -> Any:
        """What a part of window.game is just now; None while there is no game on the page."""
        return self.driver.execute_script(f"return window.game ? ({expression}) ?? null : null")

    def arrive(self) -> None:
        """Wait until the game has let this window in."""
        until("the page is in a room", lambda: self.game("game.state === 'open' && game.me"), 40)

    def player(self, number: int) -> dict[str, Any] | None:
        """A player as this window sees them."""
        found: dict[str, Any] | None = self.game(f"game.players.find((player) => player.n === {number})")
        return found

    def click(self, element: str) -> None:
        self.driver.find_element(By.ID, element).click()


def kill_container(container: str) -> int:
    """SIGKILL to every process of one container. Returns how many there were."""
    assert container.startswith("ct-"), container
    killed = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
            if f"STICKY_CONTAINER_ID={container}".encode() in variables:
                os.kill(int(folder.name), signal.SIGKILL)
                killed += 1
        except OSError:
            continue  # gone meanwhile, or another user's
    return killed


class GameTests(SynchronousTestCase):
    def setUp(self) -> None:
        self.folder = Path(self.mktemp()).resolve()
        self.daemon = Daemon(self.folder, "--app", str(GAME / "game.py"))
        self.addCleanup(self.daemon.stop)
        self.url = self.daemon.url()

    def window(self, name: str) -> Window:
        window = Window(self.folder / name)
        self.addCleanup(window.driver.quit)
        return window

    def start_session(self) -> str:
        """Returns the token."""
        with urlopen(Request(f"{self.url}/_modal/sessions/start", method="POST"), timeout=60) as answer:
            token: str = json.load(answer)["token"]
            return token

    def link(self, token: str) -> str:
        return f"{self.url}/?modal_session_token={token}"

    def assert_sees_turning(self, watching: Window, moving: Window, number: int) -> None:
        """What one window steers, the other sees."""
        until("the other window shows the player", lambda: (watching.player(number) or {}).get("alive"))
        for key, side in ((Keys.ARROW_RIGHT, 1), (Keys.ARROW_LEFT, -1)):
            ActionChains(moving.driver).key_down(key).perform()
            turns = watching.driver.execute_async_script(TURNS, number)
            ActionChains(moving.driver).key_up(key).perform()
            # A crash, the wall and the key's own way may spoil some.
            self.assertGreater(len([turn for turn in turns if 0.05 < side * turn < 0.2]), 15, turns)

    def test_two_windows_in_one_room_see_each_other_move(self) -> None:
        command = [sys.executable, str(GAME / "launcher.py"), "--state-dir", str(self.daemon.state)]
        launcher = Running([*command, "--listen", "tcp:0:interface=127.0.0.1"], self.folder / "launcher.log")
        self.addCleanup(launcher.stop)
        launched = launcher.wait_for("the launcher listens", lambda: launcher.output().partition("Play at ")[2].strip())

        ann, bob = self.window("ann"), self.window("bob")
        ann.driver.get(launched)
        ann.click("start")
        ann.arrive()
        self.assertEqual(ann.driver.current_url, f"{self.url}/")
        token = ann.game("sessionStorage.getItem('glowworms.invite')")
        bob.driver.get(launched)
        bob.driver.find_element(By.ID, "link").send_keys(self.link(token), Keys.ENTER)
        bob.arrive()

        self.assertEqual(ann.game("game.room"), bob.game("game.room"))
        self.assertEqual(ann.game("game.container"), bob.game("game.container"))
        numbers = ann.game("game.me.n"), bob.game("game.me.n")
        self.assertNotEqual(*numbers)
        self.assert_sees_turning(bob, ann, numbers[0])
        self.assert_sees_turning(ann, bob, numbers[1])
        for said in (launcher.output(), self.daemon.output()):
            self.assertNotIn(token, said)

    def test_a_third_room_lands_on_another_container_when_the_first_is_full(self) -> None:
        window = self.window("ann")
        seen = []
        for _ in range(3):
            window.driver.get(self.link(self.start_session()))
            window.arrive()
            seen.append((window.game("game.room"), window.game("game.container")))
        rooms, containers = zip(*seen, strict=True)
        self.assertEqual(len(set(rooms)), 3)
        self.assertEqual(containers[0], containers[1])
        self.assertNotEqual(containers[1], containers[2])
        self.assertTrue(all(container.startswith("ct-") for container in containers), containers)

    def test_a_dropped_connection_comes_back_to_the_same_room_with_its_score(self) -> None:
        ann = self.window("ann")
        ann.driver.get(self.link(self.start_session()))
        ann.arrive()
        ann.driver.execute_script(HUNT)
        until("some dots are eaten", lambda: ann.game("game.me.score >= 3"), 60)
        before = ann.game("[game.room, game.container, game.me.n]")
        score = ann.driver.execute_script("clearInterval(hunting); game.socket.close(); return game.me.score")
        until("the connection is dropped", lambda: ann.game("game.drops === 1"))
        until("the page is back", lambda: ann.game("game.state === 'open' && game.me.here"))
        self.assertEqual(ann.game("[game.room, game.container, game.me.n]"), before)
        self.assertGreaterEqual(ann.game("game.me.score"), score)

        # A reload is another connection of the same tab, and so the same player.
        ann.driver.refresh()
        ann.arrive()
        self.assertEqual(ann.game("[game.room, game.container, game.me.n]"), before)
        self.assertGreaterEqual(ann.game("game.me.score"), score)

    def test_a_room_whose_container_is_killed_is_told_so(self) -> None:
        ann = self.window("ann")
        ann.driver.get(self.link(self.start_session()))
        ann.arrive()
        self.assertGreater(kill_container(ann.game("game.container")), 0)
        until("the page says what happened", lambda: ann.game("document.getElementById('ended').open"))
        self.assertEqual(ann.driver.find_element(By.ID, "ended").get_attribute("data-reason"), "container_lost")

    def test_the_end_of_a_session_is_told_in_words_and_a_new_room_is_a_click_away(self) -> None:
        ann = self.window("ann")
        token = self.start_session()
        ann.driver.get(self.link(token))
        ann.arrive()
        before = ann.game("game.room")
        headers = {"x-modal-server-session-token": token, "x-modal-server-session-grace": "0"}
        request = Request(f"{self.url}/_modal/sessions/terminate", method="POST", headers=headers)
        urlopen(request, timeout=30).close()
        until("the page says what happened", lambda: ann.game("document.getElementById('ended').open"))
        self.assertEqual(ann.driver.find_element(By.ID, "ended").get_attribute("data-reason"), "terminated")
        self.assertEqual(ann.game("game.connection.lastClose"), {"code": 4410, "reason": "terminated"})
        ann.click("again")
        until("another room is open", lambda: ann.game("game.room && game.room !== " + json.dumps(before)), 40)
        ann.arrive()
