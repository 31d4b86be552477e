"""Function calls: their frames, and the interpreter that runs them. The interpreter runs INSIDE a container, never in the daemon."""
