"""Whether this host itself was there all along; pure.

What waits for a paired host is given up by its age. A host that was asleep, off or stopped, or
whose clock was set, finds everything old at its first look, when no link has had the time to stand
again: so it first tries for a while.
"""

from dataclasses import dataclass, replace

from mbx.core.limits import ABSENCE_MIN_MS, BACK_MIN_MS


@dataclass(frozen=True, slots=True)
class Presence:
    """One look at both clocks: the wall clock's time, and since when nothing was missed (steady).

    A steady clock may stand while a machine sleeps or go on: only the wall clock tells for sure.
    """

    seen_ms: int
    since_ms: int

    def look(self, now_ms: int, steady_ms: int) -> "Presence":
        """The clocks some moments later."""
        was_away = now_ms - self.seen_ms >= ABSENCE_MIN_MS
        return Presence(now_ms, steady_ms) if was_away else replace(self, seen_ms=now_ms)

    def has_tried(self, steady_ms: int) -> bool:
        """Whether it is back for long enough to give up what it could not hand over."""
        return steady_ms - self.since_ms >= BACK_MIN_MS
