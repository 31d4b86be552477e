Several processes can share the listeners (`workers = N`, `--workers N`): each lets requests of the sessions that it holds in without
asking, one that is killed is replaced, and no session is lost with it. docs/protocol.md is what they speak.
