"""Tests of the whole: real sockets, children, browsers, Docker."""

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell ignores it for what it runs in the background. Commands that tests interrupt would ignore it as well.
    signal.signal(signal.SIGINT, signal.default_int_handler)
