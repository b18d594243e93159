"""The walk, peers and deaths, on real processes that no session of ours is above."""

import asyncio
import contextlib
import os
import resource
import select
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

from mbx.core.evidence import (
    PID_MAX,
    Claim,
    KnownSession,
    Lineage,
    Process,
    ProcessEntry,
    SessionKey,
    Unreadable,
)
from mbx.daemon import processes
from mbx.daemon.processes import DeathWatch, Peer, ancestry, boot_id, evidence, peer_of, read_entry
from tests.support.shells import (
    TIMEOUT_S,
    Console,
    Shell,
    TmuxPane,
    bare_environment,
    launch,
    look_alike,
)

CALLER = """
import socket, sys
door = socket.socket(socket.AF_UNIX)
door.connect(sys.argv[1])
door.recv(1)
"""
SLEEPER = "import sys; sys.stdout.write('up\\n'); sys.stdout.flush(); sys.stdin.read()"

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

needs_tmux = pytest.mark.skipif(not TmuxPane.is_available(), reason="tmux is not installed")


class Door:
    """A unix socket at which callers ring; `call` is the shell text that does it."""

    def __init__(self, folder: Path) -> None:
        path, script = folder / "door", folder / "caller.py"
        script.write_text(CALLER)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen()
        self._socket.settimeout(TIMEOUT_S)
        self.argv = [sys.executable, "-I", "-S", str(script), str(path)]
        self.call = shlex.join(self.argv)

    def close(self) -> None:
        self._socket.close()

    @contextlib.contextmanager
    def answer(self) -> Iterator[Peer]:
        """The next caller, which waits (and so do all above it) as long as the block runs."""
        connection, _ = self._socket.accept()
        with connection, peer_of(connection) as peer:
            yield peer

    def lineage(
        self,
        console: Console,
        text: str,
        known: tuple[KnownSession, ...] = (),
        claim: Claim = None,
    ) -> Lineage:
        """What the walk says about a caller that runs inside `text` (CALL is the caller)."""
        console.start(text.replace("CALL", self.call))
        with self.answer() as peer:
            found = processes.walk(peer, known, claim)
        console.finish()
        return found


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="walk-") as short:  # paths of sockets are limited
        yield Path(short)


@pytest.fixture
def door(folder: Path) -> Iterator[Door]:
    door = Door(folder)
    yield door
    door.close()


@pytest.fixture
def shell() -> Iterator[Shell]:
    with Shell() as started:
        yield started


@pytest.fixture(
    params=[
        "pipe",
        "terminal",
        pytest.param("tmux", marks=needs_tmux),
    ]
)
def console(request: pytest.FixtureRequest) -> Iterator[Console]:
    kinds: dict[str, Callable[[], Console]] = {
        "pipe": Shell,
        "terminal": lambda: Shell(tty=True),
        "tmux": TmuxPane,
    }
    with kinds[request.param]() as started:
        yield started


def process_of(pid: int) -> Process:
    entry = read_entry(pid)
    assert isinstance(entry, ProcessEntry)
    return Process(pid, entry.start_ticks, boot_id())


def known(cli: str, pid: int) -> KnownSession:
    return KnownSession(SessionKey(cli, "known"), process_of(pid))


def assert_session(found: Lineage, cli: str, via: str, pid: int) -> None:
    assert found.process is not None, found
    assert (found.verdict, found.cli, found.via, found.process.pid) == ("session", cli, via, pid)


# -- the walk from shells -------------------------------------------------------------------------

IN_THE_SHELL = {
    "plain": "CALL",
    "pipe": "CALL | cat",
    "group in a pipe": "{ CALL; true; } | cat",
    "command substitution": 'x="$(CALL; true)"',
    "subshell": "( CALL; true )",
    "subshell in a subshell": "( ( CALL; true ); true )",
    "background": "CALL & wait",
    "function in the background": "f() { CALL; true; }; f & wait",
    "exec in place": "bash -c 'true; CALL'",
    "setsid": "setsid --wait CALL",
    "under another command": "env A=1 timeout 30 CALL",
}


@pytest.mark.parametrize("text", IN_THE_SHELL.values(), ids=IN_THE_SHELL.keys())
def test_what_a_shell_does_belongs_to_the_shell(console: Console, door: Door, text: str) -> None:
    found = door.lineage(console, text)
    assert_session(found, "shell", "shell", console.pid)
    assert found.process is not None
    assert found.session_id == f"{console.pid}-{found.process.start_ticks}"


@pytest.mark.parametrize("text", IN_THE_SHELL.values(), ids=IN_THE_SHELL.keys())
def test_what_a_registered_shell_does_is_its_session(shell: Shell, door: Door, text: str) -> None:
    found = door.lineage(shell, text, (known("shell", shell.pid),))
    assert_session(found, "shell", "holder", shell.pid)
    assert found.session_id == "known"


def test_a_script_is_a_shell_of_its_own_unless_the_shell_above_is_registered(
    shell: Shell, door: Door, folder: Path
) -> None:
    script = folder / "script"
    script.write_text(f"#!/bin/sh\necho $$ > {folder}/pid\n{door.call}\ntrue\n")
    script.chmod(0o700)
    found = door.lineage(shell, str(script))
    assert_session(found, "shell", "shell", int((folder / "pid").read_text()))
    registered = (known("shell", shell.pid),)
    assert_session(door.lineage(shell, str(script), registered), "shell", "holder", shell.pid)


@pytest.mark.parametrize("kind", [Shell, lambda: Shell(tty=True)])
def test_a_shell_typed_in_a_shell_is_one_of_its_own_though_it_looks_the_same(
    kind: Callable[[], Shell], door: Door
) -> None:
    with kind() as shell:
        shell.type_line("bash --norc --noprofile")
        inner = int(shell.run("echo $$").out)
        assert inner != shell.pid
        assert_session(door.lineage(shell, "( CALL; true )"), "shell", "shell", inner)


def test_a_subshell_that_outlived_its_shell_counts_as_a_shell(door: Door, shell: Shell) -> None:
    text = f"bash -c '( read gone < {shell.folder}/gone; {door.call}; true ) & echo $!'"
    orphan = int(shell.run(f"mkfifo {shell.folder}/gone; {text}").out)
    shell.start(f"echo > {shell.folder}/gone")
    with door.answer() as peer:
        assert_session(processes.walk(peer, (), None), "shell", "shell", orphan)
    shell.finish()


def test_shells_of_tests_are_not_below_the_test(console: Console) -> None:
    above = [entry.pid for entry in ancestry(console.pid)]
    assert above[0] == console.pid
    assert os.getpid() not in above


# -- the walk from agent CLIs ---------------------------------------------------------------------


def test_what_an_agent_cli_does_belongs_to_it_also_below_a_registered_shell(
    shell: Shell, door: Door, folder: Path
) -> None:
    claude = look_alike(folder, "claude")
    text = f"{claude} -c 'echo $$ > {folder}/pid; bash -c \"CALL; true\"; true'"
    found = door.lineage(shell, text, (known("shell", shell.pid),), SessionKey("claude", "now"))
    assert_session(found, "claude", "harness", int((folder / "pid").read_text()))
    assert found.session_id == "now"


def test_an_agent_cli_started_by_another_is_its_own_session(
    shell: Shell, door: Door, folder: Path
) -> None:
    claude, codex = look_alike(folder, "claude"), look_alike(folder, "codex")
    inner = folder / "inner"
    inner.write_text(f"echo $$ > {folder}/pid\n{door.call}\ntrue\n")
    found = door.lineage(shell, f"{claude} -c 'bash -c \"{codex} {inner}; true\"; true'")
    assert_session(found, "codex", "harness", int((folder / "pid").read_text()))


def gemini(folder: Path, call: str) -> str:
    """Shell text that starts a launcher ``node …/.bin/gemini`` and below it a worker like it."""
    script = folder / ".bin" / "gemini"
    script.parent.mkdir()
    worker = f"exec -a node bash {script} worker"
    script.write_text(
        f'if test "$1" = worker; then echo $$ > {folder}/pid; {call}; else ({worker}); fi; true\n'
    )
    return f"(exec -a node bash {script})"


def test_a_client_run_by_node_is_known_by_its_script_and_the_worker_is_the_holder(
    shell: Shell, door: Door, folder: Path
) -> None:
    found = door.lineage(shell, gemini(folder, door.call))
    assert_session(found, "gemini", "harness", int((folder / "pid").read_text()))


def test_the_first_agent_cli_below_mbx_run_belongs_to_it(
    shell: Shell, door: Door, folder: Path
) -> None:
    run = (known("run", shell.pid),)  # the shell stands for the wrapper
    assert_session(door.lineage(shell, "CALL", run), "run", "run", shell.pid)
    text = gemini(folder, door.call)
    assert_session(door.lineage(shell, text, run), "run", "run", shell.pid)
    codex = look_alike(folder, "codex")
    below = f"{codex} -c {shlex.quote(text + '; true')}"
    worker = door.lineage(shell, below, run)
    assert_session(worker, "gemini", "harness", int((folder / "pid").read_text()))


def test_mbx_run_is_a_session_by_itself(shell: Shell, door: Door) -> None:
    shell.start(f"{door.call} & wait")
    with door.answer() as peer:
        found = processes.walk(peer, (known("shell", shell.pid),), "self")
        assert_session(found, "run", "run", peer.pid)
    shell.finish()


def test_an_agent_cli_that_is_stopped_is_still_the_session(
    shell: Shell, door: Door, folder: Path
) -> None:
    claude = look_alike(folder, "claude")
    shell.start(f"{claude} -c 'echo $$ > {folder}/pid; {door.call}; true'")
    with door.answer() as peer:
        holder = int((folder / "pid").read_text())
        os.kill(holder, signal.SIGSTOP)
        assert_session(processes.walk(peer, (), None), "claude", "harness", holder)
        assert evidence(process_of(holder)) == "live"
        os.kill(holder, signal.SIGCONT)
    shell.finish()


# -- logins, cron, and callers that go away -------------------------------------------------------


def test_a_login_does_not_belong_to_what_started_the_server(
    shell: Shell, door: Door, folder: Path
) -> None:
    claude, sshd = look_alike(folder, "claude"), look_alike(folder, "sshd")
    login = folder / "login"
    login.write_text(f"(exec -a -bash bash -c 'echo $$ > {folder}/pid; {door.call}; true')\ntrue\n")
    found = door.lineage(shell, f"{claude} -c '{sshd} {login}; true'")
    assert_session(found, "shell", "shell", int((folder / "pid").read_text()))


def test_a_job_of_cron_without_shell_and_terminal_has_no_session(door: Door, folder: Path) -> None:
    cron = launch([str(look_alike(folder, "cron")), "-c", f"{door.call}; true"])
    ended = os.pidfd_open(cron)
    with door.answer() as peer:
        found = processes.walk(peer, (), SessionKey("claude", "claimed"))
        assert (found.verdict, found.process) == ("none", None)
    assert_ends(ended)
    os.close(ended)


def test_a_caller_that_has_ended_is_unknown(door: Door) -> None:
    with subprocess.Popen(door.argv) as caller, door.answer() as peer:
        caller.kill()
        caller.wait()
        assert not peer.is_alive()
        assert processes.walk(peer, (), None).verdict == "unknown"
        assert processes.walk(peer, (), "self").verdict == "unknown"


def test_a_caller_that_the_kernel_does_not_name_is_unknown() -> None:
    nobody = Peer(0, os.getuid(), os.getgid(), None)
    assert nobody.is_alive()
    assert processes.walk(nobody, (), None).verdict == "unknown"


def test_a_parent_that_ends_during_the_walk_is_replaced_by_the_next(
    shell: Shell, door: Door
) -> None:
    shell.start(f"bash -c '{door.call} & wait'")
    with door.answer() as peer:
        steps = ancestry(peer.pid)
        caller = next(steps)
        assert isinstance(caller, ProcessEntry)
        with ending(caller.ppid):
            os.kill(caller.ppid, signal.SIGKILL)
        parent = next(steps)
        assert isinstance(parent, ProcessEntry)
        assert parent.pid not in (caller.ppid, shell.pid)
    shell.finish()


def test_a_caller_that_ends_during_the_walk_cannot_be_read_on(door: Door) -> None:
    with subprocess.Popen(door.argv) as caller:
        with door.answer() as peer:
            steps = ancestry(peer.pid)
            next(steps)
        caller.wait()
        assert list(steps) == [Unreadable(caller.pid)]
        assert list(ancestry(caller.pid)) == [Unreadable(caller.pid)]
    assert list(ancestry(0)) == []


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
        self._credentials = processes._UCRED.pack(pid, 1, 2)
        self._error = error

    def getsockopt(self, level: int, name: int, size: int = 0, /) -> bytes:  # type: ignore[override]
        if name == processes.SO_PEERPIDFD:
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
        assert peer == Peer(0, 1, 2, None)
    with Answers(0, ProcessLookupError()) as elsewhere, peer_of(elsewhere) as peer:
        assert peer == Peer(0, 1, 2, None)


def test_without_descriptors_a_peer_is_known_by_number_alone() -> None:
    ours = os.getpid()
    with Answers(ours, OSError(24, "EMFILE")) as full, no_descriptors_left():
        peer = peer_of(full)
    assert (peer.pid, peer.pidfd) == (ours, None)


# -- entries --------------------------------------------------------------------------------------


@contextlib.contextmanager
def ending(pid: int) -> Iterator[None]:
    """The process ends within the block, or soon after."""
    pidfd = os.pidfd_open(pid)
    try:
        yield
        assert_ends(pidfd)
    finally:
        os.close(pidfd)


def assert_ends(pidfd: int) -> None:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    assert poll.poll(TIMEOUT_S * 1000)


@contextlib.contextmanager
def sleeper(*more: str | bytes, program: str = sys.executable) -> Iterator[subprocess.Popen[bytes]]:
    """A process that lives until its stdin ends, at the latest until the end of the block."""
    argv = [program, "-I", "-S", "-c", SLEEPER, *more]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=bare_environment()
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        try:
            yield child
        finally:
            child.kill()


@contextlib.contextmanager
def no_descriptors_left(free: int = 0) -> Iterator[None]:
    """Within the block, this process can open nothing, or only so many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(highest + 8, hard), hard))
    taken: list[int] = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(0))
        for descriptor in taken[-free:] if free else ():
            os.close(taken.pop(taken.index(descriptor)))
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


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
        assert 60_000 < size_bytes < processes.CMDLINE_MAX_BYTES
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
