"""Who calls, below whom, and who lives: the shell around `mbx.core.evidence`.

A death is, where the kernel can tell it, an event and not a time-out. What a platform tells is
`KERNEL`; everything else here is the same on each.
"""

import asyncio
import os
import socket
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from mbx import nullsignal
from mbx.core.evidence import (
    Claim,
    Evidence,
    KnownSession,
    Lineage,
    Process,
    ProcessEntry,
    Unreadable,
    find_session,
    is_process_number,
    judge,
)
from mbx.core.kinship import Above
from mbx.core.kinship import above as above_in
from mbx.core.terminal import NO_PROCESS, Terminal, owners_terminal
from mbx.kernel import Kernel, Peer
from mbx.kernel import ancestry as ancestors
from mbx.kernel.ancestry import WALK_ATTEMPTS_MAX

KERNEL: Kernel = ancestors.KERNEL
"""What the platform tells."""

_GONE: Final = Lineage("none", reason="the calling process has ended")
_NO_BOOT: Final = Lineage("unknown", reason="the boot id cannot be read")
_ELSEWHERE: Final = Lineage(
    "unknown", reason="/proc shows the processes of another pid namespace than the daemon's"
)
_NOWHERE: Final = Terminal(False, NO_PROCESS)


# -- what the platform tells ----------------------------------------------------------------------


def boot_id() -> str:
    """The id of this boot. Raises OSError where it cannot be read now."""
    return KERNEL.boot_id()


def read_entry(pid: int) -> ProcessEntry | Unreadable | None:
    """The entry of a process; None when there is no such process."""
    return KERNEL.read_entry(pid)


def variables(process: Process, names: Collection[str]) -> dict[str, str] | None:
    """Of the environment that exactly this process was started with; None where nobody can say."""
    found = KERNEL.variables(process.pid, names)
    return found if evidence(process) == "live" else None


def listens_at(process: Process, port: int) -> frozenset[str]:
    """The addresses, reachable from here, at which exactly this process listens on a TCP port."""
    found = KERNEL.listens_at(process.pid, port)
    return found if evidence(process) == "live" else frozenset()


def peer_of(sock: socket.socket) -> Peer:
    """The peer of a connected unix socket (or of a transport's socket). Raises OSError."""
    return KERNEL.peer_of(sock)


def _start_of(peer: Peer) -> int | None:
    """None when the peer has ended; else its start, 0 where a pidfd tells or nothing can be read.

    A pidfd is that process for ever; of a number, the start tells whether it is used again.
    """
    if not peer.is_alive():
        return None
    if peer.pidfd is not None or not is_process_number(peer.pid):
        return 0
    entry = KERNEL.read_stat(peer.pid)
    if isinstance(entry, ProcessEntry):
        return None if entry.zombie else entry.start_ticks
    return None if entry is None else 0


def _has_ended_since(peer: Peer, start: int) -> bool:
    now = _start_of(peer)
    return now is None or (now != start and 0 not in (now, start))


# -- the walk -------------------------------------------------------------------------------------


def ancestry(pid: int) -> Iterator[ProcessEntry | Unreadable]:
    """The process `pid` and its ancestors, nearest first, each read when it is asked for."""
    return ancestors.ancestry(KERNEL, pid)


def walk(peer: Peer, known: Iterable[KnownSession], claim: Claim) -> Lineage:
    """The session of a peer; none when it has ended: its number may be another's now.

    That is no "cannot say", or a dead connection handed on would make a token count.
    """
    try:
        boot = KERNEL.boot_id()
        if not KERNEL.numbers_are_ours():
            return _ELSEWHERE if peer.is_alive() else _GONE
    except OSError:
        return _NO_BOOT
    sessions = tuple(known)
    lineage = _GONE
    start = _start_of(peer)
    if start is None:
        return _GONE
    for _ in range(WALK_ATTEMPTS_MAX):
        lineage = find_session(ancestry(peer.pid), sessions, claim, boot)
        if _has_ended_since(peer, start):
            return _GONE
        if lineage.verdict != "unknown":
            break
    return lineage


def terminal_of(peer: Peer) -> Terminal:
    """Whether a peer is at the owner's terminal now; not when it has ended, as in `walk`."""
    found = _NOWHERE
    start = _start_of(peer)
    if start is None:
        return _NOWHERE
    for _ in range(WALK_ATTEMPTS_MAX):
        found = owners_terminal(ancestry(peer.pid))
        if _has_ended_since(peer, start):
            return _NOWHERE
        if not found.unknown:
            break
    return found


def above(process: Process) -> Above:
    """What stands above a process now.

    A process of another user that is hidden from us ends it: our sessions are none of that user's.
    """
    found = Above()
    for _ in range(WALK_ATTEMPTS_MAX):  # an ancestor may end during the walk
        found = above_in(ancestry(process.pid), process)
        if found.end is None or found.end.is_too_far:
            return found
    is_others = found.end is not None and nullsignal.ask(found.end.pid) == "another-user"
    return found._replace(end=None) if is_others else found


# -- life and death -------------------------------------------------------------------------------


def evidence(process: Process) -> Evidence:
    """Whether a process is alive, as of now."""
    try:
        boot = KERNEL.boot_id()
    except OSError:
        return "unknown"
    entry = KERNEL.read_stat(process.pid) if is_process_number(process.pid) else None
    return judge(process, entry, boot)


@dataclass(slots=True, eq=False)
class _Watched:
    """One process under watch: by `pidfd`, or by asking again while that is None."""

    process: Process
    on_death: Callable[[], None]
    pidfd: int | None = None
    report: asyncio.Handle | None = field(default=None)


class DeathWatch:
    """Tells of each watched process, once, that it has ended. For one event loop.

    A process is watched by a pidfd, whose end the loop sees at once. Where none can be had (no
    descriptor left, a platform without them) or nothing can be said yet, `poll` must be called from
    time to time.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._watched: dict[Process, _Watched] = {}

    @property
    def polled(self) -> int:
        """How many processes only `poll` can tell about."""
        return sum(1 for watched in self._watched.values() if self._is_polled(watched))

    def watch(self, process: Process, on_death: Callable[[], None]) -> None:
        """Call `on_death` from the loop when the process has ended, soon if it already has.

        Watching a process again replaces its callback.
        """
        self.unwatch(process)
        watched = self._watched[process] = _Watched(process, on_death)
        self._look(watched)

    def unwatch(self, process: Process) -> None:
        """Forget the process: its callback will not be called any more."""
        watched = self._watched.pop(process, None)
        if watched is None:
            return
        self._disarm(watched)
        if watched.report is not None:
            watched.report.cancel()

    def sees(self, process: Process) -> bool:
        """Whether the process lives for certain: a pidfd watches it and has not told its end."""
        watched = self._watched.get(process)
        return watched is not None and watched.pidfd is not None

    def poll(self) -> list[Process]:
        """Look at the processes without pidfd; those found dead, whose callbacks will run soon."""
        asked = [watched for watched in self._watched.values() if self._is_polled(watched)]
        for watched in asked:
            self._look(watched)
        return [watched.process for watched in asked if watched.report is not None]

    def close(self) -> None:
        """Forget every process and give all descriptors back."""
        for process in list(self._watched):
            self.unwatch(process)

    @staticmethod
    def _is_polled(watched: _Watched) -> bool:
        return watched.pidfd is None and watched.report is None

    def _look(self, watched: _Watched) -> None:
        """Report a dead process, arm a pidfd for a living one; leave what is unknown to `poll`."""
        verdict = evidence(watched.process)
        if verdict == "live":
            try:
                watched.pidfd = KERNEL.pidfd_of(watched.process.pid)
            except OSError as error:
                verdict = "dead" if isinstance(error, ProcessLookupError) else "unknown"
            else:  # only now is it certain that the descriptor is this process
                verdict = evidence(watched.process)
        if verdict == "live" and watched.pidfd is not None:
            self._loop.add_reader(watched.pidfd, self._ended, watched)
            return
        if watched.pidfd is not None:
            os.close(watched.pidfd)
            watched.pidfd = None
        if verdict == "dead":
            watched.report = self._loop.call_soon(self._ended, watched)

    def _ended(self, watched: _Watched) -> None:
        del self._watched[watched.process]
        self._disarm(watched)
        watched.on_death()

    def _disarm(self, watched: _Watched) -> None:
        if watched.pidfd is not None:
            self._loop.remove_reader(watched.pidfd)
            os.close(watched.pidfd)
            watched.pidfd = None
