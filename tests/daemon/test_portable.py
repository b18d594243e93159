"""What psutil tells of processes, beside what Linux tells of the same ones.

The walk over real shells has its table in test_walk, for both.
"""

import asyncio
import os
import pty
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from mbx.core.evidence import PID_MAX, Lineage, Process, ProcessEntry, Unreadable
from mbx.daemon import processes
from mbx.daemon.processes import DeathWatch, evidence
from mbx.kernel import Kernel, Peer, linux, portable
from tests.support.children import ending, no_descriptors_left, process_of, sleeper
from tests.support.shells import TIMEOUT_S, bare_environment, look_alike


@pytest.fixture(autouse=True)
def on_the_portable_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "KERNEL", portable)


def entries_of(pid: int) -> tuple[ProcessEntry, ProcessEntry]:
    """The entry of one process as both tell it."""
    told, here = portable.read_entry(pid), linux.read_entry(pid)
    assert isinstance(told, ProcessEntry)
    assert isinstance(here, ProcessEntry)
    return told, here


# -- entries --------------------------------------------------------------------------------------


def test_an_entry_tells_what_linux_tells_but_whether_it_was_forked() -> None:
    with sleeper("a b", "", b"\xff", "é") as child:
        told, here = entries_of(child.pid)
        assert told == replace(here, forked=None)
        assert told.argv[-4:] == ("a b", "", "\\xff", "é")
        assert portable.read_stat(child.pid) == replace(told, argv=(), tty=0)
    told, here = entries_of(os.getppid())
    assert told == replace(here, forked=None)


def test_of_an_environment_only_what_is_asked_for_is_told() -> None:
    with sleeper() as child:
        process, asked = process_of(child.pid), ("LANG", "NOWHERE")
        told = {"LANG": "C.UTF-8"}
        assert portable.variables(child.pid, asked) == linux.variables(child.pid, asked) == told
        assert processes.variables(process, asked) == told
        other = replace(process, start_ticks=process.start_ticks + 1)
        assert processes.variables(other, asked) is None
    assert portable.variables(PID_MAX, asked) is None
    assert linux.variables(PID_MAX, asked) is None


@pytest.mark.parametrize(
    ("family", "address"),
    [
        (socket.AF_INET, "127.0.0.1"),
        (socket.AF_INET, "127.8.0.9"),
        (socket.AF_INET6, "::1"),
        (socket.AF_INET6, "::"),
    ],
)
@pytest.mark.parametrize("kernel", [linux, portable])
def test_where_a_process_listens_is_told_of_that_process_alone(
    kernel: Kernel, family: socket.AddressFamily, address: str
) -> None:
    with sleeper() as child, socket.socket(family) as door:
        door.bind((address, 0))
        port = door.getsockname()[1]
        assert kernel.listens_at(os.getpid(), port) == frozenset()
        door.listen()
        assert kernel.listens_at(os.getpid(), port) == {address}
        assert kernel.listens_at(os.getpid(), port ^ 1) == frozenset()
        assert kernel.listens_at(child.pid, port) == frozenset()
        other = replace(process_of(os.getpid()), start_ticks=1)
        assert processes.listens_at(other, port) == frozenset()
    assert kernel.listens_at(PID_MAX, port) == frozenset()


def words_of(entry: ProcessEntry) -> tuple[str, ...]:
    """A command line; what a process wrote as its title psutil cuts at the blanks."""
    return entry.argv if len(entry.argv) > 1 else tuple(" ".join(entry.argv).split(" "))


def is_whole(entry: ProcessEntry) -> bool:
    """Whether its command line is certainly shorter than what Linux's own reads of one."""
    return len("\0".join(entry.argv).encode()) < linux.CMDLINE_MAX_BYTES // 2


def test_every_process_that_both_can_read_has_the_same_parent_start_and_command_line() -> None:
    """Nothing else is compared, for anything may run here.

    psutil tells a long name in full, and no terminal that is another container's.
    """
    compared = 0
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        before = linux.read_entry(pid)
        told = portable.read_entry(pid)
        if not (isinstance(before, ProcessEntry) and isinstance(told, ProcessEntry)):
            continue
        if before == linux.read_entry(pid) and before.argv:
            assert (told.ppid, told.start_ticks) == (before.ppid, before.start_ticks)
            assert words_of(told) == words_of(before) or not is_whole(before)
            compared += 1
    assert compared >= 3


@pytest.mark.parametrize(
    "argv",
    [
        ("sshd: listener [1 of 10]",),
        ("sshd",),
        ("a-name-that-is-longer-than-a-kernel-keeps", "-s"),
        ("sh", "-s", "\u00e9" * (linux.CMDLINE_MAX_BYTES // 2)),
    ],
    ids=["title", "word", "long name", "long line"],
)
def test_whatever_runs_beside_the_test_is_told_alike(tmp_path: Path, argv: tuple[str, ...]) -> None:
    program = look_alike(tmp_path, "a-name-that-is-longer-than-a-kernel-keeps")
    with subprocess.Popen(
        argv, executable=program, stdin=subprocess.PIPE, env=bare_environment()
    ) as child:
        told, here = entries_of(child.pid)
        assert (told.ppid, told.start_ticks) == (here.ppid, here.start_ticks)
        assert (words_of(told) == words_of(here), is_whole(here)) in [(True, True), (False, False)]
        child.kill()


def test_a_start_is_the_same_at_each_read_and_in_each_process() -> None:
    ours = portable.read_stat(os.getpid())
    assert isinstance(ours, ProcessEntry)
    assert {portable.read_stat(os.getpid()) for _ in range(50)} == {ours}
    asked = (
        "from mbx.kernel import portable; "
        f"print(portable.read_stat({os.getpid()}).start_ticks, portable.boot_id())"
    )
    told = subprocess.run([sys.executable, "-c", asked], capture_output=True, check=True, text=True)
    assert told.stdout.split() == [str(ours.start_ticks), portable.boot_id()]


def test_a_terminal_that_was_opened_after_the_first_look_is_seen() -> None:
    assert isinstance(portable.read_entry(os.getpid()), ProcessEntry)
    keyboard, screen = pty.openpty()
    code = (
        "import fcntl, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
        "print('up', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=screen, stdout=subprocess.PIPE, start_new_session=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        told, here = entries_of(child.pid)
        assert told.tty == here.tty == os.fstat(screen).st_rdev
        child.kill()
    os.close(keyboard)
    os.close(screen)


def test_there_is_no_entry_for_a_number_without_process() -> None:
    assert portable.read_entry(PID_MAX) is None
    assert portable.read_stat(PID_MAX) is None


def test_a_zombie_is_dead_and_what_cannot_be_read_is_unknown() -> None:
    with sleeper() as child:
        holder = process_of(child.pid)
        assert evidence(holder) == "live"
        child.send_signal(signal.SIGSTOP)
        assert evidence(holder) == "live"
        with no_descriptors_left():
            assert portable.read_entry(child.pid) == Unreadable(child.pid)
            assert evidence(holder) == "unknown"
        with ending(child.pid):
            child.kill()
        entry = portable.read_entry(child.pid)
        assert isinstance(entry, ProcessEntry)
        assert entry.zombie
        assert evidence(holder) == "dead"
    assert evidence(holder) == "dead"


def test_a_number_used_again_and_another_boot_prove_death() -> None:
    ours = process_of(os.getpid())
    assert evidence(ours) == "live"
    assert evidence(replace(ours, start_ticks=ours.start_ticks + 1)) == "dead"
    assert evidence(replace(ours, boot_id="another")) == "dead"
    assert evidence(replace(ours, pid=PID_MAX + 1)) == "unknown"


@pytest.mark.root
def test_of_another_users_process_whose_command_line_is_closed_the_name_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On macOS it is closed; Linux shows it, so the kernel's refusal is put in its place."""

    def closed(process: psutil.Process) -> list[str]:
        raise psutil.AccessDenied(process.pid)

    monkeypatch.setattr(psutil.Process, "cmdline", closed)
    assert portable.read_entry(os.getpid()) == Unreadable(os.getpid())
    with subprocess.Popen(
        ["sleep", "60"], user=65534, group=65534, extra_groups=(), stdin=subprocess.DEVNULL
    ) as child:
        entry = portable.read_entry(child.pid)
        child.kill()
    assert isinstance(entry, ProcessEntry)
    assert (entry.argv, entry.comm, entry.ppid) == (("sleep",), "sleep", os.getpid())


# -- the boot -------------------------------------------------------------------------------------


def test_the_boot_is_named_by_the_kernel_and_never_by_a_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if portable.boot_id() != portable.NO_BOOT_ID:  # there is a sysctl
        assert portable.boot_id() == linux.boot_id().partition("+")[0]
    for platform, told in (("openbsd7", portable.NO_BOOT_ID), ("freebsd14", portable.NO_BOOT_ID)):
        monkeypatch.setattr(sys, "platform", platform)
        portable.boot_id.cache_clear()
        assert portable.boot_id() == told, "no such variable here"
    monkeypatch.setattr(sys, "platform", "darwin")
    portable.boot_id.cache_clear()
    with pytest.raises(OSError, match=r"kern\.bootsessionuuid"):
        portable.boot_id()
    assert evidence(Process(os.getpid(), 1, "x")) == "unknown"
    assert processes.walk(Peer(os.getpid(), 1, 2, None), (), None).verdict == "unknown"
    monkeypatch.undo()
    portable.boot_id.cache_clear()


# -- peers ----------------------------------------------------------------------------------------


class MacSocket(socket.socket):
    """A socket that answers as macOS does: sys/un.h, and struct xucred of sys/ucred.h."""

    def __init__(self, pid: int) -> None:
        super().__init__(socket.AF_UNIX)
        groups = b"".join(number.to_bytes(4, sys.byteorder) for number in (20, 12, *[0] * 14))
        user = b"\0\0\0\0" + (501).to_bytes(4, sys.byteorder) + (2).to_bytes(2, sys.byteorder)
        self._told = {1: user + b"\0\0" + groups, 2: pid.to_bytes(4, sys.byteorder)}

    def getsockopt(self, level: int, name: int, size: int = 0, /) -> bytes:  # type: ignore[override]
        assert level == 0
        assert size == len(self._told[name])
        return self._told[name]


def test_the_peer_of_a_socket_is_a_number_where_the_platform_tells_one() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, portable.peer_of(ours) as peer:
        assert peer == Peer(os.getpid(), os.getuid(), os.getgid(), None)
        assert peer.is_alive()
    with MacSocket(4711) as mac:
        assert portable.PEERS["darwin"](mac) == Peer(4711, 501, 20, None)
        assert portable.peer_by_credentials(mac) == Peer(0, 501, 20, None)
    unnamed = Peer(0, 501, 20, None)
    assert processes.walk(unnamed, (), None).verdict == "unknown"


def walked(peer: Peer) -> Lineage:
    return processes.walk(peer, (), "self")


def test_a_peer_that_has_ended_is_nobody_though_there_is_no_descriptor_of_it() -> None:
    with sleeper() as child:
        peer = Peer(child.pid, os.getuid(), os.getgid(), None)
        assert walked(peer).verdict == "session"
        with ending(child.pid):
            child.kill()
        assert walked(peer) == processes._GONE, "a zombie"
    assert walked(peer) == processes._GONE
    assert not processes.terminal_of(peer).ok


def test_a_number_that_becomes_another_process_during_the_walk_is_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Reused:
        """The platform, on which each look at the number finds a later process."""

        looks = 0

        def read_stat(self, pid: int) -> ProcessEntry | Unreadable | None:
            self.looks += 1
            entry = portable.read_stat(pid)
            assert isinstance(entry, ProcessEntry)
            return replace(entry, start_ticks=entry.start_ticks + self.looks)

        def __getattr__(self, name: str) -> object:
            return getattr(portable, name)

    monkeypatch.setattr(processes, "KERNEL", Reused())
    assert walked(Peer(os.getpid(), os.getuid(), os.getgid(), None)) == processes._GONE


# -- deaths ---------------------------------------------------------------------------------------


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def test_a_death_is_told_once_at_the_next_look(loop: asyncio.AbstractEventLoop) -> None:
    watch, deaths = DeathWatch(loop), list[int]()
    with sleeper() as child, sleeper() as other:
        for one in (child, other):
            process = process_of(one.pid)
            watch.watch(process, lambda pid=one.pid: deaths.append(pid))  # type: ignore[misc]  # lambda
        assert watch.polled == 2
        assert watch.poll() == []
        assert not watch.sees(process_of(child.pid))
        with ending(child.pid):
            child.kill()
        assert [one.pid for one in watch.poll()] == [child.pid]
        assert watch.poll() == []
        loop.run_until_complete(asyncio.wait_for(asyncio.sleep(0), TIMEOUT_S))
        assert deaths == [child.pid]
        assert watch.polled == 1
        watch.close()
        assert watch.polled == 0


# -- where it is used -----------------------------------------------------------------------------


def test_a_daemon_on_linux_never_loads_psutil() -> None:
    """All that the daemon loads on its way to serving, in a process of its own."""
    asked = (
        "import sys, mbx.daemon.__main__, mbx.daemon.app, mbx.daemon.processes as processes; "
        "print(processes.KERNEL.__name__, 'psutil' in sys.modules)"
    )
    told = subprocess.run(
        [sys.executable, "-I", "-c", asked], capture_output=True, check=True, text=True
    )
    assert told.stdout.split() == ["mbx.kernel.linux", "False"]
