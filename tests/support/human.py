"""The human at a terminal of its own, for tests that speak to a real daemon in raw lines."""

import contextlib
import os
import socket
from pathlib import Path
from typing import Any, Self

from mbx.core.canonical import parse
from mbx.core.keys import SigningKey
from tests.support.daemon import _AGENT, PYTHON, Agent, Daemon, Line
from tests.support.owner import content, wire
from tests.support.shells import TIMEOUT_S, launch

_AT_A_TERMINAL = """
import fcntl, os, termios
try:
    os.setsid()
except PermissionError:
    pass
_, screen = os.openpty()
fcntl.ioctl(screen, termios.TIOCSCTTY, 0)
"""

KEY = SigningKey.from_seed(b"an owner for tests of daemons :)")


class Human(Agent):
    """A process with a controlling terminal and no agent CLI above it; it holds the owner's key."""

    def __init__(self, socket_path: str) -> None:
        self._path = socket_path
        self._control, theirs = socket.socketpair()
        self._control.settimeout(TIMEOUT_S)
        with theirs:
            argv = [*PYTHON, _AT_A_TERMINAL + _AGENT]
            self.pid = launch(argv, stdin=theirs.fileno())
        self._pidfd = os.pidfd_open(self.pid)

    def __enter__(self) -> Self:
        return self

    def line(self) -> Line:
        """A connection of the human that has said hello."""
        line = self.bare()
        line.hello()
        return line

    def enroll(self) -> None:
        """Make the key the owner's of this host."""
        with self.line() as line:
            draft = line.call("owner.draft", act="rotate", public_key=KEY.public.hex())
            line.call("owner.enroll", record=signed(draft))


def signed(draft: dict[str, Any], key: SigningKey = KEY) -> dict[str, Any]:
    """The record of a draft as it travels."""
    assert isinstance(parse(draft["payload"].encode(), 2**21), dict)
    return wire(draft["kind"], content(draft), key)


def do(line: Line, act: str, **wanted: object) -> dict[str, Any]:
    """Draft, sign, apply on one connection."""
    draft = line.call("owner.draft", act=act, **wanted)
    return line.call("owner.apply", record=signed(draft))


def gated(gate: Path) -> tuple[str, ...]:
    """How Python starts a daemon whose commits wait as long as the file `gate` exists."""
    code = (
        "import os, sys, time; from mbx.store import database; plain = database.run_group\n"
        "def run_group(connection, units, *rest):\n"
        f"    while os.path.exists({str(gate)!r}): time.sleep(0.002)\n"
        "    return plain(connection, units, *rest)\n"
        "database.run_group = run_group\n"
        "from mbx.daemon.__main__ import main; sys.exit(main(sys.argv[1:]))"
    )
    return ("-I", "-c", code)


@contextlib.contextmanager
def owned(daemon: Daemon) -> Any:
    """A human whose key the daemon knows."""
    with Human(daemon.socket_path) as human:
        human.enroll()
        yield human
