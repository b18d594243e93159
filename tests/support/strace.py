"""Real processes under strace: which write-like system calls they make, and a death at one of them.

strace counts calls for each thread by itself. The daemon has two, the loop and the store's, so a
point is (thread, call, count), and strace is attached to that one thread: then each point can be
met. A daemon that is started under strace cannot be told so; there the store's thread is met only
with counts that the first thread does not reach (`Point.is_shadowed`).
"""

import contextlib
import os
import re
import select
import shutil
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.support.shells import TIMEOUT_S

STRACE: Final = shutil.which("strace")
needs_strace: Final = pytest.mark.skipif(STRACE is None, reason="strace is not installed")

WRITE_LIKE: Final = (
    *("pwrite64", "fdatasync", "fsync", "ftruncate", "write", "writev", "sendto", "sendmsg"),
    *("rename", "renameat", "renameat2", "unlink", "unlinkat", "link", "linkat"),
    *("mkdir", "mkdirat", "bind", "openat"),
)
"""Calls that change files or that somebody hears; of `openat` only those that may create."""

_TRACE: Final = ",".join(f"?{call}" for call in WRITE_LIKE)
_CALL: Final = re.compile(r"(?P<thread>\d+) +(?P<call>\w+)\((?P<rest>.*)")
_LET_TRACE: Final = (
    "import ctypes, sys; "
    "ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0); "  # PR_SET_PTRACER, any
)
_SERVE: Final = "from mbx.daemon.__main__ import main; sys.exit(main(sys.argv[1:]))"


def traceable(defect: str = "") -> tuple[str, ...]:
    """How Python starts a daemon to which strace may be attached; `defect` is run in it before."""
    return ("-I", "-c", f"{_LET_TRACE}\n{defect}\n{_SERVE}")


@dataclass(frozen=True, order=True)
class Point:
    """The `count`-th `call` of a thread ("loop" or "store"), which is about a `target`."""

    thread: str
    call: str
    target: str
    count: int
    is_shadowed: bool = False

    def __str__(self) -> str:
        return f"{self.call} {self.count} ({self.target}, {self.thread})"


def points_of(trace: str, main_thread: int | None = None) -> list[Point]:
    """The points in what ``strace -f -y`` wrote; `main_thread` is that of the loop, else the first.

    Each call is a point of its own, in order of time.
    """
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    found: list[Point] = []
    for line in trace.splitlines():
        match = _CALL.match(line)
        if match is None:
            continue
        main_thread = int(match["thread"]) if main_thread is None else main_thread
        thread = "loop" if int(match["thread"]) == main_thread else "store"
        call, rest = match["call"], match["rest"]
        counts[thread][call] += 1
        if call == "openat" and "O_CREAT" not in rest:
            continue
        count = counts[thread][call]
        is_shadowed = thread == "store" and counts["loop"][call] >= count
        found.append(Point(thread, call, _target(rest), count, is_shadowed))
    return found


def _target(rest: str) -> str:
    """What a call is about: the name of the file or the sort of descriptor, without numbers."""
    inside = re.match(r"\d+<([^>]*)>", rest) or re.search(r'"([^"]*)"', rest)
    name = os.path.basename(inside[1]) if inside else "?"
    name = re.sub(r"[0-9a-f]{64}", "credential", name)
    return re.sub(r":?\[.*|\d+", "", name) or "?"


def choose(points: Sequence[Point], wanted: int | None) -> list[Point]:
    """Every k-th point, and the first of each (thread, call, target); all if `wanted` is None."""
    if wanted is None:
        return list(points)
    first_of = {(one.thread, one.call, one.target): one for one in reversed(points)}
    step = max(1, len(points) // max(1, wanted - len(first_of)))
    kept = {*points[step - 1 :: step], *first_of.values()}
    return [point for point in points if point in kept]


def under(output: Path, *, follow: bool = True, inject: str | None = None) -> tuple[str, ...]:
    """The words before a command that run it under strace, writing to `output`."""
    assert STRACE is not None
    words = [STRACE, "-y", "-s", "0", "-o", str(output), *(["-f"] if follow else [])]
    return (*words, "-e", f"trace={_TRACE}", *(["-e", f"inject={inject}"] if inject else []))


def killed_at(point: Point) -> str:
    """The injection that ends the process where it would make this call; the call is not made."""
    return f"{point.call}:signal=KILL:when={point.count}"


@contextlib.contextmanager
def attached(
    pid: int, output: Path, *, thread: str | None = None, inject: str | None = None
) -> Iterator[None]:
    """Trace a running daemon, all of it or one thread; skips where no process may be attached to.

    On the way out strace is told to let go, whatever became of the daemon.
    """
    follow = thread is None
    task = pid if thread in (None, "loop") else _store_thread(pid)
    words = [*under(output, follow=follow, inject=inject), "-p", str(task)]
    with subprocess.Popen(words, stderr=subprocess.PIPE) as tracer:
        assert tracer.stderr is not None
        try:
            readable, _, _ = select.select([tracer.stderr], [], [], TIMEOUT_S)
            said = tracer.stderr.readline() if readable else b""
            if b"not permitted" in said:
                pytest.skip("the kernel does not let strace attach to a process")
            assert b"attached" in said, said
            yield
        finally:
            tracer.terminate()
            tracer.wait(TIMEOUT_S)


def _store_thread(pid: int) -> int:
    """The first thread that the daemon starts; others look at processes, and come later.

    By the time of its start, then its number: numbers begin anew where the highest was given.
    """
    found: list[tuple[int, int]] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        if int(task.name) != pid:
            with contextlib.suppress(FileNotFoundError):  # it has just ended
                started_ticks = (task / "stat").read_text().rpartition(") ")[2].split()[19]
                found.append((int(started_ticks), int(task.name)))
    return min(found)[1]
