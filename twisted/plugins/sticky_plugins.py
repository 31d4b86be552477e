"""What Twisted finds of Sticky: the `twistd sticky` command and the built-in container backends, all by dotted name.

twistd imports this file for every command it lists, so nothing else of Sticky may be imported here but the plugin value.
"""

from twisted.application.service import ServiceMaker

from sticky.containers.plugins import BackendPlugin

sticky = ServiceMaker(
    "sticky",
    "sticky.tap",
    "Sticky sessions: every request and WebSocket of a session reaches its container.",
    "sticky",
)

process_backend = BackendPlugin("process", "sticky.containers.process.ProcessBackend")
docker_backend = BackendPlugin("docker", "sticky.containers.docker.backend.DockerBackend")
