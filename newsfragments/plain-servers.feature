Servers without sessions: `sessioned = false`, or `@app.server()` alone. Requests go to the container with the fewest in flight or
to the one that an affinity header leads to, and scale by their number; see docs/plain-servers.md.
