"""What must survive the death of the daemon, on disk. Knows records and nothing of what they mean.

`codec` turns records into text and back, `store` is the SQLite file, `writer` puts batches into it off the reactor's thread.
Durable means surviving the death of the daemon, not of the host.
"""
