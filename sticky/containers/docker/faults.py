"""What can be wrong between us and an Engine, one class a meaning, with the words an operator reads. Must not do any I/O.

No text here holds a container's environment: Engines do not repeat it in their errors.
"""

from __future__ import annotations

import errno

from sticky.errors import StickyError

_NO_IMAGE = "the container engine has no image "
_UNREACHABLE = "the container engine at "


class EngineError(StickyError):
    """A request to the Engine did not do what it should."""


class EngineUnreachable(EngineError):
    """Nobody took the request, or no whole answer came: whether it was carried out is unknown. A later try can succeed."""

    def __init__(self, socket: str, problem: str) -> None:
        self.socket = socket
        super().__init__(f"{_UNREACHABLE}{socket} {problem}")


class EngineNonsense(EngineError):
    """An answer that is not of this API: somebody else listens there, or an Engine that we do not understand."""

    def __init__(self, socket: str, problem: str) -> None:
        super().__init__(f"what answers at {socket} is not a Docker Engine that we can use: {problem}")


class EngineRefused(EngineError):
    """The Engine answered with an error. Final, as long as nothing changes."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        self.message = message
        super().__init__(f"the container engine says: {message} ({status})")

    @property
    def not_found(self) -> bool:
        return self.status == 404

    @property
    def no_such_image(self) -> bool:
        """Creating said 404 about the image, not about a volume or a network."""
        return self.status == 404 and "image" in self.message.lower()

    @property
    def port_taken(self) -> bool:
        """The published port is somebody else's; Docker and Podman say it with their own and the kernel's words."""
        text = self.message.lower()
        return "port is already allocated" in text or "address already in use" in text

    @property
    def no_such_command(self) -> bool:
        """The container's program is not in its image (runc, crun)."""
        text = self.message.lower()
        return ("executable file" in text and "not found" in text) or (
            "no such file or directory" in text and "exec" in text
        )


def connecting(socket: str, number: int | None, words: str) -> EngineUnreachable:
    """Why no connection came about, from its errno, and what to do."""
    if number == errno.ENOENT:
        problem = "cannot be reached: there is no such socket; start Docker, or podman system service"
    elif number in (errno.EACCES, errno.EPERM):
        problem = (
            "cannot be reached: permission denied; the daemon's user must be allowed to use that socket, as members of "
            "the group docker are"
        )
    elif number == errno.ECONNREFUSED:
        problem = "cannot be reached: nobody listens on the socket any more; is Docker stopped?"
    else:
        problem = f"cannot be reached: {words}"
    return EngineUnreachable(socket, problem)


def no_image(image: str) -> str:
    """An image that the Engine does not have."""
    return f"{_NO_IMAGE}{image}: bring it there with docker pull (or build, or load), or set pull = true"


def in_short(message: str) -> str:
    """What is wrong where a container could not be started and no program is to blame, for whoever is not to read paths and names.

    `message`: how its end is told to an operator. Empty for anything else.
    """
    if message.startswith(_NO_IMAGE):
        return "its image is not on the container engine"
    return "the container engine cannot be reached" if _UNREACHABLE in message else ""
