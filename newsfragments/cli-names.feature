`sticky sessions start --name` and `sticky sessions release` work with named sessions of the operator's own; names are shown.
