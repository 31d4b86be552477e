The end of a container that Sticky stopped says why, in the log, in `sticky status` and in `sticky containers`: scaled down, replaced by a
newer deployment, too old, stopped by an operator, or because the daemon stopped or its Server was removed.
