"""A terminal with somebody in front of it: what it shows is awaited, and answers are typed.

A `Seat` is a program on a terminal of its own, in a session of its own. `Screen` alone looks at the
terminal of a shell. Every wait is for what is shown, or for an end, and is bounded.
"""

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from tests.support.shells import TIMEOUT_S, Finished, bare_environment

SHOWN_S: Final = 15.0
"""How long something may take to be shown; below the limit of a test, so that it can say what."""

_STARTER: Final = """
import fcntl, os, signal, sys, termios
os.setsid()
line = os.open(sys.argv[1], os.O_RDWR)
fcntl.ioctl(line, termios.TIOCSCTTY, 0)
os.close(line)
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
os.execvp(sys.argv[2], sys.argv[2:])
"""

_MONITOR: Final = """
import os, subprocess, sys
report = int(sys.argv[1])
if os.fork():
    os._exit(0)
os.setsid()
program = subprocess.Popen(sys.argv[2:])
os.write(report, b"%d\\n" % program.pid)
os.write(report, b"%d\\n" % program.wait())
"""
"""Starts a program, tells its number and its exit status, and is nobody's child."""


class Screen:
    """The outer end of a terminal."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._shown = ""
        self._seen = 0

    def expect(self, text: str) -> str:
        """Wait until `text` is shown behind what was expected before; what was shown up to it."""
        while (found := self._shown.find(text, self._seen)) < 0:
            if not select.select([self.descriptor], [], [], SHOWN_S)[0]:
                raise AssertionError(f"{text!r} is not shown: {self._shown[self._seen :]!r}")
            try:
                piece = os.read(self.descriptor, 65_536)
            except OSError:
                piece = b""
            if not piece:
                raise AssertionError(f"{text!r} was not shown: {self._shown[self._seen :]!r}")
            self._shown += piece.decode("utf-8", "replace")
        part = self._shown[self._seen : found]
        self._seen = found + len(text)
        return part

    def shows(self, text: str) -> bool:
        """Whether `text` stands by now behind what was expected before; it stays to be expected."""
        return text in self.drain()[self._seen :]

    def type(self, text: str) -> None:
        """Type exactly this; a line needs its end."""
        os.write(self.descriptor, text.encode())

    def answer(self, question: str, text: str) -> str:
        """Wait for a question and type a line; what was shown before the question."""
        part = self.expect(question)
        self.type(text + "\n")
        return part

    def drain(self) -> str:
        """Everything shown up to now."""
        with contextlib.suppress(OSError):
            while select.select([self.descriptor], [], [], 0)[0]:
                self._shown += os.read(self.descriptor, 65_536).decode("utf-8", "replace")
        return self._shown


class Seat(Screen):
    """A program whose controlling terminal this is; its streams are elsewhere. Use it in ``with``.

    `stdin` are bytes that wait on its standard input; None: nothing.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        stdin: bytes | None = None,
        columns: int = 100,
    ) -> None:
        outer, self.inner = pty.openpty()
        super().__init__(outer)
        fcntl.ioctl(self.inner, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        self.before = self.state()
        self._files = [tempfile.TemporaryFile() for _ in range(3)]  # noqa: SIM115 (closed below)
        self._files[0].write(stdin or b"")
        self._files[0].seek(0)
        starter = [sys.executable, "-I", "-S", "-c", _STARTER, os.ttyname(self.inner)]
        self._start([*starter, *argv], bare_environment() if env is None else env, cwd)

    def _start(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path | None) -> None:
        stdin, stdout, stderr = self._files
        self.process = subprocess.Popen(
            argv, stdin=stdin, stdout=stdout, stderr=stderr, env=env, cwd=cwd
        )

    def _wait(self) -> int:
        return self.process.wait(TIMEOUT_S)

    def state(self) -> list[Any]:
        """The terminal's attributes."""
        return termios.tcgetattr(self.inner)

    def echoes(self) -> bool:
        """Whether what is typed is shown."""
        return bool(self.state()[3] & termios.ECHO)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the program."""
        self.process.send_signal(number)

    def hang_up(self) -> None:
        """Close both ends, as a window that is closed does; another terminal takes the place."""
        os.close(self.inner)
        os.close(self.descriptor)
        self.descriptor, self.inner = pty.openpty()

    def finish(self) -> Finished:
        """Wait for its end; the exit status (minus the signal that ended it) and its output."""
        status = self._wait()
        self.drain()
        for file in self._files:
            file.seek(0)
        _, out, err = (file.read().decode() for file in self._files)
        return Finished(status, out, err)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.signal(signal.SIGKILL)
        self._wait()
        for file in self._files:
            file.close()
        os.close(self.descriptor)
        os.close(self.inner)


class LoneSeat(Seat):
    """A seat whose program is nobody's child.

    Whoever runs the tests may sit below an agent CLI, where no passphrase is asked for.
    """

    def _start(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path | None) -> None:
        stdin, stdout, stderr = self._files
        reading, writing = os.pipe()
        self._report = os.fdopen(reading, "rb", buffering=0)
        try:
            subprocess.run(
                [sys.executable, "-I", "-S", "-c", _MONITOR, str(writing), *argv],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                env=env,
                cwd=cwd,
                pass_fds=[writing],
                check=True,
                timeout=TIMEOUT_S,
            )
        finally:
            os.close(writing)
        self._pid = self._told()
        self._status: int | None = None

    def signal(self, number: signal.Signals) -> None:
        """Not once the monitor has waited for it: its number may be another's by then."""
        if not select.select([self._report], [], [], 0)[0] and self._status is None:
            os.kill(self._pid, number)

    def _wait(self) -> int:
        if self._status is None:
            self._status = self._told()
        return self._status

    def _told(self) -> int:
        """The next number that the monitor tells."""
        assert select.select([self._report], [], [], TIMEOUT_S)[0], "the program does not end"
        return int(self._report.readline())

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._report.close()
