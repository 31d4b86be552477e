"""Function calls in sessions: `remote`, `Session`, `bind`. Pickles in the client's process; the daemon never looks inside."""
