"""A process that is given the number of one that has ended."""

import errno
import os
import socket
from typing import Final

from tests.support.daemon import _AGENT as AGENT
from tests.support.daemon import PYTHON, Agent
from tests.support.shells import TIMEOUT_S, launch

_CLONE: Final = """
import ctypes, os, signal, sys
number = ctypes.c_int(int(sys.argv[1]))
# struct clone_args (linux/sched.h): exit_signal is field 4, set_tid and its size 8 and 9.
fields = (ctypes.c_uint64 * 11)()
fields[4], fields[8], fields[9] = signal.SIGCHLD, ctypes.addressof(number), 1
libc = ctypes.CDLL(None, use_errno=True)
made = libc.syscall(435, ctypes.byref(fields), ctypes.sizeof(fields))
if made == 0:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.execv(sys.argv[2], sys.argv[2:])
os.write(1, b"%d" % (made if made > 0 else -ctypes.get_errno()))
os._exit(0)
"""
"""clone3(2) with set_tid: the kernel gives exactly this number, to root, while nobody has it."""

_TRIES: Final = 1_000
"""Until whoever adopted the dead one has taken note of its end, the number is not free."""


class Successor(Agent):
    """As `Agent`, under the number `pid`. For root. Use it in ``with``."""

    def __init__(self, socket_path: str, pid: int) -> None:
        self._path = socket_path
        self._control, theirs = socket.socketpair()
        self._control.settimeout(TIMEOUT_S)
        with theirs:
            self.pid = next(filter(None, (_cloned(theirs, pid) for _ in range(_TRIES))), 0)
        assert self.pid == pid, f"the number {pid} is not given again"
        self._pidfd = os.pidfd_open(pid)


def _cloned(stdin: socket.socket, pid: int) -> int:
    """The number of the process that was made; 0 while somebody has it."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as report:
        try:
            argv = [*PYTHON, _CLONE, str(pid), *PYTHON, AGENT]
            launch(argv, stdin=stdin.fileno(), stdout=writing)
        finally:
            os.close(writing)
        said = int(report.read() or b"0")
    assert said in (pid, -errno.EEXIST), os.strerror(-said)
    return max(said, 0)
