"""Failed container starts: when the next attempt may be made, and when waiting for it is no use. Knows no container."""

from __future__ import annotations

from collections.abc import Callable

from sticky.errors import ContainersFailing

FIRST = 1.0  #: seconds after the first failure, on average
LONGEST = 60.0
HOPELESS_AFTER = 3  #: failures in a row after which starts are refused at once (semantics.md, Scaling)


class Backoff:
    """Counts failures in a row; delays grow exponentially with jitter. `uniform()` gives numbers in [0, 1)."""

    def __init__(self, uniform: Callable[[], float]) -> None:
        self._uniform = uniform
        self.failures = 0
        self.next_attempt = 0.0
        self.cause = ""  #: the last failure in one word

    def failed(self, now: float, cause: str) -> None:
        """One more start failed."""
        self.cause = cause
        self.failures += 1
        delay = min(FIRST * 2.0 ** min(self.failures - 1, 16), LONGEST)
        self.next_attempt = now + delay * (0.5 + self._uniform())

    def succeeded(self) -> None:
        """A container proved that it works: all is forgotten."""
        self.failures = 0
        self.next_attempt = 0.0

    def failing(self, now: float) -> ContainersFailing:
        """What whoever should not wait for the next attempt is told."""
        return ContainersFailing(self.cause, retry_after=max(1.0, self.next_attempt - now))

    @property
    def hopeless(self) -> bool:
        """Whether queued starts should fail fast when nothing is ready."""
        return self.failures >= HOPELESS_AFTER
