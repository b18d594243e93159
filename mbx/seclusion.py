"""Closing the process to others of the same user: not dumpable, no core file (PROOF R29).

A process that is not dumpable cannot be traced, and its memory, environment and descriptors cannot
be read through ``/proc``, by others of the same user. It stays so until it ends.
"""

import ctypes
import resource
import sys
from typing import Final

# prctl(2).
PR_GET_DUMPABLE: Final = 3
PR_SET_DUMPABLE: Final = 4


def close_process() -> bool:
    """Close this process; harmless to repeat. False where the system refuses, or has no such thing.

    It leaves no core file in any case.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return sys.platform == "linux" and _prctl(PR_SET_DUMPABLE, 0) == 0 and is_secluded()


def is_secluded() -> bool:
    """Whether this process cannot be read by others; False where the system has no such thing."""
    return sys.platform == "linux" and _prctl(PR_GET_DUMPABLE) == 0


def _prctl(option: int, value: int = 0) -> int:
    zero = ctypes.c_ulong(0)
    call = ctypes.CDLL(None, use_errno=True).prctl
    return int(call(option, ctypes.c_ulong(value), zero, zero, zero))
