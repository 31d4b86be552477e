Containers can run on a Docker Engine or Podman: `backend = "docker"` with an image in `[servers.NAME.docker]`; see
docs/docker.md.
