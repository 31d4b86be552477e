# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The reader of plain heads compiled: same values, same refusals to read, held to `plain.PurePlain` by the same tests.

Nothing is decided here that is not decided there; where it is absent, that one does its work.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyTypeObject
from libc.string cimport memchr, memcmp

from sticky.edge.credentials import Credential, Source
from sticky.edge.grammar import Framing
from sticky.edge.plain import PlainFields, PlainHead, PurePlain
from sticky.edge.wire import strip_query_token

cdef extern from "Python.h":
    object PyType_GenericAlloc(PyTypeObject* kind, Py_ssize_t items)

cdef enum:
    TOKEN = 1
    VALUE = 2
    TARGET = 4
    NAME = 8  # of a host
    ADDRESS = 16  # within the brackets of an IPv6 address
    DIGIT = 32
    SECRET = 64  # of a session token

cdef unsigned char KIND[256]
cdef unsigned char FOLD[256]  # lower case, and `_` as `-`


cdef void _mark(bytes members, unsigned char kind):
    cdef unsigned char member
    for member in members:
        KIND[member] |= kind


cdef void _fill():
    cdef int byte
    alphanumeric = bytes(range(48, 58)) + bytes(range(65, 91)) + bytes(range(97, 123))
    _mark(b"!#$%&'*+.^_`|~-" + alphanumeric, TOKEN)
    _mark(b"\t" + bytes(range(0x20, 0x7F)) + bytes(range(0x80, 0x100)), VALUE)
    _mark(b'!"' + bytes(range(0x24, 0x7F)), TARGET)
    _mark(b"._-" + alphanumeric, NAME)
    _mark(b"0123456789ABCDEFabcdef:.", ADDRESS)
    _mark(b"0123456789", DIGIT)
    _mark(b"!" + bytes(range(0x23, 0x3B)) + bytes(range(0x3C, 0x7F)), SECRET)
    for byte in range(256):
        FOLD[byte] = byte + 32 if 65 <= byte <= 90 else 45 if byte == 95 else byte


_fill()

cdef tuple _METHODS = (b"GET", b"POST", b"HEAD", b"PUT", b"PATCH", b"DELETE", b"OPTIONS")
_ODD_NAMES = (b"expect", b"forwarded", b"http2-settings", b"keep-alive", b"te", b"transfer-encoding", b"upgrade")
_ODD_PREFIXES = (b"proxy-", b"sec-websocket-", b"x-forwarded-")
_ODD_IN_ANSWERS = (b"transfer-encoding", b"connection", b"keep-alive", b"proxy-connection", b"upgrade", b"te")

cdef object _LENGTH_BODY = Framing.LENGTH
cdef object _NO_BODY = Framing.NONE
cdef object _HEADER = Source.HEADER
cdef object _COOKIE = Source.COOKIE
cdef bytes _BEARER = b"bearer"
cdef bytes _WK = b"wk-"


cdef inline bint _is(const unsigned char* text, Py_ssize_t size, bytes name) noexcept:
    """Whether this name, folded, is that one."""
    cdef const unsigned char* other = <const unsigned char*>PyBytes_AS_STRING(name)
    cdef Py_ssize_t i
    if size != PyBytes_GET_SIZE(name):
        return False
    for i in range(size):
        if FOLD[text[i]] != other[i]:
            return False
    return True


cdef inline bint _begins(const unsigned char* text, Py_ssize_t size, bytes name) noexcept:
    return size >= PyBytes_GET_SIZE(name) and _is(text, PyBytes_GET_SIZE(name), name)


cdef bint _any(const unsigned char* text, Py_ssize_t size, tuple names) noexcept:
    cdef bytes name
    for name in names:
        if _is(text, size, name):
            return True
    return False


cdef bytes _method(const unsigned char* text, Py_ssize_t size):
    """The one that this is, or None."""
    cdef bytes method
    for method in _METHODS:
        if PyBytes_GET_SIZE(method) == size and memcmp(text, PyBytes_AS_STRING(method), size) == 0:
            return method
    return None


cdef bint _is_host(const unsigned char* text, Py_ssize_t size) noexcept:
    cdef Py_ssize_t i = 0
    if size and text[0] == 91:  # [
        i = 1
        while i < size and KIND[text[i]] & ADDRESS:
            i += 1
        if i == 1 or i >= size or text[i] != 93:
            return False
        i += 1
    else:
        while i < size and KIND[text[i]] & NAME:
            i += 1
        if i == 0:
            return False
    if i < size:
        if text[i] != 58 or size - i > 6:
            return False
        i += 1
        while i < size and KIND[text[i]] & DIGIT:
            i += 1
    return i == size


cdef long long _number(const unsigned char* text, Py_ssize_t size) noexcept:
    """A length, or -1."""
    cdef long long value = 0
    cdef Py_ssize_t i
    if size < 1 or size > 18 or (text[0] == 48 and size > 1):
        return -1
    for i in range(size):
        if not KIND[text[i]] & DIGIT:
            return -1
        value = value * 10 + (text[i] - 48)
    return value


cdef Py_ssize_t _field(const unsigned char* text, Py_ssize_t at, Py_ssize_t size, Py_ssize_t* colon) noexcept:
    """The end of the field line at `at`, where its CRLF is; -1: it is none, or not complete."""
    cdef Py_ssize_t i = at
    while i < size and KIND[text[i]] & TOKEN:
        i += 1
    if i == at or i >= size or text[i] != 58:
        return -1
    colon[0] = i
    i += 1
    while i < size and KIND[text[i]] & VALUE:
        i += 1
    if i + 1 >= size or text[i] != 13 or text[i + 1] != 10:
        return -1
    return i


cdef class _Limits:
    cdef Py_ssize_t head, target, fields


class CompiledPlain(PurePlain):
    """See `plain.Reader`."""

    def __init__(self, names, limits):
        super().__init__(names, limits)
        cdef _Limits bounds = _Limits()
        bounds.head, bounds.target, bounds.fields = limits.head, limits.target, limits.fields
        self._bounds = bounds
        self._odd_names = (*_ODD_NAMES, names.key, names.secret)
        self._odd_prefixes = (*_ODD_PREFIXES, names.server_prefix)
        self._own_authorization = names.authorization

    def request(self, bytes buffer, last):
        """See `plain.Reader`."""
        cdef const unsigned char* text = <const unsigned char*>PyBytes_AS_STRING(buffer)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(buffer)
        cdef Py_ssize_t space = 0, at, end
        cdef bint escaped = False, query = False
        cdef bytes method, target, line, tail
        cdef _Limits bounds = self._bounds
        while space < size and space < 8 and 65 <= text[space] <= 90:
            space += 1
        if space + 1 >= size or text[space] != 32 or text[space + 1] != 47:
            return None
        at = space + 1
        while at < size and KIND[text[at]] & TARGET:
            if text[at] == 37:
                escaped = True
            elif text[at] == 63:
                query = True
            at += 1
        if at + 11 > size or memcmp(text + at, b" HTTP/1.1\r\n", 11) != 0 or at + 9 > bounds.target + 10:
            return None
        method = _method(text, space)
        target = PyBytes_FromStringAndSize(<const char*>text + space + 1, at - space - 1)
        at += 9
        if method is None:
            return None
        if last is not None:
            tail = last.tail
            end = at + PyBytes_GET_SIZE(tail)
            if end > size or memcmp(text + at, PyBytes_AS_STRING(tail), PyBytes_GET_SIZE(tail)) != 0:
                last = None
        if last is None:
            last = self._read_fields(buffer, at, bounds.fields)
            if last is None:
                return None
            end = at + len(last.tail)
        if end > bounds.head or target.find(self._query) >= 0:
            return None
        if escaped and query and strip_query_token(target, self._names) != target:
            return None
        line = PyBytes_FromStringAndSize(<const char*>text, at)
        head = PyType_GenericAlloc(<PyTypeObject*>PlainHead, 0)  # a fifth of what calling the class costs
        head.method = method
        head.target = target
        head.line = line
        head.plain = last
        return head, end

    def _read_fields(self, bytes buffer, Py_ssize_t begin, Py_ssize_t limit):
        cdef const unsigned char* text = <const unsigned char*>PyBytes_AS_STRING(buffer)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(buffer)
        cdef Py_ssize_t at = begin + 2, colon = 0, end, name_size, start, stop, lines = 0, kept_from = begin, i
        cdef const unsigned char* name
        cdef bytes host = None, token = None, bearer = None
        cdef long long length = -1
        cdef bint keep_alive = True, connection = False, drop
        cdef list pieces = []
        cdef tuple odd_names = self._odd_names, odd_prefixes = self._odd_prefixes
        cdef bytes own_authorization = self._own_authorization, prefix
        while at + 1 < size and not (text[at] == 13 and text[at + 1] == 10):
            end = _field(text, at, size, &colon)
            if end < 0:
                return None
            lines += 1
            name = text + at
            name_size = colon - at
            start, stop = colon + 1, end
            while start < stop and (text[start] == 32 or text[start] == 9):
                start += 1
            while stop > start and (text[stop - 1] == 32 or text[stop - 1] == 9):
                stop -= 1
            drop = False
            if _is(name, name_size, b"host"):
                if host is not None or not _is_host(text + start, stop - start):
                    return None
                host = PyBytes_FromStringAndSize(<const char*>text + start, stop - start)
            elif _is(name, name_size, b"cookie"):
                value = PyBytes_FromStringAndSize(<const char*>text + start, stop - start)
                if self._cookie_name in value:
                    if token is not None:
                        return None
                    found = self._own_cookie(value)
                    if found is None:
                        return None
                    token, kept = found
                    pieces.append(PyBytes_FromStringAndSize(<const char*>text + kept_from, at - 2 - kept_from))
                    if kept:
                        pieces.append(b"\r\n" + buffer[at:colon + 1] + b" " + kept)
                    kept_from = end
            elif _is(name, name_size, b"connection"):
                if connection:
                    return None
                connection = drop = True
                if _is(text + start, stop - start, b"close"):
                    keep_alive = False
                elif not _is(text + start, stop - start, b"keep-alive") or text[start + 4] != 45:
                    return None
            elif _is(name, name_size, b"content-length"):
                length = _number(text + start, stop - start) if length < 0 and text[at + 7] == 45 else -1
                if length < 0:
                    return None
            elif _is(name, name_size, own_authorization):
                if bearer is not None or memchr(name, 95, name_size) != NULL:
                    return None
                if stop - start < 7 or not _is(text + start, 6, _BEARER) or text[start + 6] != 32:
                    return None
                start += 7
                while start < stop and text[start] == 32:
                    start += 1
                for i in range(start, stop):
                    if not KIND[text[i]] & SECRET:
                        return None
                bearer = PyBytes_FromStringAndSize(<const char*>text + start, stop - start)
                drop = True
            elif _is(name, name_size, b"authorization"):
                if stop - start >= 7 and _is(text + start, 6, _BEARER) and (text[start + 6] == 32 or text[start + 6] == 9):
                    start += 7
                    while start < stop and (text[start] == 32 or text[start] == 9):
                        start += 1
                    if _begins(text + start, stop - start, _WK):
                        return None
            elif _any(name, name_size, odd_names):
                return None
            else:
                for prefix in odd_prefixes:
                    if _begins(name, name_size, prefix):
                        return None
            if drop:
                pieces.append(PyBytes_FromStringAndSize(<const char*>text + kept_from, at - 2 - kept_from))
                kept_from = end
            at = end + 2
        if at + 1 >= size or host is None or lines > limit:
            return None
        end = at - 2
        pieces.append(PyBytes_FromStringAndSize(<const char*>text + kept_from, end - kept_from))
        outgoing = b"".join(pieces) if len(pieces) > 1 else pieces[0]
        if self._subprotocol in outgoing or self._query in outgoing:
            return None
        if bearer is not None:
            credential = Credential(_HEADER, bearer)
        else:
            credential = None if token is None else Credential(_COOKIE, token)
        return PlainFields(
            PyBytes_FromStringAndSize(<const char*>text + begin, at + 2 - begin),
            PyBytes_FromStringAndSize(<const char*>text + begin, end - begin),
            host,
            _NO_BODY if length < 0 else _LENGTH_BODY,
            0 if length < 0 else length,
            keep_alive,
            credential,
            outgoing,
        )

    def answer(self, bytes buffer):
        """See `plain.Reader`."""
        cdef const unsigned char* text = <const unsigned char*>PyBytes_AS_STRING(buffer)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(buffer), at, colon = 0, end, lines = 0, start, stop
        cdef long long length = -1
        cdef int status
        cdef _Limits bounds = self._bounds
        if size < 15 or memcmp(text, b"HTTP/1.1 ", 9) != 0 or text[12] != 32:
            return None
        if not (50 <= text[9] <= 57 and KIND[text[10]] & DIGIT and KIND[text[11]] & DIGIT):
            return None
        status = (text[9] - 48) * 100 + (text[10] - 48) * 10 + (text[11] - 48)
        if status == 204 or status == 205 or status == 304:
            return None
        at = 13
        while at < size and KIND[text[at]] & VALUE:
            at += 1
        if at + 1 >= size or text[at] != 13 or text[at + 1] != 10:
            return None
        at += 2
        while at + 1 < size and not (text[at] == 13 and text[at + 1] == 10):
            end = _field(text, at, size, &colon)
            if end < 0:
                return None
            lines += 1
            if memchr(text + at, 95, colon - at) == NULL:  # no `_`: these names are not folded
                if _is(text + at, colon - at, b"content-length"):
                    start, stop = colon + 1, end
                    while start < stop and (text[start] == 32 or text[start] == 9):
                        start += 1
                    while stop > start and (text[stop - 1] == 32 or text[stop - 1] == 9):
                        stop -= 1
                    length = _number(text + start, stop - start) if length < 0 else -1
                    if length < 0:
                        return None
                elif _any(text + at, colon - at, _ODD_IN_ANSWERS):
                    return None
            at = end + 2
        if at + 1 >= size or length < 0 or at + 2 > bounds.head or lines > bounds.fields:
            return None
        return status, at + 2, length
