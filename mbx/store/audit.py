"""The audit log: rows chained by hash, so that no row can be changed, removed or moved alone."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from mbx.core.canonical import JsonValue, encode
from mbx.store.database import Tx

GENESIS: Final = bytes(32)
"""What the first row is chained to."""


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One act: when (ms UTC), what, about which identity (its id), details as canonical JSON."""

    no: int
    at_ms: int
    act: str
    identity: str | None
    detail: str
    hash: bytes


def append(tx: Tx, *, at_ms: int, act: str, identity: str | None, **detail: JsonValue) -> None:
    """Add one row, in the transaction of the act that it tells of."""
    last_no, previous = head(tx)
    no = last_no + 1
    text = encode({"seq": tx.commit_seq, **detail})
    digest = row_hash(previous, no, at_ms, act, identity, text)
    tx.run(
        "INSERT INTO audit (no, at_ms, act, identity, detail, hash) VALUES (?, ?, ?, ?, ?, ?)",
        (no, at_ms, act, identity, text, digest),
    )


def head(tx: Tx) -> tuple[int, bytes]:
    """(number, hash) of the last row; (0, GENESIS) for none."""
    last = tx.one("SELECT no, hash FROM audit ORDER BY no DESC LIMIT 1")
    return (int(last[0]), bytes(last[1])) if last else (0, GENESIS)


def row_hash(
    previous: bytes, no: int, at_ms: int, act: str, identity: str | None, detail: str
) -> bytes:
    """SHA-256 over the previous row's hash and this row's canonical JSON."""
    row: Mapping[str, JsonValue] = {
        "no": no,
        "at": at_ms,
        "act": act,
        "identity": identity,
        "detail": detail,
    }
    return hashlib.sha256(previous + encode(row).encode()).digest()


def rows(tx: Tx) -> Iterator[AuditRow]:
    """All rows in order."""
    for row in tx.each("SELECT no, at_ms, act, identity, detail, hash FROM audit ORDER BY no"):
        yield AuditRow(*row)


def first_break(tx: Tx) -> int | None:
    """The number of the first row that does not follow from the one before it, or None."""
    previous, expected = GENESIS, 1
    for row in rows(tx):
        digest = row_hash(previous, row.no, row.at_ms, row.act, row.identity, row.detail)
        if row.no != expected or digest != row.hash:
            return expected
        previous, expected = row.hash, expected + 1
    return None
