`sticky status` shows the workers: pid, age, restarts, clients, requests in flight and sessions held.
