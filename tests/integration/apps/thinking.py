"""A container that accepts connections and never says a word. Run as `python thinking.py PORT`."""

from __future__ import annotations

import sys
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.protocol import Factory, Protocol

reactor: Any = _reactor
reactor.listenTCP(int(sys.argv[1]), Factory.forProtocol(Protocol), backlog=4096, interface="127.0.0.1")
reactor.run()
