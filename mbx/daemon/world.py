"""Time and chance: the only module of the daemon that reads a clock or a random source."""

import hashlib
import os
import time
from typing import Final, NamedTuple, Protocol

STEP_MIN_MS: Final = 5_000
"""By less than this the wall clock is not set: it is led, or was read a little later."""
_POOL_BYTES: Final = 4_096


class World(Protocol):
    """What the daemon asks of the outside besides processes: the time, and random bytes."""

    def now_ms(self) -> int:
        """Wall clock, ms UTC: for people and signed times, never for deadlines."""

    def monotonic_ms(self) -> int:
        """Monotonic clock, ms: for every deadline."""

    def random_bytes(self, count: int) -> bytes:
        """`count` unpredictable bytes."""


class SystemWorld:
    """The machine's own clocks and random source, of which it asks many bytes at a time."""

    def __init__(self) -> None:
        self._pool = b""
        self._used = 0

    def now_ms(self) -> int:
        """Wall clock, ms UTC."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Monotonic clock, ms."""
        return time.monotonic_ns() // 1_000_000

    def random_bytes(self, count: int) -> bytes:
        """From the kernel; each byte once."""
        if self._used + count > len(self._pool):
            self._pool, self._used = os.urandom(max(_POOL_BYTES, count)), 0
        first, self._used = self._used, self._used + count
        return self._pool[first : self._used]


def uptime_ms() -> int | None:
    """Since the machine's start, as ``/proc/uptime`` says it: what a shell reads too, or None.

    Not for deadlines: a container's may differ from the clocks'.
    """
    try:
        with open("/proc/uptime", "rb") as file:
            seconds, _, hundredths = file.read(64).split()[0].partition(b".")
        return int(seconds) * 1000 + int(hundredths[:2].ljust(2, b"0")) * 10
    except (OSError, ValueError, IndexError):
        return None


class ClockSteps:
    """Whether the wall clock was set, as seen by whoever reads it for something that is kept.

    It was, when it went by so much more or less than the monotonic one from one look to the next.
    Looked at wherever it is read, or a clock that is set and set back between two polls would leave
    what was signed meanwhile as it is.
    """

    def __init__(self, world: World) -> None:
        self._ahead_ms = world.now_ms() - world.monotonic_ms()
        self._is_set = False

    def look(self, now_ms: int, monotonic_ms: int) -> None:
        """The two clocks, read one after the other."""
        ahead_ms = now_ms - monotonic_ms
        if abs(ahead_ms - self._ahead_ms) >= STEP_MIN_MS:
            self._is_set = True
        self._ahead_ms = ahead_ms

    def take(self) -> bool:
        """Whether it was set since this was last asked."""
        is_set, self._is_set = self._is_set, False
        return is_set


class Moment(NamedTuple):
    """When a request arrived, and the chance drawn for it: the same however often its unit runs."""

    now_ms: int
    seed: bytes

    def draw(self, label: str) -> bytes:
        """32 bytes for `label`, unpredictable to anybody without the seed, equal at every run."""
        return hashlib.sha256(self.seed + label.encode()).digest()

    def nonce(self, label: str) -> str:
        """128 bits for `label` as 32 hexadecimal digits."""
        return self.draw(label)[:16].hex()


def moment(world: World) -> Moment:
    """Draw the moment of a request."""
    return Moment(world.now_ms(), world.random_bytes(32))
