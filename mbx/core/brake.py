"""The brake on waking, and what follows the outcome of a wake: functions of earlier wakes and now.

Agents that answer each other would keep each other awake all night. So a mailbox's holder is woken
at most once in `WAKE_GAP_MS` and `WAKES_OF_DAY_MAX` times a day, and of one thread only so many
messages wake anybody in an hour, however many mailboxes they go round through. A message that went
to many counts once. Times are of one clock that never goes back.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

from mbx.core.limits import (
    WAKE_DAY_MS,
    WAKE_GAP_MS,
    WAKE_RETRY_MAX_MS,
    WAKE_THREAD_MS,
    WAKES_OF_DAY_MAX,
    WAKES_OF_THREAD_MAX,
)

Outcome = Literal["admitted", "busy", "blocked", "unknown", "failed"]

OUTCOMES: Final[tuple[Outcome, ...]] = ("admitted", "busy", "blocked", "unknown", "failed")
"""How a wake ended. ``admitted``: the session took it. ``busy``: it is in a turn. ``blocked``: it
takes none as it is set up. ``unknown``: nobody can say. ``failed``: it certainly did not get it."""

SPENDING: Final[frozenset[Outcome]] = frozenset(("admitted", "unknown"))
"""Outcomes that count: the session was woken, or may have been."""

Why = Literal["", "gap", "day", "thread"]


class Waiting(NamedTuple):
    """A message that waits and was announced to nobody: its key, and its thread."""

    no: int
    thread: str


class Verdict(NamedTuple):
    """Whether the brake is open: `opens_ms` is None; else when it opens, and `why` it is closed."""

    opens_ms: int | None = None
    why: Why = ""

    @property
    def is_open(self) -> bool:
        """Whether one may wake now."""
        return self.opens_ms is None


OPEN: Final = Verdict()
"""Nothing speaks against waking."""


def of_mailbox(wakes: Sequence[int], now_ms: int) -> Verdict:
    """The brake of a mailbox whose holder was woken at these times, oldest first."""
    if len(wakes) >= WAKES_OF_DAY_MAX and now_ms - wakes[-WAKES_OF_DAY_MAX] < WAKE_DAY_MS:
        return Verdict(wakes[-WAKES_OF_DAY_MAX] + WAKE_DAY_MS, "day")
    if wakes and now_ms - wakes[-1] < WAKE_GAP_MS:
        return Verdict(wakes[-1] + WAKE_GAP_MS, "gap")
    return OPEN


def of_thread(woke: Mapping[int, int], no: int | None, now_ms: int) -> Verdict:
    """The brake of a thread for its message `no` (None: a new one).

    `woke`: message -> when it last woke somebody. What woke one recipient may wake the others.
    """
    if no in woke:
        return OPEN
    recent = sorted(at_ms for at_ms in woke.values() if now_ms - at_ms < WAKE_THREAD_MS)
    if len(recent) < WAKES_OF_THREAD_MAX:
        return OPEN
    return Verdict(recent[-WAKES_OF_THREAD_MAX] + WAKE_THREAD_MS, "thread")


def causes(
    waiting: Sequence[Waiting], threads: Mapping[str, Mapping[int, int]], now_ms: int
) -> list[Waiting]:
    """Of each thread that may wake now, its newest message; what else waits rides along."""
    newest: dict[str, Waiting] = {}
    for one in waiting:
        if of_thread(threads.get(one.thread, {}), one.no, now_ms).is_open:
            known = newest.get(one.thread)
            newest[one.thread] = one if known is None or one.no > known.no else known
    return list(newest.values())


def of_mail(
    wakes: Sequence[int],
    waiting: Sequence[Waiting],
    threads: Mapping[str, Mapping[int, int]],
    now_ms: int,
) -> Verdict:
    """The brake of a mailbox in which this waits: closed until something of it may wake."""
    mailbox = of_mailbox(wakes, now_ms)
    if not waiting or causes(waiting, threads, now_ms):
        return mailbox
    verdicts = [of_thread(threads.get(one.thread, {}), one.no, now_ms) for one in waiting]
    first = min(verdicts, key=lambda one: one.opens_ms or 0)
    return max(mailbox, first, key=lambda one: one.opens_ms or 0)


def pause_ms(outcome: Outcome, tries: int) -> int:
    """How long a session is left alone after the `tries`-th wake in a row that came to nothing.

    What is not known is not repeated within that time, and then only for newer mail.
    """
    if outcome == "admitted":
        return 0
    if outcome in ("busy", "failed"):
        return min(WAKE_GAP_MS << min(tries - 1, 16), WAKE_RETRY_MAX_MS)
    return WAKE_RETRY_MAX_MS
