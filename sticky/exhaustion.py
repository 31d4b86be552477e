"""What the system says when it is us who can have no more: descriptors, memory, room on a disk. Knows nothing else.

Whoever asks something and gets such an error has learnt nothing about whom it asked.
"""

from __future__ import annotations

import errno

NONE_LEFT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
NO_ROOM = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS}
)  #: for what is written: a disk that is full, or can only be read


def is_ours(error: BaseException | None) -> bool:
    """Whether this error, of Python or of Twisted, is of that kind."""
    number = getattr(error, "osError", None)  # of Twisted's connection errors
    return (error.errno if number is None and isinstance(error, OSError) else number) in NONE_LEFT
