"""Children of the test whose end, and descriptors whose lack, can be brought about."""

import contextlib
import os
import resource
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Final

from mbx.core.evidence import Process, ProcessEntry
from mbx.daemon.processes import boot_id, read_entry
from tests.support.shells import TIMEOUT_S, bare_environment

SLEEPER: Final = "import sys; sys.stdout.write('up\\n'); sys.stdout.flush(); sys.stdin.read()"
"""Says that it is up and lives until its input ends."""


def process_of(pid: int) -> Process:
    """The living process of this number."""
    entry = read_entry(pid)
    assert isinstance(entry, ProcessEntry)
    return Process(pid, entry.start_ticks, boot_id())


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
def sleeper(
    *more: str | bytes, program: str = sys.executable, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that lives until its stdin ends, at the latest until the end of the block.

    It is up: between fork and the end of exec, what /proc tells of its words and its environment is
    empty, also after `Popen` has returned.
    """
    argv = [program, "-I", "-S", "-c", SLEEPER, *more]
    with subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=bare_environment() if env is None else env,
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
