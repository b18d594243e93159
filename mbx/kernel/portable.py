"""Processes where there is no /proc as Linux has it: psutil, and what BSD sockets say of a peer.

Imported only there. Weaker than `linux` in four points (docs/decisions/0016): whether a process was
forked is not known, a peer is a number and no descriptor, a death is found by looking again, and a
process of another user is known by its name where its command line is closed.
"""

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping
from functools import cache
from types import MappingProxyType
from typing import Final

import psutil

from mbx.core.evidence import ProcessEntry, Unreadable
from mbx.kernel import Peer
from mbx.nullsignal import exists

SOL_LOCAL: Final = 0
"""sys/un.h of macOS and FreeBSD: the level of options of unix sockets."""
LOCAL_PEERCRED: Final = 1
LOCAL_PEERPID: Final = 2
"""sys/un.h of macOS: the process that connected, or listened."""
TICKS_PER_S: Final = 100
"""Of `start_ticks`: what psutil tells apart on Linux; elsewhere it tells more."""
SYSCTL_DEADLINE_S: Final = 5.0
BOOT_IDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "darwin": "kern.bootsessionuuid",
        "freebsd": "kern.boot_id",
        "linux": "kernel.random.boot_id",
    }
)
"""Platform -> the kernel variable that names a boot. Linux stands here for the tests."""
NO_BOOT_ID: Final = "no-boot-id"
"""On a platform without one: then processes are told apart by number and start alone."""

_XUCRED = struct.Struct("IIhhI15I")
"""sys/ucred.h of macOS and FreeBSD: version, uid, count of groups, padding, gid, more groups."""
_UCRED = struct.Struct("3i")
_PID = struct.Struct("i")


# -- peers ----------------------------------------------------------------------------------------


def peer_of(sock: socket.socket) -> Peer:
    """The peer of a connected unix socket, without descriptor. Raises OSError."""
    return PEERS.get(sys.platform, peer_by_credentials)(sock)


def peer_by_credentials(sock: socket.socket) -> Peer:
    """The user at the other end; of its process nothing is known, so no walk can begin."""
    _, uid, _, _, gid, *_ = _XUCRED.unpack(sock.getsockopt(SOL_LOCAL, LOCAL_PEERCRED, _XUCRED.size))
    return Peer(0, uid, gid, None)


def peer_by_number(sock: socket.socket) -> Peer:
    """As `peer_by_credentials`, with the process as macOS tells it."""
    user = peer_by_credentials(sock)
    (pid,) = _PID.unpack(sock.getsockopt(SOL_LOCAL, LOCAL_PEERPID, _PID.size))
    return Peer(pid, user.uid, user.gid, None)


def _peer_on_linux(sock: socket.socket) -> Peer:
    pid, uid, gid = _UCRED.unpack(
        sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    )
    return Peer(pid, uid, gid, None)


PEERS: Final[Mapping[str, Callable[[socket.socket], Peer]]] = MappingProxyType(
    {"darwin": peer_by_number, "linux": _peer_on_linux}
)
"""Platform -> how the process at the other end is learnt."""


def pidfd_of(pid: int) -> None:
    """None: a death is found by looking again."""


# -- the boot -------------------------------------------------------------------------------------


@cache
def boot_id() -> str:
    """The kernel's own name of this boot. Raises OSError where it cannot be asked now.

    Never the time of the boot: that moves whenever the clock is set, and another boot is the proof
    that every holder is dead.
    """
    platform = sys.platform.rstrip("0123456789")
    name = BOOT_IDS.get(platform)
    told = _sysctl(name) if name is not None else ""
    if not told and platform == "darwin":
        raise OSError(f"{name} is empty")
    return told or NO_BOOT_ID


def numbers_are_ours() -> bool:
    """Always: there are no pid namespaces."""
    return True


def _sysctl(name: str) -> str:
    """The value of a kernel variable; empty where there is none of that name, or no sysctl."""
    try:
        done = subprocess.run(
            ["sysctl", "-n", name],
            env={"PATH": "/usr/sbin:/sbin:/usr/bin:/bin"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SYSCTL_DEADLINE_S,
            check=False,
        )
    except FileNotFoundError:
        return ""
    except subprocess.TimeoutExpired as error:
        raise OSError(f"sysctl does not tell {name}") from error
    return done.stdout.decode("ascii", "replace").strip() if done.returncode == 0 else ""


# -- entries --------------------------------------------------------------------------------------


def read_entry(pid: int) -> ProcessEntry | Unreadable | None:
    """The entry of a process; None when there is no such process."""
    return _read(pid, with_argv=True)


def read_stat(pid: int) -> ProcessEntry | Unreadable | None:
    """The entry without command line and terminal."""
    return _read(pid, with_argv=False)


def variables(pid: int, names: Collection[str]) -> dict[str, str] | None:
    """Those of the environment that a process of ours was started with; None: closed to us."""
    try:
        found = psutil.Process(pid).environ()
    except (psutil.Error, OSError):
        return None
    return {name: _text(value) for name, value in found.items() if name in names}


def listens_at(pid: int, port: int) -> frozenset[str]:
    """The addresses, reachable from here, at which a process of ours listens on a TCP port."""
    try:
        found = psutil.Process(pid).net_connections("tcp")
    except (psutil.Error, OSError):
        return frozenset()
    listening = [one.laddr for one in found if one.status == psutil.CONN_LISTEN and one.laddr]
    return frozenset(_text(place.ip) for place in listening if place.port == port)


def _read(pid: int, *, with_argv: bool) -> ProcessEntry | Unreadable | None:
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            return _entry(process, with_argv=with_argv)
    except psutil.ZombieProcess:  # a kind of NoSuchProcess: it has ended, and nothing else is told
        return ProcessEntry(pid, 0, 0, "", (), zombie=True)
    except psutil.NoSuchProcess:
        return Unreadable(pid) if exists(pid) else None
    except (psutil.Error, OSError):
        return Unreadable(pid)


def _entry(process: psutil.Process, *, with_argv: bool) -> ProcessEntry:
    name = _text(process.name())
    zombie = process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    reads_on = with_argv and not zombie
    return ProcessEntry(
        process.pid,
        ppid=process.ppid() or 0,
        start_ticks=_start_ticks(process),
        comm=name,
        argv=_argv(process, name) if reads_on else (),
        zombie=zombie,
        tty=_tty(process) if reads_on else 0,
    )


def _start_ticks(process: psutil.Process) -> int:
    """The start by which psutil itself tells processes apart: no setting of the clock moves it.

    `create_time` does not do: it is the wall clock's, and is adjusted when that is set.
    """
    ident: tuple[int, float | None] = process._ident  # type: ignore[attr-defined]  # private
    if ident[1] is None:
        raise psutil.AccessDenied(process.pid)
    return round(ident[1] * TICKS_PER_S)


def _argv(process: psutil.Process, name: str) -> tuple[str, ...]:
    """The command line. Of another user's process, where it is closed to us, the name alone.

    On macOS that is every process of root, as the login above a terminal's shell. Our own agent
    CLIs are never closed to us; one of ours that is stays unreadable.
    """
    try:
        words = [_text(word) for word in process.cmdline()]
        while words and not words[-1]:  # what a process that gave itself a title has left of it
            words.pop()
        return tuple(words)
    except psutil.ZombieProcess:
        return ()
    except psutil.AccessDenied:
        if process.uids().effective == os.geteuid():
            raise
        return (name,)


def _tty(process: psutil.Process) -> int:
    """The number of the controlling terminal, 0 where there is none.

    psutil knows the terminals that were there when it first looked; so it is made to look again.
    """
    path = process.terminal()
    if path is None:
        psutil._psposix.get_terminal_map.cache_clear()  # type: ignore[attr-defined]  # private
        path = process.terminal()
    return os.stat(path).st_rdev if path is not None else 0


def _text(word: str) -> str:
    """Without the half characters by which psutil stands for bytes that are no UTF-8."""
    return os.fsencode(word).decode("utf-8", "backslashreplace")


# -- interfaces -----------------------------------------------------------------------------------


def addresses() -> list[str]:
    """The IP addresses of all interfaces, without zones."""
    return [
        one.address.partition("%")[0]
        for listed in psutil.net_if_addrs().values()
        for one in listed
        if one.family in (socket.AF_INET, socket.AF_INET6)
    ]
