# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Reading from and writing to a non-blocking socket, as `socket.socket` does it, without what that does around a system call.

A read there makes room for the most that may come, 80 KiB, and gives back what was too much. Decides nothing.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_SetFromErrno
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF

cdef extern from "sys/socket.h":
    ssize_t recv(int handle, void* room, size_t size, int flags)
    ssize_t send(int handle, const void* data, size_t size, int flags)
    int MSG_NOSIGNAL

cdef extern from "Python.h":
    PyObject* new_bytes "PyBytes_FromStringAndSize"(const char* data, Py_ssize_t size) except NULL
    int resize "_PyBytes_Resize"(PyObject** data, Py_ssize_t size) except -1

cdef enum:
    ROOM = 81920  # bytes of one read, at most
    FEW = 2048  # of so many the copy costs less than room for ROOM

cdef char _room[ROOM]  # used and copied from while nobody else runs


cdef class Descriptor:
    """The socket with this number, which must be open for as long as this is used."""

    cdef int _number
    cdef bint _plenty  # much came last time: the next read goes straight into what it gives, which is cut, not copied

    def __init__(self, int number):
        self._number = number

    def recv(self, Py_ssize_t size):
        """See `socket.socket.recv`; at most ROOM bytes."""
        cdef ssize_t got
        cdef PyObject* raw
        size = min(size, ROOM)
        if not self._plenty:
            got = recv(self._number, _room, size, 0)
            if got < 0:
                PyErr_SetFromErrno(OSError)
            self._plenty = got > FEW
            return PyBytes_FromStringAndSize(_room, got)
        raw = new_bytes(NULL, size)
        got = recv(self._number, PyBytes_AS_STRING(<object>raw), size, 0)
        if got < 0:
            Py_DECREF(<object>raw)
            PyErr_SetFromErrno(OSError)
        self._plenty = got > FEW
        if got != size:
            resize(&raw, got)
        data = <object>raw
        Py_DECREF(data)
        return data

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
