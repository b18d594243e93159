"""What the kernel says about processes (Linux): peers of sockets, entries of /proc, deaths.

The shell around `mbx.core.evidence`. A peer is a pidfd taken from the socket, not a number that may
be used again; ancestors are read so that each parent is proved to be the parent of its child; a
death is an event of a pidfd, not a time-out. `exe` is never read: it may be closed to us.
"""

import asyncio
import os
import select
import socket
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

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
from mbx.core.terminal import NO_PROCESS, Terminal, owners_terminal
from mbx.daemon.namespaces import boot_id, numbers_are_ours, own_time_shift

SO_PEERPIDFD: Final = 77
"""asm-generic/socket.h, since Linux 6.5; Python does not name it."""
PF_FORKNOEXEC: Final = 0x40
"""linux/sched.h: forked, and has not executed a program since."""
STAT_MAX_BYTES: Final = 4_096
CMDLINE_MAX_BYTES: Final = 65_536
ANCESTORS_MAX: Final = 256
READ_ATTEMPTS_MAX: Final = 5
WALK_ATTEMPTS_MAX: Final = 3

_UCRED = struct.Struct("3i")
_GONE: Final = Lineage("none", reason="the calling process has ended")
_NO_BOOT: Final = Lineage("unknown", reason="the boot id cannot be read")
_ELSEWHERE: Final = Lineage(
    "unknown", reason="/proc shows the processes of another pid namespace than the daemon's"
)
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_NOWHERE: Final = Terminal(False, NO_PROCESS)


# -- peers ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Peer:
    """The process at the other end of a unix socket when it connected.

    `pid` is 0 where the kernel names none (another pid namespace, already gone); `pidfd` is None
    where none could be had; `ended` when the kernel says so at once. Close it, or use it in
    ``with``.
    """

    pid: int
    uid: int
    gid: int
    pidfd: int | None
    ended: bool = False

    def is_alive(self) -> bool:
        """Whether the peer has not ended. Without a pidfd: yes, as far as can be said."""
        return not self.ended and (self.pidfd is None or not _has_ended(self.pidfd))

    def close(self) -> None:
        """Give the pidfd back. Once only."""
        if self.pidfd is not None:
            os.close(self.pidfd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def peer_of(sock: socket.socket) -> Peer:
    """The peer of a connected unix socket (or of a transport's socket). Raises OSError."""
    credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    pid, uid, gid = _UCRED.unpack(credentials)
    try:
        return Peer(pid, uid, gid, _pidfd_of_peer(sock, pid))
    except ProcessLookupError:
        return Peer(0, uid, gid, None, ended=pid > 0)


def _pidfd_of_peer(sock: socket.socket, pid: int) -> int | None:
    """A pidfd from the socket, else by number. ProcessLookupError: the peer has ended."""
    if not is_process_number(pid):
        return None
    try:
        return sock.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD)
    except ProcessLookupError:
        raise
    except OSError:  # an older kernel, or no descriptor left: then the next call fails as well
        try:
            return os.pidfd_open(pid)
        except ProcessLookupError:
            raise
        except OSError:
            return None


def _has_ended(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


# -- entries of /proc -----------------------------------------------------------------------------


def read_entry(pid: int) -> ProcessEntry | Unreadable | None:
    """The entry of a process; None when there is no such process."""
    stat = _read_of(pid, "stat", STAT_MAX_BYTES)
    if not isinstance(stat, bytes):
        return stat
    line = _read_of(pid, "cmdline", CMDLINE_MAX_BYTES)
    if not isinstance(line, bytes):
        return line
    words = line.rstrip(b"\0")
    return _entry(pid, stat, tuple(_text(words).split("\0")) if words else ())


def _read_stat(pid: int) -> ProcessEntry | Unreadable | None:
    """The entry without its command line: one small read that never waits for the process."""
    stat = _read_of(pid, "stat", STAT_MAX_BYTES)
    return _entry(pid, stat, ()) if isinstance(stat, bytes) else stat


def _entry(pid: int, stat: bytes, argv: tuple[str, ...]) -> ProcessEntry:
    # proc(5): field 2 is (comm), which may hold blanks and brackets; fields[0] is field 3.
    name_start, name_end = stat.index(b"(") + 1, stat.rindex(b")")
    fields = stat[name_end + 2 :].split(maxsplit=20)
    return ProcessEntry(
        pid,
        ppid=int(fields[1]),
        start_ticks=own_time_shift().real_ticks(int(fields[19]), _TICKS_PER_S),
        comm=_text(stat[name_start:name_end]),
        argv=argv,
        forked=bool(int(fields[6]) & PF_FORKNOEXEC),
        # The first thread of a living process may have ended: then others are counted.
        zombie=fields[0] in b"ZXx" and int(fields[17]) <= 1,
        tty=int(fields[4]),
    )


def _read_of(pid: int, name: str, max_bytes: int) -> bytes | Unreadable | None:
    """A file of /proc/PID; None when there is no such process.

    Where /proc speaks in other numbers than the kernel's answers to us, no entry can be read.
    """
    try:
        if not numbers_are_ours():
            return Unreadable(pid)
        return _read(f"/proc/{pid}/{name}", max_bytes)
    except (FileNotFoundError, ProcessLookupError):
        return Unreadable(pid) if _is_hidden(pid) else None
    except OSError:
        return Unreadable(pid)


def _is_hidden(pid: int) -> bool:
    """Whether a process exists that /proc does not show (hidepid). Signal 0 does nothing to it."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _read(path: str, max_bytes: int) -> bytes:
    """The file's first bytes. /proc gives all it has at once, so a short read is the last."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = os.read(descriptor, STAT_MAX_BYTES)
        while len(content) % STAT_MAX_BYTES == 0 and 0 < len(content) < max_bytes:
            more = os.read(descriptor, STAT_MAX_BYTES)
            if not more:
                break
            content += more
        return content
    finally:
        os.close(descriptor)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


# -- the walk -------------------------------------------------------------------------------------


def ancestry(pid: int) -> Iterator[ProcessEntry | Unreadable]:
    """The process `pid` and its ancestors, nearest first, each read when it is asked for.

    Ends after the last ancestor, or with an `Unreadable` where one could not be read or too many
    lie below it.
    """
    if not is_process_number(pid):
        return
    entry = read_entry(pid) or Unreadable(pid)
    yield entry
    for _ in range(ANCESTORS_MAX):
        parent = _parent_of(entry) if isinstance(entry, ProcessEntry) else None
        if parent is None:
            return
        entry = parent
        yield entry
    yield Unreadable(entry.pid, is_too_far=True)


def _parent_of(child: ProcessEntry) -> ProcessEntry | Unreadable | None:
    """The parent of a living process; None where it has none (in our pid namespace).

    The child is read again after the parent: as long as it names the same parent, that number was
    not given to another process in between.
    """
    ppid = child.ppid
    for _ in range(READ_ATTEMPTS_MAX):
        parent = read_entry(ppid) if ppid else None
        again = _read_stat(child.pid)
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


def walk(peer: Peer, known: Iterable[KnownSession], claim: Claim) -> Lineage:
    """The session of a peer; none when it has ended: its number may be another's now.

    That is no "cannot say", or a dead connection handed on would make a token count.
    """
    try:
        boot = boot_id()
        if not numbers_are_ours():
            return _ELSEWHERE if peer.is_alive() else _GONE
    except OSError:
        return _NO_BOOT
    sessions = tuple(known)
    lineage = _GONE
    if not peer.is_alive():
        return _GONE
    for _ in range(WALK_ATTEMPTS_MAX):  # an ancestor may end during the walk
        lineage = find_session(ancestry(peer.pid), sessions, claim, boot)
        if not peer.is_alive():
            return _GONE
        if lineage.verdict != "unknown":
            break
    return lineage


def terminal_of(peer: Peer) -> Terminal:
    """Whether a peer is at the owner's terminal now; not when it has ended, as in `walk`."""
    found = _NOWHERE
    for _ in range(WALK_ATTEMPTS_MAX):
        if not peer.is_alive():
            return _NOWHERE
        found = owners_terminal(ancestry(peer.pid))
        if not found.unknown:
            break
    return found if peer.is_alive() else _NOWHERE


# -- life and death -------------------------------------------------------------------------------


def evidence(process: Process) -> Evidence:
    """Whether a process is alive, as of now."""
    try:
        boot = boot_id()
    except OSError:
        return "unknown"
    entry = _read_stat(process.pid) if is_process_number(process.pid) else None
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
    descriptor left) or nothing can be said yet, `poll` must be called from time to time.
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
                watched.pidfd = os.pidfd_open(watched.process.pid)
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
