"""A daemon with a Server of sandboxes, and the SDK of this process pointed at it."""

from __future__ import annotations

import os

from sticky.sdk.calls.sandboxes import forget_places
from tests.integration.daemon_case import DaemonCase


class CallsCase(DaemonCase):
    """`sandbox`: the table of the Server `calls`; other settings by name."""

    timeout = 120

    def serve_calls(self, sandbox: str = "snapshot = false", **settings: object) -> None:
        lines = [
            f"{key} = {str(value).lower() if isinstance(value, bool) else value}" for key, value in settings.items()
        ]
        table = "\n".join(["[servers.calls]", *lines, f"sandbox = {{ {sandbox} }}"])
        self.serve(table)
        self.point()

    def point(self) -> None:
        """The SDK's environment."""
        for name, value in {"STICKY_URL": self.url, "STICKY_PROXY_TOKEN": self.bearer}.items():
            before = os.environ.get(name)
            os.environ[name] = value
            self.addCleanup(os.environ.__setitem__, name, before) if before is not None else self.addCleanup(
                os.environ.pop, name, None
            )
        forget_places()
