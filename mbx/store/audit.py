"""The audit log: rows chained by hash, so that no row can be changed, removed or moved alone."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import Final, NamedTuple

from mbx.core.canonical import JsonValue, encode
from mbx.store.database import Row, Tx

GENESIS: Final = bytes(32)
"""What the first row is chained to."""

SCAN_ROWS: Final = 20_000
"""So many rows are looked at for one page of `page`: a page stays a matter of milliseconds."""

# As bytes: a text that somebody has made no UTF-8 must be told as changed, not end the reader.
_COLUMNS: Final = (
    "SELECT no, at_ms, CAST(act AS BLOB), CAST(identity AS BLOB), CAST(detail AS BLOB), hash"
    " FROM audit"
)
_ALL: Final = _COLUMNS + " ORDER BY no"
_BETWEEN: Final = _COLUMNS + " WHERE no > ? ORDER BY no LIMIT ?"
_LAST: Final = _COLUMNS + " ORDER BY no DESC LIMIT ?"
_PAGE: Final = (
    _COLUMNS
    + " WHERE no < ?1 AND no >= ?2 AND at_ms >= ?3 AND (?4 IS NULL OR identity = ?4)"
    + " AND (?5 IS NULL OR act = ?5) ORDER BY no DESC LIMIT ?6"
)


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One act: when (ms UTC), what, about which identity (its id), details as canonical JSON."""

    no: int
    at_ms: int
    act: str
    identity: str | None
    detail: str
    hash: bytes


class Wanted(NamedTuple):
    """Which rows: since a time (ms UTC), of an identity (its id), of one act; None is any."""

    since_ms: int = 0
    identity: str | None = None
    act: str | None = None


class Page(NamedTuple):
    """Rows, newest first; `next_before` is where to go on, None at the beginning of the log."""

    rows: list[AuditRow]
    next_before: int | None


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
    # The one text that `canonical.encode` gives; to check its form again would triple the cost of
    # a walk over the whole chain.
    who = "null" if identity is None else encode_basestring(identity)
    text = (
        f'{{"act":{encode_basestring(act)},"at":{at_ms},"detail":{encode_basestring(detail)},'
        f'"identity":{who},"no":{no}}}'
    )
    return hashlib.sha256(previous + text.encode("utf-8", "surrogateescape")).digest()


def rows(tx: Tx) -> Iterator[AuditRow]:
    """All rows in order."""
    return _read(tx.each(_ALL))


def after(tx: Tx, no: int, count: int) -> list[AuditRow]:
    """The rows behind row `no`, in order."""
    return list(_read(tx.all(_BETWEEN, (no, count))))


def last(tx: Tx, count: int) -> list[AuditRow]:
    """The newest rows, in order."""
    return list(_read(tx.all(_LAST, (count,))))[::-1]


def hash_at(tx: Tx, no: int) -> bytes | None:
    """The hash that row `no` bears; None where there is no such row."""
    row = tx.one("SELECT hash FROM audit WHERE no = ?", (no,))
    return bytes(row[0]) if row else None


def page(tx: Tx, wanted: Wanted, before: int | None, count: int) -> Page:
    """The newest rows before row `before` that are wanted; it may be short, or empty."""
    end = head(tx)[0] + 1 if before is None else before
    begin = max(end - SCAN_ROWS, 0)
    filters = (wanted.since_ms, wanted.identity, wanted.act)
    found = list(_read(tx.all(_PAGE, (end, begin, *filters, count))))
    next_before = found[-1].no if len(found) == count else begin
    return Page(found, next_before if next_before > 1 else None)


def reached(tx: Tx, no: int, digest: bytes) -> tuple[int, bytes]:
    """How far the log goes, for a second place that knows row `no` by its hash.

    Where another row, or none, stands there now, it is the old place again: what proves that the
    log was put back must not be written over.
    """
    return head(tx) if no == 0 or hash_at(tx, no) == digest else (no, digest)


def first_break(tx: Tx) -> int | None:
    """The number of the first row that does not follow from the one before it, or None."""
    previous, expected = GENESIS, 1
    for row in rows(tx):
        digest = row_hash(previous, row.no, row.at_ms, row.act, row.identity, row.detail)
        if row.no != expected or digest != row.hash:
            return expected
        previous, expected = row.hash, expected + 1
    return None


def _read(found: Iterable[Row]) -> Iterator[AuditRow]:
    for no, at_ms, act, identity, detail, digest in found:
        who = None if identity is None else _text(identity)
        yield AuditRow(no, at_ms, _text(act), who, _text(detail), bytes(digest))


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
