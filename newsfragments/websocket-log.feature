A WebSocket has its line in the access log when it is over, with its length, its bytes and how it ended (`closed_1000`, `client_gone`, `idle_timeout`); it counts no more as an answer's time.
