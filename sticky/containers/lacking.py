"""What a program that runs lacks to be ready, as a clause for its operator. Pure; must not look for it."""

from __future__ import annotations

from collections.abc import Iterable

from sticky.containers.environment import placeholders
from sticky.containers.listeners import Listener
from sticky.isticky import ContainerSpec

NOT_REPORTED = "it has not said that its enter hooks are done"
_SHOWN = 3  # places where it listens instead
_ANY = ("0.0.0.0", "::")


def lacking(spec: ContainerSpec, host: str, port: int, refusal: str | None, found: Iterable[Listener]) -> str:
    """Of one that was to listen on the port it was told, or on its Server's `port`.

    `refusal`: why the last probe of its `ready_path` was none; None: it was never asked. `found`: where it does listen.
    """
    if refusal is not None and spec.ready_path is not None:
        return f"GET {spec.ready_path} is not answered with a status under 400 ({refusal})"
    fixed = spec.port not in (None, port)
    text = (
        f"nothing of it listens on port {port} of {host}, which is PORT in its environment and {{port}} in its command"
    )
    if fixed:
        text += f", nor on its Server's port {spec.port}"
    if "socket" in placeholders(spec.command):
        text += ", nor on {socket}"
    others = sorted({(one.port, one.host) for one in found})
    if not others:
        return text
    text += f"; it listens on {' and '.join(_place(*other) for other in others[:_SHOWN])}"
    ports = {other for other, _ in others}
    if port in ports:
        return f"{text}, where it is not reached: let it take the address from STICKY_HOST or {{host}}"
    return f"{text}: set port = {ports.pop()} if it cannot take another" if len(ports) == 1 else text


def _place(port: int, host: str) -> str:
    return f"port {port}" if host in _ANY else f"port {port} of {host}"
