"""What clients were promised, and whether it was kept. Knows no daemon: it is told what was answered, and what was killed.

- Every start that was answered is findable, or has ended for a reason that somebody gave (a terminate, its container's end).
- A session is on one container for life, and what that remembers of it never goes back.
- A session whose terminate was answered admits nothing.
- No container holds more sessions than it may.
"""

from __future__ import annotations

from collections import Counter

import attrs


@attrs.define(eq=False)
class Stay:
    """One session as its client knows it."""

    session: str
    token: str = attrs.field(repr=False)
    container: str | None = None
    count: int = 0  #: highest that was answered
    terminating: bool = False  #: a terminate is on its way
    terminated: bool = False  #: and was answered
    over: str | None = None  #: why it ended, as was answered


@attrs.define(eq=False)
class Model:
    """See the module. `limit`: sessions a container may hold. `ordinary`: ends that nobody has to have caused."""

    limit: int
    ordinary: frozenset[str] = frozenset()
    stays: dict[str, Stay] = attrs.field(factory=dict)
    killed: set[str] = attrs.field(factory=set)  #: containers that were killed, or are about to be
    broken: list[str] = attrs.field(factory=list)  #: promises
    starts: int = 0
    found_again: int = 0  #: starts that an idempotency key found
    answers: int = 0
    ends: int = 0
    setbacks: Counter[str] = attrs.field(factory=Counter)  #: why clients had to try again
    gave_up: Counter[str] = attrs.field(factory=Counter)  #: clients that nobody answered for as long as they wait
    homes: dict[str, list[Stay]] = attrs.field(factory=dict)  #: sessions by container, as far as they are not over

    def started(self, session: str, token: str, created: bool) -> Stay:
        """A start was answered."""
        self.starts += 1
        self.found_again += not created
        if session in self.stays:
            self.broken.append(f"two starts got one session, {session}")
        stay = self.stays[session] = Stay(session, token)
        return stay

    def answered(self, stay: Stay, session: str, container: str, count: int, sent_before_end: bool) -> None:
        """A request of the session was answered by a container. `sent_before_end`: before its terminate was answered."""
        self.answers += 1
        if session != stay.session:
            self.broken.append(f"a request of {stay.session} reached {session}")
        if stay.container is not None and container != stay.container:
            self.broken.append(f"{session} is on {container} and was on {stay.container}")
        if stay.container is None:
            stay.container = container
            here = [one for one in self.homes.get(container, ()) if not (one.terminating or one.over)]
            if not (stay.terminating or stay.over):
                here.append(stay)
            self.homes[container] = here
            if len(here) > self.limit:
                self.broken.append(f"{container} holds {len(here)} sessions and may hold {self.limit}")
        if count <= stay.count and not stay.terminating:
            self.broken.append(f"{session} was at {stay.count} and is at {count}: its state is lost")
        stay.count = max(stay.count, count)
        if stay.terminated and not sent_before_end:
            self.broken.append(f"{session} was terminated and serves")
        if stay.over is not None and not sent_before_end:
            self.broken.append(f"{session} had ended ({stay.over}) and serves")

    def refused(self, stay: Stay, status: int, reason: str) -> None:
        """A request of the session was refused for good."""
        self.ends += 1
        stay.over = reason
        if reason == "terminated" and stay.terminating:
            return
        if reason == "container_lost" and (stay.container is None or stay.container in self.killed) and self.killed:
            return
        if reason in self.ordinary:
            return
        self.broken.append(f"{stay.session} on {stay.container} was refused with {status} {reason}")

    def terminate_answered(self, stay: Stay, status: int) -> None:
        """404: it had ended already, by a first try of this client whose answer was lost, or with its container."""
        if status == 200 or (status == 404 and stay.terminating):
            stay.terminated = True
        else:
            self.broken.append(f"a terminate of {stay.session} was answered with {status}")
