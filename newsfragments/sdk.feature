The SDK has `sessions.status`, `extend` and `list`, named sessions (`start(name=…)`) and `Server.autoscaler`, each call also for
asyncio (`.aio(…)`) and Twisted (`sticky.sdk.twisted`); it finds its daemon by the admin socket, and secrets may come from files.
