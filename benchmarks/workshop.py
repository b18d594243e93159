"""The folder, the daemons and the other processes of one run."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from benchmarks.scale import Scale
from benchmarks.wire import Line, socket_of, wait_until_readable

DAEMON: Final = (sys.executable, "-I", "-m", "mbx.daemon")
_LETTERS: Final = "abcdefghjk"
_ECHO: Final = Path(__file__).with_name("echo.py")
_END_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Workshop:
    """Where a run keeps its files: `folder` goes when it ends, `kept` (made stores) stays."""

    scale: Scale
    folder: Path
    kept: Path
    say: Callable[[str], None]

    def home(self) -> Path:
        """A new home folder for a daemon, on the same file system as everything else."""
        return Path(tempfile.mkdtemp(prefix="h", dir=self.folder))

    def rounds(self) -> range:
        """The rounds of an interleaved measurement."""
        return range(self.scale.rounds)


@contextlib.contextmanager
def opened(scale: Scale, kept: Path, say: Callable[[str], None]) -> Iterator[Workshop]:
    """A workshop in a fresh folder below `kept`."""
    kept.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=kept))
    try:
        yield Workshop(scale, folder, kept, say)
    finally:
        shutil.rmtree(folder)


class Daemon:
    """One daemon process on `home`. Use it in ``with``: it is started and stopped."""

    def __init__(self, home: Path, argv: Sequence[str] = DAEMON) -> None:
        self.home = home
        self.socket = socket_of(home)
        self._argv = argv
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        """Start it; how long until it said that it serves (seconds)."""
        took_s, self._process, said = time_to_first_line(self._argv, environment(self.home))
        if b'"ready": true' not in said:
            raise RuntimeError(f"the daemon did not start: {said!r}")
        return took_s

    def stop(self) -> None:
        """Let it end in order."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it by SIGKILL."""
        self._end(signal.SIGKILL)

    def rss_kib(self) -> int:
        """Resident memory now."""
        assert self._process is not None
        status = Path(f"/proc/{self._process.pid}/status").read_text(encoding="ascii")
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1])

    def cpu_s(self) -> float:
        """The time that all its threads have been on a processor so far."""
        assert self._process is not None
        tasks = Path(f"/proc/{self._process.pid}/task").iterdir()
        spent_ns = [int((task / "schedstat").read_text().split()[0]) for task in tasks]
        return sum(spent_ns) / 1e9

    def pid(self) -> int:
        """Its process number."""
        assert self._process is not None
        return self._process.pid

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(_END_S)
            self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Echo:
    """A bare asyncio server in its own process: every line gets the one answer. For ``with``."""

    def __init__(self, path: Path, answer: bytes) -> None:
        self.path = str(path)
        argv = [sys.executable, "-I", str(_ECHO), self.path]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None
        self._process.stdin.write(answer)
        self._process.stdin.close()
        assert self._process.stdout is not None
        self._process.stdout.readline()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(_END_S)
        assert self._process.stdout is not None
        self._process.stdout.close()


def time_to_first_line(
    argv: Sequence[str], env: dict[str, str]
) -> tuple[float, "subprocess.Popen[bytes]", bytes]:
    """Start a program; the seconds until it wrote a line, its process, the line."""
    begun = time.perf_counter()
    process = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=env, cwd="/"
    )
    assert process.stdout is not None
    with process.stdout:
        said = process.stdout.readline()
    return time.perf_counter() - begun, process, said


def environment(home: Path) -> dict[str, str]:
    """What a process of ours needs, and nothing of an outer session."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return {**kept, "LANG": "C.UTF-8", "MBX_HOME": str(home)}


def names(stem: str, count: int) -> list[str]:
    """`count` names that do not look alike: numbers are spelt in letters."""
    spelt = ("".join(_LETTERS[int(digit)] for digit in f"{number:03}") for number in range(count))
    return [f"{stem}-{letters}" for letters in spelt]


def register(line: Line, name: str) -> None:
    """Register `name` and hold it."""
    line.call("identity.register", name=name, role="bench")


def register_and_release(line: Line, several: Sequence[str]) -> None:
    """Register names that nobody holds afterwards."""
    for name in several:
        register(line, name)
        line.call("identity.release")


@contextlib.contextmanager
def holder(path: str, name: str, *calls: str) -> Iterator[None]:
    """A process that registers `name`, makes `calls`, and stays connected until the end."""

    def hold(reading: int, writing: int) -> None:
        own = Line.of_session(path)
        register(own, name)
        for method in calls:
            own.call(method)
        os.write(writing, b".")
        wait_until_readable(reading)

    with another_process(hold) as (_, stop, ready):
        os.read(ready, 1)
        yield
        os.write(stop, b".")


@contextlib.contextmanager
def another_process(act: Callable[[int, int], None]) -> Iterator[tuple[int, int, int]]:
    """A fork that runs `act(reading, writing)` and ends; (pid, our writing, our reading end).

    Closing our writing end is how it is told to end.
    """
    their_reading, our_writing = os.pipe()
    our_reading, their_writing = os.pipe()
    pid = os.fork()
    if not pid:
        status = 1
        try:
            os.close(our_writing)
            os.close(our_reading)
            act(their_reading, their_writing)
            status = 0
        except BaseException:
            traceback.print_exc()
            raise
        finally:
            os._exit(status)
    os.close(their_reading)
    os.close(their_writing)
    try:
        yield pid, our_writing, our_reading
    finally:
        os.close(our_writing)
        os.close(our_reading)
        _, ended = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(ended)
    if code not in (0, -signal.SIGKILL):
        raise RuntimeError(f"a process of the bench failed with status {code}")
