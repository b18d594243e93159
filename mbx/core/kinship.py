"""Whom a session runs below: what one process tells another that it started, or prints to it.

What a program writes may be what it was started with; what it prints is read above it. So sessions
of which one runs below the other, or that run below the same third, are kin, and what one of them
read may stand in what any of them writes (docs/decisions/0021). Who is above whom is the kernel's
word: nothing that a caller says of itself changes it.
"""

from collections.abc import Iterable
from typing import NamedTuple

from mbx.core.evidence import Process, ProcessEntry, Unreadable, harness_of, is_run


class Ancestor(NamedTuple):
    """A process above another. `is_agent`: an agent CLI or `mbx run`, whether it spoke or not.

    So may be whatever keeps its command line to itself.
    """

    process: Process
    is_agent: bool


class Above(NamedTuple):
    """The ancestors of a process, nearest first; `end`: the one that could not be read, if any."""

    ancestors: tuple[Ancestor, ...] = ()
    end: Unreadable | None = None


def above(chain: Iterable[ProcessEntry | Unreadable], process: Process) -> Above:
    """All that stands above `process`, which is the head of `chain`.

    Nothing ends the walk before pid 1, which may be closed to us: what runs below su, sshd or a
    terminal multiplexer below an agent CLI is still below it.
    """
    found: list[Ancestor] = []
    for place, entry in enumerate(chain):
        if isinstance(entry, Unreadable):
            return Above(tuple(found), None if place and entry.pid == 1 else entry)
        if place:
            one = Process(entry.pid, entry.start_ticks, process.boot_id)
            found.append(Ancestor(one, _is_agent(entry)))
        elif (entry.pid, entry.start_ticks) != (process.pid, process.start_ticks):
            return Above(end=Unreadable(process.pid))
    return Above(tuple(found))


def _is_agent(entry: ProcessEntry) -> bool:
    is_hidden = not entry.argv and entry.pid != 1
    return is_hidden or harness_of(entry) is not None or is_run(entry)
