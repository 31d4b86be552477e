# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""A combined access line compiled: the same text as `access_forms.Combined.line`, or None where anything is out of the ordinary.

Nothing is decided here that is not decided there; where it is absent, that one does its work.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.string cimport memcpy

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL
    Py_ssize_t PyUnicode_GET_LENGTH(object text)
    object PyUnicode_FromStringAndSize(const char* text, Py_ssize_t size)

cdef extern from "math.h":
    double fabs(double value) nogil
    double rint(double value) nogil

cdef extern from "stdio.h":
    int snprintf(char* out, size_t size, const char* form, ...) nogil

cdef enum:
    ROOM = 4096  # of a line
    NUMBER = 400  # the longest double has 317 characters


cdef class _Text:
    cdef char data[ROOM]
    cdef Py_ssize_t size
    cdef bint bad

    cdef inline void put(self, const char* text, Py_ssize_t size) noexcept:
        if self.size + size > ROOM:
            self.bad = True
        elif not self.bad:
            memcpy(self.data + self.size, text, size)
            self.size += size

    cdef inline void string(self, object text) except *:
        cdef Py_ssize_t size = 0
        cdef const char* data
        if type(text) is not str:
            self.bad = True
            return
        data = PyUnicode_AsUTF8AndSize(text, &size)
        if size != PyUnicode_GET_LENGTH(text):  # not ASCII
            self.bad = True
        else:
            self.put(data, size)

    cdef inline void number(self, long long value) noexcept:
        cdef char digits[24]
        cdef int i = 24
        if value < 0:
            self.put(digits, snprintf(digits, 24, "%lld", value))
            return
        while True:
            i -= 1
            digits[i] = 48 + <char>(value % 10)
            value //= 10
            if not value:
                break
        self.put(digits + i, 24 - i)

    cdef inline void seconds(self, double value) noexcept:
        cdef char digits[NUMBER]
        cdef double exact = value * 1e6, rounded = rint(exact)
        cdef long long micros
        cdef int i
        # printf's way takes three times as long. A product this small is right to 1e-7: only next to a half may it round apart.
        if not 0.0 <= exact < 1e9 or fabs(fabs(exact - rounded) - 0.5) < 1e-6:
            self.put(digits, snprintf(digits, NUMBER, "%.6f", value))
            return
        micros = <long long>rounded
        for i in range(6):
            digits[23 - i] = 48 + <char>(micros % 10)
            micros //= 10
        digits[17] = 46  # .
        i = 17
        while True:
            i -= 1
            digits[i] = 48 + <char>(micros % 10)
            micros //= 10
            if not micros:
                break
        self.put(digits + i, 24 - i)

    cdef inline void wait(self, object value) except *:
        if value is None or <double>value == 0.0:
            self.put("0", 1)
        else:
            self.seconds(value)


cdef bint _is_harmless(const char* text, Py_ssize_t size) noexcept:
    """Whether redaction and escaping leave this as it is. Says no too often, never yes."""
    cdef Py_ssize_t i
    cdef char byte
    for i in range(size):
        byte = text[i]
        if byte < 32 or byte > 126 or byte == 34 or byte == 37 or byte == 92:  # " % \
            return False
        if (byte | 32) == 116 and size - i >= 5:  # token
            if ((text[i + 1] | 32) == 111 and (text[i + 2] | 32) == 107 and (text[i + 3] | 32) == 101
                    and (text[i + 4] | 32) == 110):
                return False
        elif byte == 118 and size - i >= 3 and text[i + 1] == 52 and text[i + 2] == 46:  # v4.
            return False
        elif byte == 119 and size - i >= 3 and text[i + 1] == 115 and text[i + 2] == 45:  # ws-
            return False
    return True


cdef _Text _text = _Text()  # one at a time: nothing in between calls Python code


def combined(list over not None, long long second, str stamp not None):
    """The lines of these, or None for one that is left to Python: of another second, for example."""
    cdef list made = []
    cdef tuple record
    cdef double wall
    for ended_at, given in over:
        wall = ended_at
        if not isinstance(given, tuple) or len(<tuple>given) < 17:
            raise TypeError("an AccessRecord is wanted")
        record = <tuple>given
        keeper = record[16]
        facts = None if keeper is None else keeper.shown
        made.append(_combined(record, stamp, facts) if type(facts) is str and <long long>wall == second else None)
    return made


cdef object _combined(tuple record, str stamp, str facts):
    cdef _Text out = _text
    cdef bytes method = record[1], target = record[2]
    if method is None or target is None:
        return None
    if not _is_harmless(PyBytes_AS_STRING(target), PyBytes_GET_SIZE(target)):
        return None
    if not _is_harmless(PyBytes_AS_STRING(method), PyBytes_GET_SIZE(method)):
        return None
    out.size = 0
    out.bad = False
    out.string(record[0] or "-")
    out.put(" - ", 3)
    out.string(record[6])
    out.put(" [", 2)
    out.string(stamp)
    out.put('] "', 3)
    out.put(PyBytes_AS_STRING(method), PyBytes_GET_SIZE(method))
    out.put(" ", 1)
    out.put(PyBytes_AS_STRING(target), PyBytes_GET_SIZE(target))
    out.put(" HTTP/1.", 8)
    out.number(record[14])
    out.put('" ', 2)
    out.number(record[3])
    out.put(" ", 1)
    out.number(record[5])
    out.put(" ", 1)
    out.string(facts)
    out.put(" ", 1)
    out.string(record[8])
    out.put(" ", 1)
    out.string(record[7])
    out.put(" in=", 4)
    out.number(record[4])
    out.put(" queue=", 7)
    out.wait(record[9])
    out.put(" connect=", 9)
    out.wait(record[10])
    out.put(" first=", 7)
    out.wait(record[11])
    out.put(" total=", 7)
    out.seconds(record[12])
    out.put(" ", 1)
    out.string(record[13])
    out.put("\n", 1)
    return None if out.bad else PyUnicode_FromStringAndSize(out.data, out.size)
