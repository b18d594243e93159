"""Real shells that are nobody's children: for tests and for the demo.

Whoever starts a test may itself sit below an agent CLI or a lease holder, and a session is found by
walking up. So a shell is started by a process that ends at once (its parent is then pid 1 or the
reaper of the session), or by a tmux server of its own. `setsid` alone leaves the parent as it was.

Commands run *in* the shell, as if typed: each is a file that the shell reads with ``.``; its exit
status comes back through a FIFO, so waiting is waiting for an event.
"""

import contextlib
import os
import pty
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

TIMEOUT_S: Final = 20.0
BASH: Final = ("bash", "--norc", "--noprofile")

_LAUNCHER: Final = """
import fcntl, os, signal, sys, termios
report, has_tty, argv = int(sys.argv[1]), sys.argv[2] == "tty", sys.argv[3:]
pid = os.fork()
if pid:
    os.write(report, b"%d\\n" % pid)
    os._exit(0)
os.close(report)
os.setsid()
if has_tty:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
try:
    os.execvp(argv[0], argv)
finally:
    os._exit(127)
"""


class ShellEndedError(Exception):
    """The shell ended while a command of it was awaited."""


@dataclass(frozen=True, slots=True)
class Finished:
    """What a command gave back."""

    status: int
    out: str
    err: str


def bare_environment(**more: str) -> dict[str, str]:
    """PATH, HOME and a plain locale, and `more`: nothing that an outer session left behind."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return {**kept, "LANG": "C.UTF-8", "TERM": "dumb", **more}


def look_alike(folder: Path, name: str, program: str = "bash") -> Path:
    """A link called `name` to a program: the process that it starts looks like `name`."""
    folder.mkdir(parents=True, exist_ok=True)
    target = shutil.which(program)
    assert target is not None, f"{program} is not installed"
    link = folder / name
    link.symlink_to(target)
    return link


def launch(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: int = subprocess.DEVNULL,
    stdout: int = subprocess.DEVNULL,
    tty: bool = False,
) -> int:
    """Start a program in a session of its own whose parent has ended; its process number."""
    reading, writing = os.pipe()
    mode = "tty" if tty else "plain"
    with os.fdopen(reading, "rb") as report:
        try:
            starter = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(writing), mode, *argv],
                stdin=stdin,
                stdout=stdout,
                stderr=stdout,
                pass_fds=[writing],
                env=bare_environment() if env is None else env,
                cwd=cwd,
            )
        finally:
            os.close(writing)
        assert starter.wait(TIMEOUT_S) == 0
        return int(report.readline())


def _ends(pidfd: int, timeout_s: float) -> bool:
    events = select.poll()
    events.register(pidfd, select.POLLIN)
    return bool(events.poll(timeout_s * 1000))


class Console:
    """A shell that can be typed at. Use it in ``with``; `type_line` is what the kinds differ in."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.pidfd = os.pidfd_open(pid)
        self.folder = Path(tempfile.mkdtemp(prefix="shell-"))
        self._fifo_path = self.folder / "status"
        os.mkfifo(self._fifo_path, 0o600)
        self._fifo = os.open(self._fifo_path, os.O_RDWR | os.O_NONBLOCK)
        self._count = 0

    def type_line(self, line: str) -> None:
        """Type a line at whatever reads the shell's input now."""
        raise NotImplementedError

    def run(self, command: str, timeout_s: float = TIMEOUT_S) -> Finished:
        """Run shell text in the shell itself and wait for its end."""
        self.start(command)
        return self.finish(timeout_s)

    def start(self, command: str) -> None:
        """Run shell text in the shell itself; `finish` gives the outcome. One at a time."""
        self._count += 1
        base = self.folder / str(self._count)
        base.with_suffix(".sh").write_text(command + "\n")
        text, out, err, status = (
            shlex.quote(str(path))
            for path in (*map(base.with_suffix, (".sh", ".out", ".err")), self._fifo_path)
        )
        self.type_line(f". {text} </dev/null >{out} 2>{err}; echo $? >{status}")

    def finish(self, timeout_s: float = TIMEOUT_S) -> Finished:
        """Wait for the command started last. ShellEndedError if the shell ends first."""
        events = select.poll()
        events.register(self._fifo, select.POLLIN)
        events.register(self.pidfd, select.POLLIN)
        ready = dict(events.poll(timeout_s * 1000))
        if self._fifo in ready:
            base = self.folder / str(self._count)
            out, err = (base.with_suffix(kind).read_text() for kind in (".out", ".err"))
            return Finished(int(os.read(self._fifo, 16)), out, err)
        if ready:
            raise ShellEndedError(f"shell {self.pid} ended before its command")
        raise TimeoutError(f"the command of shell {self.pid} took more than {timeout_s} s")

    def is_over(self) -> bool:
        """Whether the command started last has ended, or the shell has; `finish` tells how."""
        return bool(select.select([self._fifo, self.pidfd], [], [], 0)[0])

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the shell alone."""
        signal.pidfd_send_signal(self.pidfd, number)

    def kill(self) -> None:
        """Kill the shell with its process group, and wait until it has ended."""
        if not self.has_ended(0):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        assert self.has_ended(), f"shell {self.pid} does not end"

    def has_ended(self, timeout_s: float = TIMEOUT_S) -> bool:
        """Whether the shell ends within this time."""
        return _ends(self.pidfd, timeout_s)

    def close(self) -> None:
        """End the shell and remove its files."""
        self.kill()
        os.close(self.pidfd)
        os.close(self._fifo)
        shutil.rmtree(self.folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Shell(Console):
    """A shell started by a double fork: it reads a pipe, or with `tty` a terminal of its own.

    On a pipe, type programs that read on only to bash: other shells may have read ahead.
    """

    def __init__(
        self,
        argv: Sequence[str] = BASH,
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        tty: bool = False,
    ) -> None:
        self._keyboard, inner = pty.openpty() if tty else reversed(os.pipe())
        try:
            output = inner if tty else subprocess.DEVNULL
            pid = launch(argv, env=env, cwd=cwd, stdin=inner, stdout=output, tty=tty)
        except BaseException:
            os.close(self._keyboard)
            raise
        finally:
            os.close(inner)
        self.has_screen = tty  # a terminal of its own, not a pipe
        super().__init__(pid)

    @property
    def keyboard(self) -> int:
        """The outer end of its terminal: what is written there is typed, what is read was shown."""
        return self._keyboard

    def modes(self) -> str:
        """How its terminal is set while a command runs, as `stty -g` says it.

        Only a command sees that: at its prompt the shell sets the terminal for its own editing, and
        nothing tells when it comes to that.
        """
        return self.run("stty -g </dev/tty").out

    def type_line(self, line: str) -> None:
        self._drain()
        os.write(self._keyboard, line.encode() + b"\n")

    def hang_up(self) -> None:
        """Close its terminal, as a window that is closed does: it is signalled and reads an end."""
        os.close(self._keyboard)
        self._keyboard = os.open(os.devnull, os.O_RDWR)

    def close(self) -> None:
        super().close()
        os.close(self._keyboard)

    def _drain(self) -> None:
        """Read away what a terminal shows, so that nobody waits for us to look at it."""
        while self.has_screen and select.select([self._keyboard], [], [], 0)[0]:
            os.read(self._keyboard, 65_536)


class TmuxPane(Console):
    """A shell in the only pane of a tmux server of its own, without anybody's configuration."""

    def __init__(
        self,
        argv: Sequence[str] = BASH,
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        # The server's socket lies in a short folder of its own: paths of sockets are limited.
        self._home = Path(tempfile.mkdtemp(prefix="tmux-"))
        self._server = uuid.uuid4().hex[:12]
        self._env = {**(bare_environment() if env is None else env), "TMUX_TMPDIR": str(self._home)}
        size = ("-x", "200", "-y", "50")
        folder = () if cwd is None else ("-c", str(cwd))
        shell = f"exec {shlex.join(argv)}"
        asked = ("new-session", "-d", "-P", "-F", "#{pid} #{pane_pid}", *size, *folder, shell)
        server, pane = map(int, self.tmux(*asked).split())
        self._server_pidfd = os.pidfd_open(server)
        super().__init__(pane)

    @staticmethod
    def is_available() -> bool:
        """Whether tmux is installed."""
        return shutil.which("tmux") is not None

    def tmux(self, *arguments: str) -> str:
        """Run a tmux command on this server; what it printed."""
        command = ["tmux", "-L", self._server, "-f", "/dev/null", *arguments]
        done = subprocess.run(
            command, env=self._env, check=True, capture_output=True, text=True, timeout=TIMEOUT_S
        )
        return done.stdout

    def type_line(self, line: str) -> None:
        self.tmux("send-keys", "-l", line)
        self.tmux("send-keys", "Enter")

    def screen(self) -> str:
        """What the pane shows."""
        return self.tmux("capture-pane", "-p")

    def close(self) -> None:
        super().close()  # with its only pane the server ends
        assert _ends(self._server_pidfd, TIMEOUT_S), "the tmux server does not end"
        os.close(self._server_pidfd)
        shutil.rmtree(self._home)
