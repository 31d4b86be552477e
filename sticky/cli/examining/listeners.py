"""Where clients and operators come in: whether ports are free, certificates good, and tokens out of others' sight."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import attrs

from sticky.cli.examining.findings import Finding, Grade
from sticky.config.listeners import reaches_others
from sticky.config.settings import DaemonSettings

SOON: Final = timedelta(days=21)  #: before its expiry a certificate is worth a warning
_FIELDS = re.compile(r"(?:^|:)((?:\\.|[^:\\])*)", re.DOTALL)


@attrs.frozen
class _Endpoint:
    """A Twisted endpoint string that opens a port."""

    kind: str  #: "tcp", "tcp6" or "ssl"
    port: int
    interface: str
    files: tuple[tuple[str, Path], ...]  #: ("privateKey" or "certKey", where it is)


def _read(text: str) -> _Endpoint | None:
    """None: of another kind."""
    kind, *rest = [re.sub(r"\\(.)", r"\1", field) for field in _FIELDS.findall(text.removeprefix("haproxy:"))]
    named = dict(field.split("=", 1) for field in rest if "=" in field)
    port = named.get("port") or next((field for field in rest if "=" not in field), "")
    if kind not in ("tcp", "tcp6", "ssl") or not port.isdigit():
        return None
    files = tuple((name, Path(named[name])) for name in ("privateKey", "certKey") if name in named)
    return _Endpoint(kind, int(port), named.get("interface", ""), files)


def free(daemon: DaemonSettings, *, daemon_answers: bool) -> Iterator[Finding]:
    """Whether the ports can be had."""
    if daemon_answers:
        yield Finding(Grade.OK, "listeners", "not tried: the daemon has them")
        return
    for text in (*daemon.listen, *daemon.admin_listen):
        endpoint = _read(text)
        if endpoint is None or not endpoint.port:
            continue
        six = endpoint.kind == "tcp6" or ":" in endpoint.interface
        try:
            with socket.socket(socket.AF_INET6 if six else socket.AF_INET) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((endpoint.interface, endpoint.port))
        except OSError as error:
            advice = "Choose another port, or stop what has it: ss -ltnp"
            if isinstance(error, PermissionError):
                advice = "Ports below 1024 need CAP_NET_BIND_SERVICE (systemd: AmbientCapabilities=)."
            yield Finding(Grade.FAIL, "listeners", f"{text}: {error.strerror}", advice)
        else:
            yield Finding(Grade.OK, "listeners", f"port {endpoint.port} is free")


def certificates(daemon: DaemonSettings) -> Iterator[Finding]:
    """Their files, and for how long they are good."""
    from cryptography.x509 import load_pem_x509_certificate

    for text in (*daemon.listen, *daemon.admin_listen):
        endpoint = _read(text)
        for name, path in () if endpoint is None else endpoint.files:
            if name == "privateKey" and path.stat().st_mode & 0o077:
                yield Finding(Grade.WARN, "TLS", f"others can read the private key {path}", f"chmod 600 {path}")
            if name == "certKey":
                ends = load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc
                left = ends - datetime.now(UTC)
                grade = Grade.FAIL if left <= timedelta() else Grade.WARN if left < SOON else Grade.OK
                advice = "" if grade is Grade.OK else "Renew it and restart the daemon."
                yield Finding(grade, "TLS", f"{path} is good until {ends:%Y-%m-%d}", advice)


def open_to_others(listen: Sequence[str]) -> Iterator[Finding]:
    """Whether clients' tokens cross a network in the clear. A proxy in front may speak TLS, so that is no failure."""
    for text in listen:
        endpoint = _read(text)
        if endpoint is not None and endpoint.kind != "ssl" and reaches_others(text):
            yield _in_the_clear(text)


def open_urls(listen: Sequence[str]) -> Iterator[Finding]:
    """The same of a daemon that runs, by its base URLs."""
    for url in listen:
        parts = urlsplit(url)
        host = parts.hostname or ""
        if parts.scheme == "http" and not (host == "localhost" or host == "::1" or host.startswith("127.")):
            yield _in_the_clear(url)


def _in_the_clear(where: str) -> Finding:
    return Finding(
        Grade.WARN,
        "TLS",
        f"{where} takes tokens from other machines without TLS",
        "Use ssl:, or interface=127.0.0.1 behind a proxy that speaks TLS (docs/production.md).",
    )


def admin_api(listen: Sequence[str]) -> Iterator[Finding]:
    """Whoever reads an admin token on its way may run programs as the daemon's user."""
    if not listen:
        yield Finding(Grade.OK, "admin API", "by its socket only, for the daemon's own user and root")
    for text in listen:
        if text.startswith("ssl:"):
            yield Finding(Grade.OK, "admin API", f"{text.partition(':privateKey')[0]} speaks TLS")
        elif reaches_others(text):
            yield Finding(
                Grade.FAIL,
                "admin API",
                f"{text} takes admin tokens from other machines without TLS",
                "Use ssl: in daemon.admin_listen, or interface=127.0.0.1 behind a proxy that speaks TLS.",
            )
        else:
            yield Finding(Grade.OK, "admin API", f"{text} is for this machine only")
