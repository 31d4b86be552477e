"""A session inside a frame of another site's page, in a real browser: with `third_party_frames`, and by tokens that need no cookie."""

from __future__ import annotations

from tests.integration.daemon_case import ECHO, DaemonCase, server
from tests.integration.other_site import OtherSite
from tests.integration.test_game_browser import Window

#: What a script in the frame is answered: `arguments`: the path, the header fields; the callback comes last.
ASK = """
const [path, headers, done] = arguments;
fetch(path, { headers }).then(async (answer) => done([answer.status, await answer.text()]), (error) => done([0, String(error)]));
"""
TALK = """
const [path, done] = arguments;
const socket = new WebSocket(location.origin.replace("http", "ws") + path);
socket.onmessage = (event) => done(event.data);
socket.onclose = (event) => done(event.code);
"""


class EmbeddedTests(DaemonCase):
    def setUp(self) -> None:
        self.serve(
            server("framed", ECHO, hosts=["framed.localhost"], third_party_frames=True)
            + server("strict", ECHO, hosts=["strict.localhost"])
        )
        self.port = self.url.rpartition(":")[2]
        self.elsewhere = OtherSite(self)
        self.window = Window(self.folder / "profile")
        self.addCleanup(self.window.driver.quit)

    def embed(self, host: str, token: str) -> str:
        """Show the session in a frame of the other site and stay in that frame; what it shows."""
        driver = self.window.driver
        driver.get(self.elsewhere.framing(f"http://{host}:{self.port}/?modal_session_token={token}"))
        driver.switch_to.frame(0)
        return str(driver.execute_script("return document.body.innerText"))

    def ask(self, path: str, **headers: str) -> list[object]:
        return list(self.window.driver.execute_async_script(ASK, path, headers))

    def test_the_cookie_works_in_another_sites_frame_where_it_may(self) -> None:
        container = self.embed("framed.localhost", self.token("framed.localhost"))
        self.assertRegex(container, r"^ct-")
        self.assertEqual(self.ask("/again"), [200, container])
        self.assertEqual(self.window.driver.execute_async_script(TALK, "/ws"), container)

    def test_elsewhere_a_frame_is_refused_and_tokens_that_need_no_cookie_work(self) -> None:
        token = self.token("strict.localhost")
        self.assertNotRegex(self.embed("strict.localhost", token), r"^ct-")
        self.assertEqual(self.ask("/again")[0], 401)
        status, container = self.ask("/again", **{"Modal-Authorization": f"Bearer {token}"})
        self.assertEqual(status, 200)
        self.assertEqual(self.ask(f"/again?modal_session_token={token}"), [200, container])
        socket = self.window.driver.execute_async_script(TALK, f"/ws?modal_session_token={token}")
        self.assertEqual(socket, container)
