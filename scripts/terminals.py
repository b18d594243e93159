"""A bash on a terminal of its own, that is nobody's child: for demo, day and generated pages.

mbx finds the session of a caller by walking up from its process. Whoever starts these shells may
itself sit below an agent CLI or a lease holder, so each is forked by a process that ends at once
(`setsid` alone would leave the parent as it was). Commands are typed at it; after each one bash
writes a mark with the exit status into the same stream, so waiting is waiting for an event.
"""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

TIMEOUT_S: Final = 60.0
"""No command of the demo takes a tenth of this; a machine may be busy."""
BASH: Final = ("bash", "--norc", "--noprofile", "--noediting", "-i")
"""A shell that is typed at and reads nobody's settings."""
_ROWS: Final = 24
_CHUNK_BYTES: Final = 65_536

# Forked by a program of its own, since a script with threads must not fork. Python ignores two
# signals that a shell must not.
_LAUNCHER: Final = """
import fcntl, os, signal, sys, termios
report, argv = int(sys.argv[1]), sys.argv[2:]
if pid := os.fork():
    os.write(report, b"%d\\n" % pid)
    os._exit(0)
os.close(report)
try:
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.execvp(argv[0], argv)
finally:
    os._exit(127)
"""


@dataclass(frozen=True, slots=True)
class Finished:
    """What a command gave back: its exit status, and all that the terminal showed of it."""

    status: int
    text: str


class TerminalError(Exception):
    """The shell ended, or its command did not."""


class Terminal:
    """A shell on a pty, a bash if nothing else is said. `show` gets the output as it appears.

    `argv` may be any program that ends up as a bash on this terminal, or that runs
    ``eval "$PROMPT_COMMAND"`` at its start and after each line that it reads and runs. Raises
    TerminalError when the program ends at once.
    """

    def __init__(
        self,
        env: Mapping[str, str],
        folder: str,
        columns: int = 80,
        argv: Sequence[str] = BASH,
    ) -> None:
        self._mark = os.urandom(8).hex()
        # No echo and no prompt of bash's own: the stream then holds output and marks alone.
        settings = {
            "PS1": "",
            "PS2": "",
            "HISTFILE": os.devnull,
            "PROMPT_COMMAND": self._prompt_command(),
        }
        self._screen, inner = pty.openpty()
        try:
            _set_up(inner, columns)
            self.pid = _start_orphan(argv, {**env, **settings}, folder, inner)
        finally:
            os.close(inner)
        self._pidfd = os.pidfd_open(self.pid)
        self._buffer = ""
        self.show: Callable[[str], None] = lambda text: None
        try:
            self._await_mark(time.monotonic() + TIMEOUT_S)
        except TerminalError:
            self.close()
            raise

    @property
    def screen(self) -> int:
        """The descriptor that becomes readable when the terminal shows something."""
        return self._screen

    def run(self, command: str) -> Finished:
        """Type a command and wait for its end. Raises TerminalError."""
        self.start(command)
        return self.finish()

    def start(self, command: str) -> None:
        """Type a command; `finish` gives its outcome. One at a time."""
        os.write(self._screen, command.encode() + b"\n")

    def wait_for(self, text: str) -> str:
        """Wait until a command shows `text`; what it showed up to there. Raises TerminalError."""
        deadline = time.monotonic() + TIMEOUT_S
        while text not in self._buffer:
            self._buffer += self._read(deadline)
        return self._take(self._buffer.index(text) + len(text))

    def finish(self) -> Finished:
        """Wait for the end of the command typed last. Raises TerminalError."""
        return self._await_mark(time.monotonic() + TIMEOUT_S)

    def processes(self) -> list[int]:
        """All processes of this terminal's session (setsid(2))."""
        return _session(self.pid)

    def kill(self) -> None:
        """`kill -9` for the shell and all that runs on its terminal."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        """End the shell and all that runs in it."""
        self.kill()
        await_end(self._pidfd)
        os.close(self._pidfd)
        os.close(self._screen)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _prompt_command(self) -> str:
        return f'printf "\\036{self._mark}:%d\\036" "$?"'

    def _await_mark(self, deadline: float) -> Finished:
        mark = re.compile(f"\x1e{self._mark}:([0-9]+)\x1e")
        shown: list[str] = []
        while (found := mark.search(self._buffer)) is None:
            # The tail may be the beginning of a mark: it is shown when it turns out not to be.
            safe = self._buffer.find("\x1e")
            shown.append(self._take(len(self._buffer) if safe < 0 else safe))
            self._buffer += self._read(deadline)
        shown.append(self._take(found.start()))
        self._buffer = self._buffer[found.end() - found.start() :]
        return Finished(int(found.group(1)), "".join(shown))

    def _take(self, length: int) -> str:
        text, self._buffer = self._buffer[:length], self._buffer[length:]
        if text:
            self.show(text)
        return text

    def _read(self, deadline: float) -> str:
        events = select.poll()
        events.register(self._screen, select.POLLIN)
        if not events.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise TerminalError(f"a command of shell {self.pid} took more than {TIMEOUT_S:g} s")
        try:
            piece = os.read(self._screen, _CHUNK_BYTES)
        except OSError as error:  # EIO: nobody holds the other side any more
            raise TerminalError(f"shell {self.pid} has ended") from error
        return piece.decode("utf-8", "replace").replace("\r\n", "\n")


def bare_environment(path: str, home: str, mbx_home: str, term: str = "dumb") -> dict[str, str]:
    """The environment of a shell that inherits nothing from whoever starts it."""
    return {
        "PATH": path,
        "HOME": home,
        "MBX_HOME": mbx_home,
        "LANG": "C.UTF-8",
        "TERM": term,
    }


def await_end(pidfd: int) -> None:
    """Wait, bounded, until the process has ended."""
    ended = select.poll()
    ended.register(pidfd, select.POLLIN)
    ended.poll(TIMEOUT_S * 1000)


def parent_of(pid: int) -> int:
    """The parent of a process now."""
    return int(_stat(pid)[1])


def _session(session: int) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if int(_stat(int(name))[3]) == session:
                    found.append(int(name))
    return found


def _stat(pid: int) -> list[bytes]:
    """proc(5), /proc/PID/stat after the name in brackets: state, parent, group, session, …"""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()


def _set_up(terminal: int, columns: int) -> None:
    attributes = termios.tcgetattr(terminal)
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSANOW, attributes)
    size = struct.pack("HHHH", _ROWS, columns, 0, 0)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)


def _start_orphan(argv: Sequence[str], env: Mapping[str, str], folder: str, terminal: int) -> int:
    """Run `argv` on `terminal` in a session of its own; its parent has ended when this returns."""
    reading, writing = os.pipe()
    launcher = [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(writing), *argv]
    with os.fdopen(reading, "rb") as report:
        try:
            subprocess.run(
                launcher,
                env=dict(env),
                cwd=folder,
                stdin=terminal,
                stdout=terminal,
                stderr=terminal,
                pass_fds=[writing],
                check=True,
                timeout=TIMEOUT_S,
            )
        finally:
            os.close(writing)
        return int(report.readline())
