"""Peers, entries of /proc and deaths, on real processes. The walk has its own tests: test_walk."""

import asyncio
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import uvloop

from mbx.core.evidence import PID_MAX, Process, ProcessEntry, Unreadable
from mbx.daemon import processes
from mbx.daemon.processes import DeathWatch, evidence, peer_of, read_entry
from mbx.kernel import Peer, linux
from mbx.kernel.namespaces import boot_id
from tests.support.children import SLEEPER, ending, no_descriptors_left, process_of, sleeper
from tests.support.shells import TIMEOUT_S, look_alike

FIRST_THREAD_ENDS = """
import ctypes, os, threading
def go_on():
    while open(f"/proc/{os.getpid()}/stat").read().rpartition(")")[2].split()[0] != "Z":
        os.sched_yield()
    print("up", flush=True)
    os.read(0, 1)
threading.Thread(target=go_on).start()
ctypes.CDLL(None).pthread_exit(None)
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="walk-") as short:  # paths of sockets are limited
        yield Path(short)


# -- peers ----------------------------------------------------------------------------------------

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


@pytest.mark.parametrize("new_loop", LOOPS)
def test_the_peer_of_a_transport_is_the_connecting_process(
    new_loop: Callable[[], asyncio.AbstractEventLoop], folder: Path
) -> None:
    async def one_call() -> None:
        peers: asyncio.Queue[Peer] = asyncio.Queue()

        async def on_call(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            peers.put_nowait(peer_of(writer.get_extra_info("socket")))
            writer.close()

        async with await asyncio.start_unix_server(on_call, folder / "door"):
            _, writer = await asyncio.open_unix_connection(folder / "door")
            async with asyncio.timeout(TIMEOUT_S):
                peer = await peers.get()
            writer.close()
            await writer.wait_closed()
        with peer:
            assert (peer.pid, peer.uid, peer.gid) == (os.getpid(), os.getuid(), os.getgid())
            assert peer.pidfd is not None
            assert not os.get_inheritable(peer.pidfd)
            assert peer.is_alive()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(one_call())


class Answers(socket.socket):
    """A socket whose kernel is older, or has no descriptors or no process left."""

    def __init__(self, pid: int, error: OSError) -> None:
        super().__init__(socket.AF_UNIX)
        self._credentials = linux._UCRED.pack(pid, 1, 2)
        self._error = error

    def getsockopt(self, level: int, name: int, size: int = 0, /) -> bytes:  # type: ignore[override]
        if name == linux.SO_PEERPIDFD:
            raise self._error
        return self._credentials


def test_an_older_kernel_gives_a_pidfd_by_number() -> None:
    with Answers(os.getpid(), OSError(92, "ENOPROTOOPT")) as old, peer_of(old) as peer:
        assert peer.pid == os.getpid()
        assert peer.pidfd is not None
    with Answers(PID_MAX, OSError(92, "ENOPROTOOPT")) as old, peer_of(old) as peer:
        assert (peer.pid, peer.pidfd) == (0, None)


def test_a_peer_that_is_gone_or_elsewhere_has_no_number() -> None:
    with Answers(os.getpid(), ProcessLookupError()) as gone, peer_of(gone) as peer:
        assert peer == Peer(0, 1, 2, None, ended=True)
        assert not peer.is_alive()
    with Answers(0, ProcessLookupError()) as elsewhere, peer_of(elsewhere) as peer:
        assert peer == Peer(0, 1, 2, None)


def test_without_descriptors_a_peer_is_known_by_number_alone() -> None:
    ours = os.getpid()
    with Answers(ours, OSError(24, "EMFILE")) as full, no_descriptors_left():
        peer = peer_of(full)
    assert (peer.pid, peer.pidfd) == (ours, None)


# -- entries --------------------------------------------------------------------------------------


def test_an_entry_tells_parent_start_and_command_line() -> None:
    with sleeper("a b", "", "c") as child:
        entry = read_entry(child.pid)
        assert isinstance(entry, ProcessEntry)
        assert (entry.pid, entry.ppid, entry.forked, entry.zombie) == (
            child.pid,
            os.getpid(),
            False,
            False,
        )
        assert entry.argv == (sys.executable, "-I", "-S", "-c", SLEEPER, "a b", "", "c")
        own = read_entry(os.getpid())
        assert isinstance(own, ProcessEntry)
        assert own.start_ticks <= entry.start_ticks


def test_a_name_made_to_deceive_is_read_as_a_name(folder: Path) -> None:
    name = "x) Z 1 (\ny"
    program = look_alike(folder, name, sys.executable)
    with sleeper(program=str(program)) as child:
        entry = read_entry(child.pid)
        assert isinstance(entry, ProcessEntry)
        assert (entry.comm, entry.ppid, entry.zombie) == (name, os.getpid(), False)


def test_a_command_line_is_read_to_its_limit_and_never_holds_half_characters() -> None:
    with sleeper(b"\xff\xfe", "é" * 50_000) as child:
        entry = read_entry(child.pid)
        assert isinstance(entry, ProcessEntry)
        assert entry.argv[5] == "\\xff\\xfe"
        size_bytes = len(entry.argv[6].rstrip("\\xc3").encode())
        assert 60_000 < size_bytes < linux.CMDLINE_MAX_BYTES
        "".join(entry.argv).encode()


def test_there_is_no_entry_for_a_number_without_process() -> None:
    assert read_entry(PID_MAX) is None


def test_an_entry_that_cannot_be_opened_is_unreadable_not_gone() -> None:
    ours = process_of(os.getpid())
    peer = Peer(ours.pid, 1, 2, None)
    with no_descriptors_left():
        assert read_entry(ours.pid) == Unreadable(ours.pid)
        assert evidence(ours) == "unknown"
        assert processes.walk(peer, (), None).verdict == "unknown"
        boot_id.cache_clear()
        assert evidence(ours) == "unknown"
        assert processes.walk(peer, (), None).verdict == "unknown"
    assert evidence(ours) == "live"


def isolated(command: str, *unshare: str) -> str:
    """What python code prints in namespaces of its own."""
    code = f"import sys; sys.path.insert(0, {str(Path.cwd())!r})\n{command}"
    done = subprocess.run(
        ["unshare", "--mount", "--fork", *unshare, "--", "sh", "-c", code_runner(unshare), code],
        check=False,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    if "Operation not permitted" in done.stderr:
        pytest.skip("namespaces cannot be made here")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def code_runner(unshare: tuple[str, ...]) -> str:
    python = shlex.quote(sys.executable)
    if unshare:
        return f'exec {python} -c "$0"'
    hide = "mount -t proc -o hidepid=2 proc /proc"
    return f'{hide} && exec setpriv --reuid 65534 --regid 65534 --clear-groups {python} -c "$0"'


@pytest.mark.root
def test_a_process_of_another_pid_namespace_is_unknown() -> None:
    ours = process_of(os.getpid())
    code = f"from mbx.daemon.processes import *; print(evidence({ours!r}), boot_id())"
    verdict, boot = isolated(code, "--pid", "--mount-proc").split()
    assert verdict == "unknown"
    assert boot.startswith(ours.boot_id.partition("+")[0] + "+pid:[")
    assert evidence(Process(ours.pid, ours.start_ticks, boot)) == "unknown"


@pytest.mark.root
def test_a_process_that_proc_hides_is_unknown() -> None:
    ours = process_of(os.getpid())
    code = f"from mbx.daemon.processes import *; print(evidence({ours!r}), read_entry({ours.pid}))"
    assert isolated(code) == f"unknown {Unreadable(ours.pid)}"


# -- life and death -------------------------------------------------------------------------------


def test_evidence_tells_live_stopped_zombie_and_gone() -> None:
    with sleeper() as child:
        holder = process_of(child.pid)
        assert evidence(holder) == "live"
        child.send_signal(signal.SIGSTOP)
        assert evidence(holder) == "live"
        with ending(child.pid):
            child.kill()
        entry = read_entry(child.pid)
        assert isinstance(entry, ProcessEntry)
        assert entry.zombie
        assert evidence(holder) == "dead"
    assert evidence(holder) == "dead"


def test_a_number_used_again_and_another_boot_prove_death() -> None:
    ours = process_of(os.getpid())
    assert evidence(Process(ours.pid, ours.start_ticks + 1, ours.boot_id)) == "dead"
    assert evidence(Process(ours.pid, ours.start_ticks, "another")) == "dead"


@pytest.mark.parametrize("pid", [-1, 0, PID_MAX + 1, 2**63])
def test_asking_about_a_nonsense_number_says_unknown(pid: int) -> None:
    assert evidence(Process(pid, 1, boot_id())) == "unknown"


def test_a_process_whose_first_thread_has_ended_is_alive() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", FIRST_THREAD_ENDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        holder = process_of(child.pid)
        assert evidence(holder) == "live"
        with ending(child.pid):
            child.kill()
        assert evidence(holder) == "dead"


class Watching:
    """A death watch on a loop, and the deaths that it told of."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.watch = DeathWatch(loop)
        self.deaths: list[int] = []
        self._told = asyncio.Event()

    def add(self, process: Process) -> None:
        self.watch.watch(process, lambda: self._tell(process.pid))

    def turn(self) -> None:
        """Let the loop run all that is ready now."""
        for _ in range(3):
            self.loop.run_until_complete(asyncio.sleep(0))

    def wait(self) -> list[int]:
        """The deaths told of, when there is at least one."""
        self.loop.run_until_complete(asyncio.wait_for(self._told.wait(), TIMEOUT_S))
        return self.deaths

    def _tell(self, pid: int) -> None:
        self.deaths.append(pid)
        self._told.set()


@pytest.fixture(params=LOOPS)
def watching(request: pytest.FixtureRequest) -> Iterator[Watching]:
    loop = request.param()
    before = len(os.listdir("/proc/self/fd"))
    watching = Watching(loop)
    yield watching
    watching.watch.close()
    assert len(os.listdir("/proc/self/fd")) <= before + 3  # uvloop opens some with its first turn
    loop.close()


def test_a_death_is_told_once(watching: Watching) -> None:
    with sleeper() as child, sleeper() as other:
        watching.add(process_of(child.pid))
        watching.add(process_of(other.pid))
        watching.turn()
        assert watching.deaths == []
        child.kill()
        assert watching.wait() == [child.pid]
        watching.turn()
        assert watching.deaths == [child.pid]
        assert watching.watch.poll() == []
        assert watching.watch.polled == 0


def test_a_stopped_process_is_not_told_dead(watching: Watching) -> None:
    with sleeper() as child:
        watching.add(process_of(child.pid))
        child.send_signal(signal.SIGSTOP)
        watching.turn()
        assert watching.deaths == []


@pytest.mark.parametrize("ticks", [0, 1])
def test_a_process_already_dead_is_told_soon_and_never_at_once(
    watching: Watching, ticks: int
) -> None:
    with sleeper() as child:
        holder = process_of(child.pid)
        if ticks == 0:
            with ending(child.pid):
                child.kill()
        watching.add(Process(holder.pid, holder.start_ticks + ticks, holder.boot_id))
        assert watching.deaths == []
        watching.turn()
        assert watching.deaths == [child.pid]


def test_an_unwatched_process_is_not_told_dead(watching: Watching) -> None:
    with sleeper() as child:
        holder = process_of(child.pid)
        watching.add(holder)
        watching.watch.unwatch(holder)
        with ending(child.pid):
            child.kill()
        watching.turn()
        watching.add(holder)  # dead already: the report is under way
        watching.watch.unwatch(holder)
        watching.watch.unwatch(holder)
        watching.turn()
        assert watching.deaths == []


def test_watching_again_replaces_the_callback(watching: Watching) -> None:
    with sleeper() as child:
        holder = process_of(child.pid)
        watching.add(holder)
        watching.add(holder)
        child.kill()
        assert watching.wait() == [child.pid]
        watching.turn()
        assert watching.deaths == [child.pid]


@pytest.mark.parametrize("free", [0, 1])
def test_without_descriptors_deaths_are_found_by_polling(watching: Watching, free: int) -> None:
    with sleeper() as child, sleeper() as other:
        holder, alive = process_of(child.pid), process_of(other.pid)
        with no_descriptors_left(free):
            watching.add(holder)
            watching.add(alive)
            assert watching.watch.polled == 2
            assert watching.watch.poll() == []
        with ending(child.pid):
            child.kill()
        watching.turn()
        assert watching.deaths == []
        assert watching.watch.poll() == [holder]
        assert watching.watch.polled == 0  # the other one has its pidfd now
        assert watching.wait() == [child.pid]
        with ending(other.pid):
            other.kill()
        watching.turn()
        assert watching.deaths == [child.pid, other.pid]
