"""How each variant is started: the peers as they are best set up for this work, and ours as a user has it. Measures nothing."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.rig import (
    HERE,
    LOAD_CORE,
    PROXY_CORE,
    Proxy,
    Rig,
    Unavailable,
    ask,
    built,
    free_ports,
    pinned,
    wait_until,
)

COOKIE = "__Host-modal-session-token"
BEFORE = "STICKY_BEFORE"  #: names the environment that the variant sticky-before runs in: two states of ours in the same rounds
BYSTANDER = "theme=dark; "  # a cookie of the app's own, which is to pass


def cookie(token: str) -> dict[str, str]:
    """The session token as a browser sends it."""
    return {"Cookie": f"{BYSTANDER}{COOKIE}={token}"}


def bearer(token: str) -> dict[str, str]:
    """The session token as a program sends it."""
    return {"Cookie": BYSTANDER.rstrip("; "), "Modal-Authorization": f"Bearer {token}"}


def _filled(name: str, folder: Path, **values: object) -> Path:
    path = folder / name
    path.write_text((HERE / "peers" / f"{name}.in").read_text().format(**values))
    return path


class Proxies:
    """Starts variants by name and keeps them for the run. The peers share one backend; ours has its own container."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._running: dict[str, Proxy] = {}
        self._failed: dict[str, Unavailable] = {}
        self._backend: int | None = None
        self._token: str | None = None
        self._ciphers: dict[str, str] = {}

    def get(self, name: str) -> Proxy:
        """The running variant, started if it is not. Raises Unavailable."""
        if name in self._failed:  # to try again for every case would take minutes
            raise self._failed[name]
        if name not in self._running:
            try:
                self._running[name] = self._started(name)
            except Unavailable as error:
                self._failed[name] = error
                raise
        return self._running[name]

    @contextlib.contextmanager
    def fresh(self, name: str) -> Iterator[Proxy]:
        """A process of its own that has served nobody yet: memory that was used once does not go back."""
        proxy = self._started(name)
        try:
            yield proxy
        finally:
            self._rig.stop(proxy.process)

    def _started(self, name: str) -> Proxy:
        starters: dict[str, Callable[[str], Proxy]] = {
            "direct": self._direct,
            "nginx": self._nginx,
            "nginx-log": self._nginx,
            "haproxy": self._haproxy,
            "chp": self._chp,
            "chp-tls": self._chp,
            "sticky": self._sticky,
            "sticky-messages": self._sticky,
            "sticky-before": self._sticky,
        }
        if name not in starters:
            raise Unavailable(f"no such variant; there are {', '.join(starters)}")
        proxy = starters[name](name)
        wait_until(lambda: _answers(proxy), proxy.process, self._rig.run)
        return proxy

    def check_cipher(self, proxy: Proxy) -> None:
        """Raises Unavailable unless clients and this proxy agree on what they agree on with nginx: else nothing is compared."""
        for each in (self.get("nginx"), proxy):
            if each.name not in self._ciphers:
                self._ciphers[each.name] = tls_cipher(each)
        theirs, its = self._ciphers["nginx"], self._ciphers[proxy.name]
        if its != theirs:
            raise Unavailable(f"speaks {its}, nginx {theirs}")

    def backend(self) -> int:
        """The port of the peers' backend."""
        if self._backend is None:
            self._backend, _ = self._rig.backend()
        return self._backend

    def token(self) -> str:
        """A session token for the peers' requests: they do not look at it, but the bytes are to be the same."""
        if self._token is None:
            self._token = self.get("sticky").token
            assert self._token is not None
        return self._token

    def _direct(self, name: str) -> Proxy:
        port, process = self._rig.backend(PROXY_CORE)
        return Proxy(name, port, None, process, cookie(self.token()))

    def _nginx(self, name: str) -> Proxy:
        port, logged, tls = free_ports(3)
        folder = self._rig.folder("nginx")
        conf = _filled(
            "nginx.conf",
            folder,
            run=folder,
            backend=self.backend(),
            port=port,
            logged=logged,
            tls=tls,
            key=built("key.pem"),
            cert=built("cert.pem"),
        )
        process = self._rig.spawn(name, pinned(PROXY_CORE, "nginx", "-c", conf, "-e", folder / "nginx.err"), folder)
        self._rig.await_port(port, process, folder)
        return Proxy(name, logged if name == "nginx-log" else port, tls, process, cookie(self.token()))

    def _haproxy(self, name: str) -> Proxy:
        port, tls = free_ports(2)
        folder = self._rig.folder(name)
        conf = _filled("haproxy.cfg", folder, backend=self.backend(), port=port, tls=tls, pem=built("proxy.pem"))
        process = self._rig.spawn(name, pinned(PROXY_CORE, "haproxy", "-db", "-f", conf), folder)
        self._rig.await_port(port, process, folder)
        return Proxy(name, port, tls, process, cookie(self.token()))

    def _chp(self, name: str) -> Proxy:
        port, api = free_ports(2)
        folder = self._rig.folder(name)
        program = built("node_modules/configurable-http-proxy/bin/configurable-http-proxy")
        command = pinned(
            PROXY_CORE, "node", program, "--ip", "127.0.0.1", "--port", str(port), "--api-ip", "127.0.0.1",
            "--api-port", str(api), "--default-target", f"http://127.0.0.1:{self.backend()}", "--log-level", "error",
        )  # fmt: skip
        secure = name == "chp-tls"
        if secure:
            command += ["--ssl-key", str(built("key.pem")), "--ssl-cert", str(built("cert.pem"))]
        process = self._rig.spawn(name, command, folder)
        self._rig.await_port(port, process, folder)
        return Proxy(name, port, port if secure else None, process, cookie(self.token()))

    def _sticky(self, name: str) -> Proxy:
        folder = self._rig.folder(name)
        websocket = "messages" if name == "sticky-messages" else "frames"
        conf = _filled(
            "sticky.toml", folder, backend=built("backend"), core=LOAD_CORE, state=folder / "state", websocket=websocket
        )
        proxy = start_sticky(self._rig, name, conf, folder)
        proxy.token = start_session(proxy.port)
        proxy.fields = cookie(proxy.token)
        return proxy


def start_sticky(rig: Rig, name: str, conf: Path, folder: Path) -> Proxy:
    """The daemon on `conf`, with its output in a file, as `twistd -n` has it; it has written where it listens."""
    port, tls = free_ports(2)
    twistd = environment(name) / "bin" / "twistd"
    command = pinned(
        PROXY_CORE, twistd, "-n", "--pidfile=", "sticky", "--config", conf,
        "--listen", f"tcp:{port}:interface=127.0.0.1:backlog=4096",
        "--listen", f"ssl:{tls}:interface=127.0.0.1:backlog=4096:privateKey={built('key.pem')}:certKey={built('cert.pem')}",
    )  # fmt: skip
    process = rig.spawn(name, command, folder)
    wait_until((folder / "state" / "url").exists, process, folder)
    rig.await_port(port, process, folder)
    return Proxy(name, port, tls, process, {})


def environment(name: str) -> Path:
    """Where the Sticky of this variant is installed."""
    if name != "sticky-before":
        return Path(sys.prefix)
    before = os.environ.get(BEFORE)
    if before is None:
        raise Unavailable(f"{BEFORE} is not set: the .venv of another checkout")
    return Path(before)


def start_session(port: int) -> str:
    """A session's token. Raises Unavailable with the daemon's own words."""
    try:
        status, body = ask(port, "POST", "/_modal/sessions/start")
    except OSError as error:
        raise Unavailable(f"no session: {error}") from None
    if status != 200:
        raise Unavailable(f"no session: {status} {body[:200]!r}")
    return str(json.loads(body)["token"])


def _answers(proxy: Proxy) -> bool:
    if proxy.port == proxy.tls_port:
        return True  # that it listens has been seen
    try:
        return ask(proxy.port, "GET", "/", proxy.fields)[0] == 200
    except OSError:
        return False


def tls_cipher(proxy: Proxy) -> str:
    """TLS version and cipher that a client and this proxy agree on."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", proxy.tls_port or 0), 5) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        return f"{secure.version()} {(secure.cipher() or ('',))[0]}"
