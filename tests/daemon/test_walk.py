"""Whose session a caller is in: the walk of `mbx.daemon.processes` over real processes.

Each test asks both that can tell of processes: Linux's own and the portable one.
No session of ours is above them, however the tests were started (`tests.support.shells`).
"""

import contextlib
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

from mbx.core.evidence import (
    Claim,
    KnownSession,
    Lineage,
    ProcessEntry,
    SessionKey,
    Unreadable,
)
from mbx.core.kinship import Above
from mbx.core.terminal import NO_PROCESS, NO_TERMINAL, TOO_FAR, Terminal
from mbx.daemon import processes
from mbx.daemon.processes import ancestry, evidence, peer_of
from mbx.kernel import Kernel, Peer, linux, portable
from mbx.kernel.ancestry import ANCESTORS_MAX
from tests.support.children import assert_ends, ending, process_of
from tests.support.shells import TIMEOUT_S, Console, Shell, TmuxPane, launch, look_alike

CALLER = """
import socket, sys
door = socket.socket(socket.AF_UNIX)
door.connect(sys.argv[1])
door.recv(1)
"""

needs_tmux = pytest.mark.skipif(not TmuxPane.is_available(), reason="tmux is not installed")


@pytest.fixture(params=[linux, portable], ids=["linux", "portable"], autouse=True)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    told: Kernel = request.param
    monkeypatch.setattr(processes, "KERNEL", told)
    return told


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

    def terminal(self, console: Console, text: str) -> Terminal:
        """Whether a caller that runs inside `text` is at the owner's terminal."""
        console.start(text.replace("CALL", self.call))
        with self.answer() as peer:
            found = processes.terminal_of(peer)
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
    kind: Callable[[], Shell], door: Door, kernel: Kernel
) -> None:
    """Where the kernel does not tell who forked only, it is taken for a copy: decision 16."""
    with kind() as shell:
        shell.type_line("bash --norc --noprofile")
        inner = int(shell.run("echo $$").out)
        assert inner != shell.pid
        session = inner if kernel is linux else shell.pid
        assert_session(door.lineage(shell, "( CALL; true )"), "shell", "shell", session)


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


# -- the owner's terminal -------------------------------------------------------------------------


def test_a_shell_on_a_terminal_is_the_owners_and_one_on_a_pipe_is_not(
    console: Console, door: Door
) -> None:
    found = door.terminal(console, "bash -c '( CALL; true ); true'")
    on_pipe = isinstance(console, Shell) and not console.has_screen
    assert found == (Terminal(False, NO_TERMINAL) if on_pipe else Terminal(True))
    assert door.terminal(console, "setsid --wait CALL") == Terminal(False, NO_TERMINAL)


def test_the_terminal_of_an_agent_cli_is_not_the_owners(folder: Path, door: Door) -> None:
    claude = look_alike(folder, "claude")
    with Shell(tty=True) as shell:
        text = f"{claude} -c 'echo $$ > {folder}/pid; bash -c \"CALL; true\"; true'"
        found = door.terminal(shell, text)
        pid = int((folder / "pid").read_text())
        told = f"the agent CLI claude (process {pid}) is above the caller"
        assert found == Terminal(False, told)
        assert door.terminal(shell, "CALL").ok


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


def test_a_caller_that_has_ended_is_nobody(door: Door) -> None:
    with subprocess.Popen(door.argv) as caller, door.answer() as peer:
        caller.kill()
        caller.wait()
        assert peer.is_alive() is (peer.pidfd is None)
        assert processes.walk(peer, (), None).verdict == "none"
        assert processes.walk(peer, (), "self").verdict == "none"
        assert processes.terminal_of(peer) == Terminal(False, NO_PROCESS)


def test_a_caller_that_the_kernel_does_not_name_is_unknown() -> None:
    nobody = Peer(0, os.getuid(), os.getgid(), None)
    assert nobody.is_alive()
    assert processes.walk(nobody, (), None).verdict == "unknown"
    assert not processes.terminal_of(nobody).ok


_DEEP = """
import os, sys
for _ in range(int(sys.argv[1])):
    if os.fork():
        os.wait()
        os._exit(0)
os.execv(sys.argv[2], sys.argv[2:])
"""


def test_a_caller_below_too_many_processes_has_no_session_no_terminal_and_no_use_of_a_token(
    door: Door,
) -> None:
    deep = [sys.executable, "-I", "-S", "-c", _DEEP, str(ANCESTORS_MAX), *door.argv]
    with Shell(tty=True) as shell:
        shell.start(shlex.join(deep))
        with door.answer() as peer:
            assert processes.walk(peer, (), SessionKey("claude", "claimed")).verdict == "none"
            assert processes.terminal_of(peer) == Terminal(False, TOO_FAR)
        shell.finish()


def test_everything_up_to_pid_1_stands_above_a_process(
    shell: Shell, door: Door, folder: Path
) -> None:
    claude, su = look_alike(folder, "claude"), look_alike(folder, "su")
    below = f"{su} --norc --noprofile -c 'bash -c \"CALL; :\"; :'"
    text = f"{claude} --norc --noprofile -c {shlex.quote(f'{below}; :')}; :"
    shell.start(text.replace("CALL", door.call))
    with door.answer() as peer:
        found = processes.above(process_of(peer.pid))
        assert found.end is None
        names = [entry.argv[0] for entry in ancestry(peer.pid) if isinstance(entry, ProcessEntry)]
        places = [place for place, one in enumerate(found.ancestors, 1) if one.is_agent]
        assert [Path(names[place]).name for place in places][:1] == ["claude"]
        assert found.ancestors[3].process == process_of(shell.pid)
        assert found.ancestors[-1].process.pid == 1
    shell.finish()


def test_too_many_processes_above_one_are_told(door: Door, shell: Shell) -> None:
    deep = [sys.executable, "-I", "-S", "-c", _DEEP, str(ANCESTORS_MAX), *door.argv]
    shell.start(shlex.join(deep))
    with door.answer() as peer:
        end = processes.above(process_of(peer.pid)).end
        assert end is not None
        assert end.is_too_far
    shell.finish()


def test_of_a_process_that_has_ended_nothing_above_is_known(door: Door) -> None:
    with subprocess.Popen(door.argv) as caller:
        with door.answer():
            process = process_of(caller.pid)
        caller.wait()
        assert processes.above(process) == Above(end=Unreadable(caller.pid))


@pytest.mark.parametrize(("told", "is_end"), [(PermissionError, False), (None, True)])
def test_what_another_user_hides_ends_what_is_looked_for_and_nothing_else_does(
    told: type[OSError] | None,
    is_end: bool,
    kernel: Kernel,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As under /proc with hidepid: its entry is not shown, and a signal tells whose it is."""
    own, parent = process_of(os.getpid()), os.getppid()
    read_entry, kill = kernel.read_entry, os.kill

    def hiding(pid: int) -> ProcessEntry | Unreadable | None:
        return Unreadable(pid) if pid == parent else read_entry(pid)

    def asked(pid: int, number: int) -> None:
        if told is not None and (pid, number) == (parent, 0):
            raise told
        kill(pid, number)

    monkeypatch.setattr(kernel, "read_entry", hiding)
    monkeypatch.setattr(os, "kill", asked)
    assert processes.above(own) == Above(end=Unreadable(parent) if is_end else None)


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
