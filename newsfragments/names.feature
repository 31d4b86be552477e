Clients may name their sessions: get or create by name, `session_expired` with the reason once one is lost, and
a release call. Names survive a crash of the daemon.
