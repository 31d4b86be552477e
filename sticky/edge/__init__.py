"""The data plane: bytes from clients to containers and back. Knows no rule of sessions; asks through `sticky.isticky`."""
