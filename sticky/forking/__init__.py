"""Being forked: what a process may not hold then, how it serves forks, and how each becomes a container. Runs INSIDE containers."""
