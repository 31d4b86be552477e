`sticky restart` replaces the running daemon by a new one without an interruption: no connection is refused, open WebSockets stay, and a
new daemon that does not start leaves the old one in charge and says why.
