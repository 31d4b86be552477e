"""How containers are run: backends, and what runs inside a Python one. Knows nothing of sessions."""
