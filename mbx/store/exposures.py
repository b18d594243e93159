"""Rows of what conversations read within the hour: the memory behind taint and relay depth."""

from collections.abc import Iterable
from typing import Final

from mbx.core.exposure import Exposure, joined
from mbx.core.limits import EXPOSURE_MS
from mbx.store.database import Tx

_OF_SESSION: Final = (
    "SELECT source_no, root_ms, hop, hop_limit, read_ms FROM exposures"
    " WHERE cli = ? AND session_id = ?"
)
_ONE: Final = _OF_SESSION + " AND source_no = ?"
_AHEAD: Final = "UPDATE exposures SET read_ms = ?1, root_ms = min(root_ms, ?1) WHERE read_ms > ?1"
_OLD: Final = "DELETE FROM exposures WHERE read_ms < ?"


def of_session(tx: Tx, cli: str, session_id: str) -> list[Exposure]:
    """What a conversation read lately (older rows may be among them: the rules tell)."""
    return [Exposure(*row) for row in tx.all(_OF_SESSION, (cli, session_id))]


def find(tx: Tx, cli: str, session_id: str, source_no: int) -> Exposure | None:
    """What a conversation read lately of one sender."""
    row = tx.one(_ONE, (cli, session_id, source_no))
    return Exposure(*row) if row else None


def save(tx: Tx, cli: str, session_id: str, exposure: Exposure) -> None:
    """Replace what is kept of this sender."""
    tx.run(
        "INSERT INTO exposures (cli, session_id, source_no, root_ms, hop, hop_limit, read_ms)"
        " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (cli, session_id, source_no) DO UPDATE"
        " SET root_ms = excluded.root_ms, hop = excluded.hop, hop_limit = excluded.hop_limit,"
        " read_ms = excluded.read_ms",
        (cli, session_id, *exposure),
    )


def expose(tx: Tx, cli: str, session_id: str, read: Iterable[Exposure]) -> None:
    """Keep what a conversation read, beside what it read before."""
    by_source: dict[int, Exposure] = {}
    for one in read:
        by_source[one.source_no] = joined(by_source.get(one.source_no), one)
    for source_no, fresh in by_source.items():
        save(tx, cli, session_id, joined(find(tx, cli, session_id, source_no), fresh))


def share(tx: Tx, cli: str, session_id: str, other_id: str) -> None:
    """Count what a conversation read under one label under another as well."""
    if session_id != other_id:
        expose(tx, cli, other_id, of_session(tx, cli, session_id))


def forget_old(tx: Tx, now_ms: int) -> None:
    """Remove what was read more than an hour ago.

    The hour of a root is not over later than that of its reading, which it precedes. What was read
    at a time that has not come (the clock was set back since) was read now, or it would last.
    """
    tx.run(_AHEAD, (now_ms,))
    tx.run(_OLD, (now_ms - EXPOSURE_MS,))
