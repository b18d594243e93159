"""What every hook begins with: the one deadline, a second after the script's first line."""

from __future__ import annotations

import os

from mbx.core.limits import HOOK_DEADLINE_MS
from mbx.descriptors import fill

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` itself is too heavy for a hook, and so is `signal`
    import signal as _signal
    from collections.abc import Mapping
else:
    import _signal

_LEFT_MIN_S = 0.05
_SPENT_MAX_S = 60.0

_slow_path: list[str] = []


def arm(environ: Mapping[str, str]) -> None:
    """End the process with status 0 at the deadline, in silence."""
    fill()
    _signal.signal(_signal.SIGALRM, _end)
    left_s = HOOK_DEADLINE_MS / 1000 - _spent_s(environ.get("MBX_HOOK_BEGAN", ""))
    _signal.setitimer(_signal.ITIMER_REAL, max(left_s, _LEFT_MIN_S))


def disarm() -> None:
    """From now on nothing ends the process: it waits for what may never come."""
    _signal.setitimer(_signal.ITIMER_REAL, 0)


def counts_in(path: str) -> None:
    """Count it there when the deadline ends this process."""
    _slow_path[:] = [path]


def _end(number: int, frame: object) -> None:
    if _slow_path:
        from mbx.telling import count_miss

        count_miss(_slow_path[0])
    os._exit(0)


def _spent_s(began: str) -> float:
    """Seconds since the script began, by the clock that a shell can read."""
    try:
        with open("/proc/uptime", "rb") as file:
            return min(max(float(file.read(64).split()[0]) - float(began), 0.0), _SPENT_MAX_S)
    except (OSError, ValueError, IndexError):
        return 0.0
