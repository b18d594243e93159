"""Whether a session would be woken by new mail now, and if not, why: in words for its sender."""

from typing import Final, NamedTuple

from mbx.core.brake import Verdict
from mbx.core.evidence import HARNESSES
from mbx.core.limits import REST_TOLD_MS
from mbx.daemon.wakes import Seen
from mbx.daemon.wakes.brakes import Pause
from mbx.store.leases import LeaseRow


class Lasting(NamedTuple):
    """What has been so for a while of a session: fit to be told to others, who hear of changes.

    `is_idle`: it rests. `is_woken`: mail would wake it, now or when its turn or a pause ends.
    """

    is_idle: bool
    is_woken: bool


class Reach(NamedTuple):
    """How the holder of a lease can be reached.

    `way`: by which it would be woken, None for none. `is_idle`: None where nobody can say.
    `is_refused`: it is closed for longer than a turn or the brake's usual pause. `lasting`: None
    where it was not looked at yet.
    """

    is_open: bool
    detail: str
    way: str | None = None
    is_idle: bool | None = None
    is_refused: bool = False
    lasting: Lasting | None = None

    @property
    def now(self) -> Lasting:
        """What would be lasting if it stayed so."""
        return Lasting(bool(self.is_idle), self.way is not None and not self.is_refused)


class Standing(NamedTuple):
    """What a session is told as, what it was last seen as, and since when (monotonic)."""

    epoch: int
    told: Lasting
    last: Lasting
    since_ms: int

    @classmethod
    def begun(cls, epoch: int, now: Lasting, now_ms: int) -> "Standing":
        """Of a session that is looked at first: it does not rest yet."""
        return cls(epoch, now._replace(is_idle=False), now, now_ms)

    def seen(self, now: Lasting, now_ms: int) -> "Standing":
        """The same after a look: a turn that begins ends a rest at once; all else has to last.

        So a session is told to rest and to be at work again once in `REST_TOLD_MS` at most.
        """
        told = self.told._replace(is_idle=self.told.is_idle and now.is_idle)
        if now != self.last:
            return Standing(self.epoch, told, now, now_ms)
        has_lasted = now_ms - self.since_ms >= REST_TOLD_MS
        return self._replace(told=now if has_lasted else told)


NOT_LIVE: Final = Reach(False, "no live session holds it")
"""Nobody is there to be woken."""

_NO_WAY: Final = "it sees mail at its next prompt"
_CLOSED: Final = {
    "gap": "it was woken just now",
    "day": "it was woken as often as one may be in a day",
    "thread": "this thread woke as often as one may in an hour",
}
_NOT_TAKEN: Final = {
    "busy": "it is in a turn",
    "blocked": "it takes no wakes",
    "unknown": "whether the last wake reached it is not known",
    "failed": "the last wake did not reach it",
}


def of_session(
    cli: str,
    way: str | None,
    seen: Seen | None,
    pause: Pause | None,
    closed: Verdict,
    now_ms: int,
) -> Reach:
    """Of a living session of an agent CLI, by what is known now (monotonic).

    `way` None: there is none to it; `watch`: it waits on a connection, whatever its client says.
    """
    is_idle = {"idle": True, "busy": False}.get(seen.status) if seen is not None else None
    if way is None:
        return Reach(False, _NO_WAY)
    if way != cli and cli not in HARNESSES:  # a script or a person who waits: no brake is on these
        return Reach(True, "it waits for mail and is told at once", way)
    is_waiting = way != cli
    if not is_waiting and (seen is None or seen.status in ("none", "blocked")):
        why = seen.why if seen is not None and seen.why else "its client was not looked at yet"
        is_blocked = seen is not None and seen.status == "blocked"
        return Reach(False, f"{_NO_WAY}; {why}", None, is_idle, is_blocked)
    if not is_waiting and seen is not None and not seen.is_open:
        return Reach(False, f"{_NO_WAY}; {seen.why}", way, is_idle)
    if not is_waiting and pause is not None:
        why = f"{_NOT_TAKEN.get(pause.outcome, 'it is left alone')} ({pause.reason})"
        detail = f"{_NO_WAY}; {why}; {_until(pause.until_ms, now_ms)}"
        return Reach(False, detail, way, is_idle, pause.outcome != "busy")
    if closed.opens_ms is not None:
        why = f"{_CLOSED.get(closed.why, '')}; {_until(closed.opens_ms, now_ms)}"
        return Reach(False, f"{_NO_WAY}; {why}", way, is_idle, closed.why != "gap")
    detail = "it waits for mail and is told at once" if is_waiting else "it is woken"
    return Reach(True, detail, way, is_idle)


def unreached(row: LeaseRow, thread: str | None) -> Reach:
    """Where nothing wakes anybody."""
    return Reach(False, _NO_WAY)


def _until(at_ms: int, now_ms: int) -> str:
    left_s = max(1, -(-(at_ms - now_ms) // 1000))
    return f"woken again in {left_s} s at the earliest"
