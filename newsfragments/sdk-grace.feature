The SDK's `sessions.terminate` and `sessions.release` take `grace`: seconds after which what is in flight is cut.
