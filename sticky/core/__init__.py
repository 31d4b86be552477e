"""The rules. Pure: standard library and attrs only (nacl in `tokens`); no I/O, no clock, no randomness, no logging.

`now` is float seconds on a monotonic clock and comes in with each call; what is to be done goes out as effects. Nothing
here may import Twisted or any other room of ours but `sticky.errors`.
"""
