"""What users import: apps, Servers and their sessions. Must not know the edge, the service or the event loop."""
