"""TCP ports for daemons that are to listen at a port which is known before they start."""

import socket
from collections import deque
from typing import Final

LOOPBACK: Final = "127.0.0.1"

KEPT_MAX: Final = 100
"""So many of the last ports stay reserved: more than the hosts of one test or of a demo."""

_kept: Final[deque[socket.socket]] = deque()


def reserve_port(address: str = LOOPBACK) -> int:
    """A port of this address that nobody else is given, while this process lives.

    A port which was only looked up is anybody's again: another bind to port 0, or the source of a
    connection, may take it before the daemon does or while it is down. So a socket stays bound to
    it and never listens: beside such a one Linux lets another socket listen if both have
    SO_REUSEADDR, as the daemon's have (socket(7)), and gives the port to no one who asks for any.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    kept = socket.socket(family)
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind((address, 0))
    _kept.append(kept)
    if len(_kept) > KEPT_MAX:
        _kept.popleft().close()
    port: int = kept.getsockname()[1]
    return port
