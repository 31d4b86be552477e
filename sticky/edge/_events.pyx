# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The inner loop over a turn's events compiled: what `fast_loop.read_ready` does, held to it by the same tests."""

import select
import sys

cdef long _READABLE = select.EPOLLIN


def read_ready(list events not None, dict selectables not None, kinds not None, ended not None):
    """See `fast_loop.read_ready`."""
    cdef list others = None
    cdef long event
    for fd, mask in events:
        event = mask
        if event == _READABLE:
            selectable = selectables.get(fd)
            if selectable is None:
                continue
            if type(selectable) in kinds:
                try:
                    why = selectable.doRead()
                except BaseException as error:
                    why = error
                    ended(selectable, why, True)
                else:
                    if why is not None:
                        ended(selectable, why, False)
                continue
        if others is None:
            others = []
        others.append((fd, mask))
    return others
