"""What must survive the death of the daemon, on disk. Knows records and nothing of what they mean.

`codec` turns records into text and back, `file` is an SQLite file while it is open, `store` what is in it, `writer` puts batches
there off the reactor's thread.
Durable means surviving the death of the daemon, not of the host.
"""
