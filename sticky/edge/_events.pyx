# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The inner loop over a turn's events compiled: what `fast_loop.read_ready` does, held to it by the same tests."""

import select

from twisted.internet.main import CONNECTION_DONE, CONNECTION_LOST

from sticky.edge.transport import HELD, READ_SIZE, StreamState

cdef long _READABLE = select.EPOLLIN
cdef object _OPEN = StreamState.OPEN


def read_ready(list events not None, dict selectables not None, kinds not None, first not None, ended not None):
    """See `fast_loop.read_ready`."""
    cdef list others = None, group
    cdef dict came = {kind: [] for kind in first}
    cdef long event
    cdef Py_ssize_t size = 0, most = HELD
    for fd, mask in events:
        event = mask
        if event == _READABLE:
            stream = selectables.get(fd)
            if stream is None:
                continue
            if type(stream) in kinds:
                try:
                    data = stream.recv(READ_SIZE)
                except (BlockingIOError, InterruptedError):
                    continue
                except OSError:
                    ended(stream, CONNECTION_LOST, False)
                    continue
                if not data:
                    ended(stream, CONNECTION_DONE, False)
                    continue
                kind = type(stream.protocol)
                group = came.get(kind)
                if group is None:
                    came[kind] = [(stream, data)]
                else:
                    group.append((stream, data))
                size += len(<bytes>data)
                if size >= most:
                    _hand_on(came, ended)
                    size = 0
                continue
        if others is None:
            others = []
        others.append((fd, mask))
    _hand_on(came, ended)
    return others


cdef _hand_on(dict came, ended):
    cdef list group
    for group in came.values():
        for stream, data in group:
            if stream.state is not _OPEN:
                continue
            try:
                stream.protocol.dataReceived(data)
            except BaseException as error:
                ended(stream, error, True)
        group.clear()
