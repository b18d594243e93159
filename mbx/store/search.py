"""The full-text index, filled behind the commit in the order of arrival.

In the send's own transaction the index costs three quarters of an insert (60 µs against 17 µs,
measured). `indexed_message` is the last message in the index: whatever lies above it is pending.
"""

import json
from typing import Final

from mbx.core.terms import indexable
from mbx.store.database import Tx

BATCH_MAX_BYTES: Final = 256 * 1024
"""Bodies of one batch together: everybody waits for it (60 of the largest took 5.7 s, measured)."""


def pending(tx: Tx) -> int:
    """How many messages the index does not have yet."""
    row = tx.one(
        "SELECT (SELECT coalesce(max(no), 0) FROM messages)"
        " - (SELECT value FROM counters WHERE name = 'indexed_message')"
    )
    return int(row[0]) if row else 0


def index_some(tx: Tx, count: int) -> int:
    """Index the next messages, a batch of `count` at most; how many are pending afterwards."""
    row = tx.one("SELECT value FROM counters WHERE name = 'indexed_message'")
    first = int(row[0]) if row else 0
    last = _end_of_batch(tx, first, count)
    # Text without bigrams goes over inside SQLite, where the interpreter's lock is free.
    tx.run(
        "INSERT INTO search (rowid, subject, body)"
        " SELECT no, subject, json_extract(payload, '$.body') FROM messages"
        " WHERE no > ? AND no <= ? AND plain = 1",
        (first, last),
    )
    rows = tx.all(
        "SELECT no, subject, payload FROM messages WHERE no > ? AND no <= ? AND plain = 0",
        (first, last),
    )
    for no, subject, payload in rows:
        body = json.loads(payload)["body"]
        tx.run(
            "INSERT INTO search (rowid, subject, body) VALUES (?, ?, ?)",
            (no, indexable(subject), indexable(body)),
        )
    tx.run("UPDATE counters SET value = ? WHERE name = 'indexed_message'", (last,))
    return pending(tx)


def _end_of_batch(tx: Tx, first: int, count: int) -> int:
    """The key of the last message of the batch after `first`: one at least, if there is one."""
    last, size_bytes = first, 0
    rows = tx.all(
        "SELECT no, body_bytes FROM messages WHERE no > ? ORDER BY no LIMIT ?", (first, count)
    )
    for no, body_bytes in rows:
        size_bytes += body_bytes
        if size_bytes > BATCH_MAX_BYTES and last > first:
            break
        last = no
    return last
