"""Rows of wakes: what was tried to wake a session, for how much mail, and how it ended."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from mbx.core.brake import Outcome, Waiting
from mbx.core.limits import WAKE_DAY_MS, WAKE_THREAD_MS, WAKES_KEPT_MAX
from mbx.store.database import Tx

_WAITING: Final = (
    "SELECT d.message_no, m.thread FROM deliveries AS d INDEXED BY deliveries_unannounced"
    " JOIN messages AS m ON m.no = d.message_no"
    " WHERE d.recipient_no = ? AND d.wakes = 1 AND d.stage = 2 ORDER BY d.message_no LIMIT ?"
)
_ANNOUNCE: Final = (
    "UPDATE deliveries SET stage = 3, stage_ms = ?1, epoch = ?2"
    " WHERE recipient_no = ?3 AND message_no = ?4 AND stage = 2"
)
_SENDER: Final = (
    "SELECT m.id, i.peer_no FROM messages AS m JOIN identities AS i ON i.no = m.sender_no"
    " WHERE m.no = ?"
)
_INTEND: Final = (
    "INSERT INTO wakes (identity_no, session_no, epoch, way, at_ms, upto_no, messages)"
    " VALUES (?, ?, ?, ?, ?, ?, ?)"
)
_PAST: Final = (
    "SELECT identity_no, at_ms FROM wakes"
    " WHERE at_ms > ? AND (outcome IS NULL OR outcome IN ('admitted', 'unknown')) ORDER BY no"
)
_PAST_THREADS: Final = (
    "SELECT t.thread, t.message_no, w.at_ms FROM wakes AS w JOIN wake_threads AS t"
    " ON t.wake_no = w.no WHERE w.at_ms > ?"
    " AND (w.outcome IS NULL OR w.outcome IN ('admitted', 'unknown')) ORDER BY w.no"
)
_HELD: Final = (
    "SELECT w.identity_no, w.epoch, max(w.upto_no) FROM wakes AS w JOIN leases AS l"
    " ON l.identity_no = w.identity_no AND l.epoch = w.epoch"
    " WHERE w.outcome = 'unknown' GROUP BY w.identity_no, w.epoch"
)
_NEWEST: Final = (
    "SELECT at_ms, way, epoch, messages, outcome, reason FROM wakes"
    " WHERE identity_no = ? ORDER BY no DESC LIMIT ?"
)
_UNKNOWN: Final = (
    "SELECT i.name, count(*), max(w.at_ms) FROM wakes AS w JOIN identities AS i"
    " ON i.no = w.identity_no WHERE w.outcome = 'unknown' AND w.way <> 'notice' AND w.at_ms > ?"
    " GROUP BY w.identity_no ORDER BY i.name LIMIT ?"
)
_OLD: Final = "SELECT no FROM wakes WHERE at_ms < ?1 OR no <= (SELECT max(no) - ?2 FROM wakes)"


class NewWake(NamedTuple):
    """A wake that is about to be tried."""

    identity_no: int
    session_no: int
    epoch: int
    way: str
    at_ms: int
    upto_no: int
    messages: int


class Spent(NamedTuple):
    """A wake that was tried and may have woken somebody."""

    identity_no: int
    at_ms: int


class Woke(NamedTuple):
    """A message of a thread that woke somebody."""

    thread: str
    message_no: int
    at_ms: int


class Held(NamedTuple):
    """Mail up to `upto_no`, announced to the holder of `epoch` by a wake of unknown outcome."""

    identity_no: int
    epoch: int
    upto_no: int


class Past(NamedTuple):
    """What a new daemon must know of wakes."""

    spent: tuple[Spent, ...] = ()
    woke: tuple[Woke, ...] = ()
    held: tuple[Held, ...] = ()


class WakeRow(NamedTuple):
    """A wake as people see it; `outcome` None: it is being tried."""

    at_ms: int
    way: str
    epoch: int
    messages: int
    outcome: str | None
    reason: str | None


def waiting(tx: Tx, identity_no: int, rows: int) -> list[Waiting]:
    """Up to `rows` messages of a mailbox that wake and were announced to nobody, oldest first."""
    return [Waiting(*row) for row in tx.all(_WAITING, (identity_no, rows))]


def announced(
    tx: Tx, identity_no: int, nos: Iterable[int], *, now_ms: int, epoch: int
) -> list[tuple[str, int | None]]:
    """Bring these copies to *notified*, but for those that went on; their ids and senders' hosts.

    None stands for this host.
    """
    found = []
    for no in nos:
        if tx.run(_ANNOUNCE, (now_ms, epoch, identity_no, no)):
            row = tx.one(_SENDER, (no,))
            if row is not None:
                found.append((str(row[0]), row[1]))
    return found


def intend(tx: Tx, wake: NewWake, causes: Iterable[Waiting]) -> int:
    """Write down that a wake is about to be tried, for these messages; its key."""
    no = tx.insert(_INTEND, tuple(wake))
    for cause in causes:
        tx.run(
            "INSERT INTO wake_threads (wake_no, thread, message_no) VALUES (?, ?, ?)",
            (no, cause.thread, cause.no),
        )
    return no


def settle(tx: Tx, no: int, outcome: Outcome, reason: str | None) -> None:
    """Write down how a wake ended."""
    tx.run("UPDATE wakes SET outcome = ?, reason = ? WHERE no = ?", (outcome, reason, no))


def settle_left(tx: Tx, reason: str) -> list[int]:
    """At a start: what an earlier daemon tried and did not settle is unknown, for ever.

    The sessions (keys) that it was for.
    """
    left = tx.all("SELECT DISTINCT session_no FROM wakes WHERE outcome IS NULL ORDER BY no")
    tx.run("UPDATE wakes SET outcome = 'unknown', reason = ? WHERE outcome IS NULL", (reason,))
    return [row[0] for row in left]


def past(tx: Tx, now_ms: int) -> Past:
    """What the brake must know of: the wakes of the last day, and of threads in the last hour."""
    return Past(
        tuple(Spent(*row) for row in tx.all(_PAST, (now_ms - WAKE_DAY_MS,))),
        tuple(Woke(*row) for row in tx.all(_PAST_THREADS, (now_ms - WAKE_THREAD_MS,))),
        tuple(Held(*row) for row in tx.all(_HELD)),
    )


def newest(tx: Tx, identity_no: int, rows: int) -> list[WakeRow]:
    """The last wakes for a mailbox, newest first."""
    return [WakeRow(*row) for row in tx.all(_NEWEST, (identity_no, rows))]


def unknown(tx: Tx, since_ms: int, rows: int) -> list[tuple[str, int, int]]:
    """Mailboxes with wakes of unknown outcome since a time: name, how many, when last (ms UTC)."""
    return [(row[0], row[1], row[2]) for row in tx.all(_UNKNOWN, (since_ms, rows))]


def forget_old(tx: Tx, now_ms: int) -> None:
    """Remove the wakes that the brake needs no more, and all but the newest of very many."""
    for (no,) in tx.all(_OLD, (now_ms - 2 * WAKE_DAY_MS, WAKES_KEPT_MAX)):
        tx.run("DELETE FROM wake_threads WHERE wake_no = ?", (no,))
        tx.run("DELETE FROM wakes WHERE no = ?", (no,))
