"""What a session was told already: one small file, and one rule for all who announce something.

Hooks and the daemon's hook tool both ask here, so each message is announced once, whoever is first
and however often a hook is installed. The file holds the mark of the newest message announced, and
how often in which hour mail kept a turn going. Only `os` is loaded.
"""

from __future__ import annotations

import os
import stat

from mbx.core.limits import HOOK_MISSES_MAX, HOOK_STOPS_HOUR_MAX

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` itself is too heavy for a hook
    from collections.abc import Callable

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_KEPT_BYTES = 64
_HOUR_MS = 3_600_000


def tell(path: str, newest: int, say: Callable[[int], bool], stop_ms: int | None = None) -> bool:
    """Say what is newer than what was told; whether that was done.

    `say` gets the mark that was told last and answers whether it said something: only then is
    `newest` kept. While somebody else is saying it, nothing is said. With `stop_ms` (the time, UTC)
    it keeps a turn going, which is done so many times an hour and no more. Raises OSError.
    """
    descriptor = os.open(path, _FLAGS, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return False
        try:
            os.lockf(descriptor, os.F_TLOCK, 0)
        except BlockingIOError:
            return False
        told, hour, stops = _numbers(os.pread(descriptor, _KEPT_BYTES, 0))
        if newest <= told:
            return False
        if stop_ms is not None:
            before, hour = hour, stop_ms // _HOUR_MS
            stops = stops + 1 if hour == before else 1
            if stops > HOOK_STOPS_HOUR_MAX:
                return False
        if not say(told):
            return False
        kept = b"%d %d %d" % (newest, hour, stops)
        os.pwrite(descriptor, kept.ljust(_KEPT_BYTES - 1) + b"\n", 0)
        return True
    finally:
        os.close(descriptor)


def mention(path: str, own: str) -> None:
    """Name a session that was told something, in the pipe of the daemon; nobody is waited for.

    Where nobody listens, the daemon finds it out by itself, later.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
                os.write(descriptor, f"{own}\n".encode())
        finally:
            os.close(descriptor)
    except OSError:
        return


def told(path: str) -> int:
    """The mark of the newest message that was announced; 0: none was. Raises OSError."""
    try:
        descriptor = os.open(path, _FLAGS & ~os.O_CREAT)
    except FileNotFoundError:
        return 0
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return 0
        return _numbers(os.pread(descriptor, _KEPT_BYTES, 0))[0]
    finally:
        os.close(descriptor)


def take_back(path: str, newest: int, before: int) -> None:
    """What was kept as told did not arrive: the mark before it is kept again.

    Unless somebody said something newer meanwhile, or is saying it. Raises OSError.
    """
    descriptor = os.open(path, _FLAGS, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return
        try:
            os.lockf(descriptor, os.F_TLOCK, 0)
        except BlockingIOError:
            return
        now, hour, stops = _numbers(os.pread(descriptor, _KEPT_BYTES, 0))
        if now == newest:
            kept = b"%d %d %d" % (before, hour, stops)
            os.pwrite(descriptor, kept.ljust(_KEPT_BYTES - 1) + b"\n", 0)
    finally:
        os.close(descriptor)


def count_miss(path: str) -> None:
    """Add one to the count in a file, as the shell script does; it may lose one to a race."""
    try:
        descriptor = os.open(path, _FLAGS, 0o600)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return
            count = min(_numbers(os.pread(descriptor, _KEPT_BYTES, 0))[0] + 1, HOOK_MISSES_MAX)
            os.pwrite(descriptor, b"%d\n" % count, 0)
        finally:
            os.close(descriptor)
    except OSError:
        return


def _numbers(raw: bytes) -> tuple[int, int, int]:
    """What the file says; what is missing or no number is 0."""
    words = [int(word) if word.isdigit() and len(word) < 20 else 0 for word in raw.split()[:3]]
    told, hour, stops = (*words, 0, 0, 0)[:3]
    return told, hour, stops
