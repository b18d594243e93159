"""Processes on Linux: peers of sockets and their descriptors, and entries of /proc.

A peer is a pidfd taken from the socket, not a number that may be used again. `exe` is never read:
it may be closed to us.
"""

import os
import socket
import struct
import sys
from collections.abc import Collection
from contextlib import suppress
from typing import Final

from mbx.core.evidence import ProcessEntry, Unreadable, is_process_number
from mbx.kernel import Peer
from mbx.kernel.namespaces import boot_id, numbers_are_ours, own_time_shift
from mbx.nullsignal import exists

__all__ = [
    "boot_id",
    "listens_at",
    "numbers_are_ours",
    "peer_of",
    "pidfd_of",
    "read_entry",
    "read_stat",
    "variables",
]

SO_PEERPIDFD: Final = 77
"""asm-generic/socket.h, since Linux 6.5; Python does not name it."""
PF_FORKNOEXEC: Final = 0x40
"""linux/sched.h: forked, and has not executed a program since."""
STAT_MAX_BYTES: Final = 4_096
CMDLINE_MAX_BYTES: Final = 65_536
ENVIRONMENT_MAX_BYTES: Final = 1024 * 1024

_UCRED = struct.Struct("3i")
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


# -- peers ----------------------------------------------------------------------------------------


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


def pidfd_of(pid: int) -> int:
    """A descriptor that is readable when the process has ended. Raises OSError."""
    return os.pidfd_open(pid)


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


def read_stat(pid: int) -> ProcessEntry | Unreadable | None:
    """The entry without its command line: one small read that never waits for the process."""
    stat = _read_of(pid, "stat", STAT_MAX_BYTES)
    return _entry(pid, stat, ()) if isinstance(stat, bytes) else stat


def variables(pid: int, names: Collection[str]) -> dict[str, str] | None:
    """Those of the environment that a process of ours was started with; None: closed to us."""
    found = _read_of(pid, "environ", ENVIRONMENT_MAX_BYTES)
    if not isinstance(found, bytes):
        return None
    pairs = (line.partition(b"=") for line in found.split(b"\0"))
    return {_text(name): _text(value) for name, _, value in pairs if _text(name) in names}


def listens_at(pid: int, port: int) -> frozenset[str]:
    """The addresses, reachable from here, at which a process of ours listens on a TCP port.

    The table is of our own network: what listens in another one is not reached from here.
    """
    listeners = {**_listeners("tcp", port), **_listeners("tcp6", port)}
    if not listeners:
        return frozenset()
    folder, found = f"/proc/{pid}/fd", set[str]()
    try:
        for name in os.listdir(folder):
            with suppress(OSError):
                found.add(os.readlink(f"{folder}/{name}"))
    except OSError:
        return frozenset()
    return frozenset(
        address for inode, address in listeners.items() if f"socket:[{inode}]" in found
    )


def _listeners(table: str, port: int) -> dict[str, str]:
    """Inode -> address of whatever listens on a port. proc_net_tcp(5): 0A is TCP_LISTEN."""
    try:
        with open(f"/proc/self/net/{table}", encoding="ascii") as file:
            rows = [line.split() for line in file][1:]
    except OSError:
        return {}
    places = ((row[9], *row[1].split(":")) for row in rows if len(row) > 9 and row[3] == "0A")
    return {inode: _address(told) for inode, told, number in places if int(number, 16) == port}


def _address(told: str) -> str:
    """An address as the table has it: words of 32 bits in the machine's own order."""
    words = [int(told[place : place + 8], 16) for place in range(0, len(told), 8)]
    raw = b"".join(word.to_bytes(4, sys.byteorder) for word in words)
    return socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)


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
        return Unreadable(pid) if exists(pid) else None  # hidepid, proc(5)
    except OSError:
        return Unreadable(pid)


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
