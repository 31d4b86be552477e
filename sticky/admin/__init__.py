"""The admin API: JSON over HTTP on a Unix socket, for the daemon's own user. Not the byte path, so twisted.web serves it.

`calls` says what there is, `bodies` how it looks, `streams` what goes on, `web` speaks HTTP, `sockets` and `peers` let in,
`service` starts and stops. State is reached through `isticky.IInspection` and in no other way.
"""
