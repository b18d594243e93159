"""A process and its ancestors, each proved to be the parent of its child; and where we sit.

The daemon looks at its callers; a command of the owner's looks at itself before it asks for a
passphrase, since some of them need no daemon.
"""

import os
import sys
from collections.abc import Iterator
from typing import Final

from mbx.core.evidence import ProcessEntry, Unreadable, is_process_number
from mbx.core.terminal import Terminal, owners_terminal
from mbx.kernel import Kernel

if sys.platform == "linux":
    from mbx.kernel import linux as _of_this_platform
else:
    from mbx.kernel import portable as _of_this_platform

KERNEL: Final[Kernel] = _of_this_platform
"""The one place where the platform decides."""

ANCESTORS_MAX: Final = 256
"""Looked at in one walk: nobody's shell lies deeper, and any caller can put processes above it."""
READ_ATTEMPTS_MAX: Final = 5
WALK_ATTEMPTS_MAX: Final = 3
"""An ancestor may end during a walk."""


def ancestry(kernel: Kernel, pid: int) -> Iterator[ProcessEntry | Unreadable]:
    """The process `pid` and its ancestors, nearest first, each read when it is asked for.

    Ends after the last ancestor, or with an `Unreadable` where one could not be read or too many
    lie below it.
    """
    if not is_process_number(pid):
        return
    entry = kernel.read_entry(pid) or Unreadable(pid)
    yield entry
    for _ in range(ANCESTORS_MAX):
        parent = _parent_of(kernel, entry) if isinstance(entry, ProcessEntry) else None
        if parent is None:
            return
        entry = parent
        yield entry
    yield Unreadable(entry.pid, is_too_far=True)


def own_terminal(kernel: Kernel = KERNEL) -> Terminal:
    """Whether this very process is at the owner's terminal now."""
    found = owners_terminal(ancestry(kernel, os.getpid()))
    for _ in range(WALK_ATTEMPTS_MAX - 1):
        if not found.unknown:
            break
        found = owners_terminal(ancestry(kernel, os.getpid()))
    return found


def _parent_of(kernel: Kernel, child: ProcessEntry) -> ProcessEntry | Unreadable | None:
    """The parent of a living process; None where it has none (in our pid namespace).

    The child is read again after the parent: as long as it names the same parent, that number was
    not given to another process in between.
    """
    ppid = child.ppid
    for _ in range(READ_ATTEMPTS_MAX):
        parent = kernel.read_entry(ppid) if ppid else None
        again = kernel.read_stat(child.pid)
        if not isinstance(again, ProcessEntry) or again.start_ticks != child.start_ticks:
            return Unreadable(child.pid)
        if again.ppid != ppid:
            ppid = again.ppid
            continue
        if ppid == 0 or isinstance(parent, Unreadable):
            return parent
        if parent is not None and parent.start_ticks <= child.start_ticks:
            return parent
    return Unreadable(ppid)
