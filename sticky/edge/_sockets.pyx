# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Reading from and writing to a non-blocking socket, as `socket.socket` does it, without what that does around a system call.

A read there makes room for the most that may come, 64 KiB, and gives back what was too much. Decides nothing.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_SetFromErrno

cdef extern from "sys/socket.h":
    ssize_t recv(int handle, void* room, size_t size, int flags)
    ssize_t send(int handle, const void* data, size_t size, int flags)
    int MSG_NOSIGNAL

cdef enum:
    ROOM = 65536  # bytes of one read, at most

cdef char _room[ROOM]  # used and copied from while nobody else runs


cdef class Descriptor:
    """The socket with this number, which must be open for as long as this is used."""

    cdef int _number
    cdef bint _plenty  # the last read was full: the next one goes straight into what it gives, for it will not be cut

    def __init__(self, int number):
        self._number = number

    def recv(self, Py_ssize_t size):
        """See `socket.socket.recv`; at most 64 KiB."""
        cdef ssize_t got
        cdef bytes data
        size = min(size, ROOM)
        if self._plenty:
            data = PyBytes_FromStringAndSize(NULL, size)
            got = recv(self._number, PyBytes_AS_STRING(data), size, 0)
            self._plenty = got == size
            if got < 0:
                PyErr_SetFromErrno(OSError)
            return data if got == size else data[:got]
        got = recv(self._number, _room, size, 0)
        if got < 0:
            PyErr_SetFromErrno(OSError)
        self._plenty = got == ROOM
        return PyBytes_FromStringAndSize(_room, got)

    def send(self, data):
        """See `socket.socket.send`."""
        cdef Py_buffer view
        cdef ssize_t sent
        if type(data) is bytes:
            sent = send(self._number, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), MSG_NOSIGNAL)
        else:
            PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
            sent = send(self._number, view.buf, view.len, MSG_NOSIGNAL)
            PyBuffer_Release(&view)
        if sent < 0:
            PyErr_SetFromErrno(OSError)
        return sent
