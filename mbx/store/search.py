"""The full-text index, filled behind the commit in the order of arrival.

In the send's own transaction the index costs three quarters of an insert (60 µs against 17 µs,
measured). `indexed_message` is the last message in the index: whatever lies above it is pending.

Beside the words it has whose mail they are in, so that the words of all do not have to be walked
for somebody who has few of them (390 ms at 50,000 messages, measured; 0.3 now). Only the queries
of `history` say what somebody may see.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from mbx.core.terms import indexable
from mbx.store.database import Tx
from mbx.store.messages import NEWEST

BATCH_MAX_BYTES: Final = 256 * 1024
"""Bodies of one batch together: everybody waits for it (60 of the largest took 5.7 s, measured)."""

COPY_BYTES: Final = 8
"""What a copy weighs among the bodies of a batch: a message may have a thousand."""

BLOCK_MESSAGES: Final = 1_024
"""Messages of which the earliest and the latest time are kept."""

_ROWS: Final = (
    "SELECT m.no, m.subject, json_extract(m.payload, '$.body'), 'f' || coalesce(m.sender_no, 0)"
    " || ' k' || m.kind || coalesce((SELECT group_concat(' t' || d.recipient_no, '')"
    " FROM deliveries AS d WHERE d.message_no = m.no), '') FROM messages AS m"
    " WHERE m.no > ? AND m.no <= ? AND m.plain = ?"
)
_INSERT: Final = "INSERT INTO search (rowid, subject, body, who) "
_WEIGHTS: Final = (
    "SELECT m.no, m.body_bytes + ? * (SELECT count(*) FROM deliveries AS d"
    " WHERE d.message_no = m.no) FROM messages AS m WHERE m.no > ? ORDER BY m.no LIMIT ?"
)
_BLOCKS: Final = (
    "INSERT INTO search_blocks (block, first_ms, last_ms)"
    " SELECT no / ?1, min(accepted_ms), max(accepted_ms) FROM messages"
    " WHERE no > ?2 AND no <= ?3 GROUP BY no / ?1 ON CONFLICT (block) DO UPDATE SET"
    " first_ms = min(first_ms, excluded.first_ms), last_ms = max(last_ms, excluded.last_ms)"
)


class Progress(NamedTuple):
    """The last message in the index, and the last one that there is (keys)."""

    indexed: int
    newest: int

    @property
    def pending(self) -> int:
        """How many messages the index does not have yet."""
        return self.newest - self.indexed


class Filters(NamedTuple):
    """What a search leaves out: keys of identities, ms UTC (`until_ms` exclusive)."""

    kind: str | None = None
    sender_no: int | None = None
    recipient_no: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None


# -- filling --------------------------------------------------------------------------------------


def progress(tx: Tx) -> Progress:
    """How far the index is."""
    row = tx.one(
        "SELECT (SELECT value FROM counters WHERE name = 'indexed_message'),"
        " (SELECT coalesce(max(no), 0) FROM messages)"
    )
    return Progress(row[0] or 0, row[1]) if row else Progress(0, 0)


def index_some(tx: Tx, count: int) -> Progress:
    """Index the next messages, a batch of `count` at most; how far the index is afterwards.

    Writes nothing when nothing is pending.
    """
    first, newest = progress(tx)
    last = _end_of_batch(tx, first, count)
    if last == first:
        return Progress(first, newest)
    # Text without bigrams goes over inside SQLite, where the interpreter's lock is free.
    tx.run(_INSERT + _ROWS, (first, last, 1))
    for no, subject, body, who in tx.all(_ROWS, (first, last, 0)):
        tx.run(_INSERT + "VALUES (?, ?, ?, ?)", (no, indexable(subject), indexable(body), who))
    tx.run(_BLOCKS, (BLOCK_MESSAGES, first, last))
    tx.run("UPDATE counters SET value = ? WHERE name = 'indexed_message'", (last,))
    return Progress(last, newest)


def add_copies(tx: Tx, recipient_no: int, messages: Iterable[int]) -> None:
    """Somebody got copies of messages (keys) that others got before.

    What the index has already gets one word more; the rest finds its copies when its turn comes.
    """
    indexed = progress(tx).indexed
    for no in sorted(messages):
        if no <= indexed:
            tx.run("INSERT INTO search (rowid, who) VALUES (?, ?)", (no, f"t{recipient_no}"))


def _end_of_batch(tx: Tx, first: int, count: int) -> int:
    """The key of the last message of the batch after `first`: one at least, if there is one."""
    last, size_bytes = first, 0
    for no, weight_bytes in tx.all(_WEIGHTS, (COPY_BYTES, first, count)):
        size_bytes += weight_bytes
        if size_bytes > BATCH_MAX_BYTES and last > first:
            break
        last = no
    return last


# -- finding --------------------------------------------------------------------------------------


def expression(words: str, own_no: int, filters: Filters) -> str:
    """The full-text expression for `words` (one of `mbx.core.terms`) in the mail of `own_no`."""
    whose = [f"(f{own_no} OR t{own_no})"]
    if filters.kind is not None:
        whose.append(f"k{filters.kind}")
    if filters.sender_no is not None:
        whose.append(f"f{filters.sender_no}")
    if filters.recipient_no is not None:
        whose.append(f"t{filters.recipient_no}")
    return f"{{subject body}} : ({words}) AND who : ({' AND '.join(whose)})"


def bounds(tx: Tx, filters: Filters) -> tuple[int, int]:
    """Between which keys messages of the time lie: from the first on, and below the second.

    Others may lie between them too.
    """
    low, high = 0, NEWEST
    if filters.since_ms is not None:
        row = tx.one("SELECT min(block) FROM search_blocks WHERE last_ms >= ?", (filters.since_ms,))
        low = row[0] * BLOCK_MESSAGES if row and row[0] is not None else NEWEST
    if filters.until_ms is not None:
        row = tx.one("SELECT max(block) FROM search_blocks WHERE first_ms < ?", (filters.until_ms,))
        high = (row[0] + 1) * BLOCK_MESSAGES if row and row[0] is not None else 0
    return low, high
