"""Containers on a Docker Engine or Podman: the "docker" backend. Must not know sessions, nor decide when a container ends."""
