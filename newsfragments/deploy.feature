A new definition can be brought to a running daemon, by `sticky deploy` or SIGHUP: rolling or with `--recreate`, without touching
an open connection; `sticky rollout status` shows what is left of old deployments and `sticky rollout undo` goes back.
