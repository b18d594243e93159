"""Time and chance: the only module of the daemon that reads a clock or a random source."""

import hashlib
import os
import time
from typing import NamedTuple, Protocol


class World(Protocol):
    """What the daemon asks of the outside besides processes: the time, and random bytes."""

    def now_ms(self) -> int:
        """Wall clock, ms UTC: for people and signed times, never for deadlines."""

    def monotonic_ms(self) -> int:
        """Monotonic clock, ms: for every deadline."""

    def random_bytes(self, count: int) -> bytes:
        """`count` unpredictable bytes."""


class SystemWorld:
    """The machine's own clocks and random source."""

    def now_ms(self) -> int:
        """Wall clock, ms UTC."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Monotonic clock, ms."""
        return time.monotonic_ns() // 1_000_000

    def random_bytes(self, count: int) -> bytes:
        """From the kernel."""
        return os.urandom(count)


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
