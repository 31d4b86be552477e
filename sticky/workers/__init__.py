"""Proxies in processes of their own, and the protocol between them and the daemon (docs/protocol.md).

A proxy (a worker, or a daemon that has handed over) moves clients' bytes; the daemon owns sessions and containers.
"""
