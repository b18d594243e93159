"""What sessions held last and may resume, and who waits for which identity."""

from dataclasses import dataclass
from typing import Final

from mbx.store.database import Tx

_OLDEST: Final = (
    "SELECT no, session_no, identity_no, since_ms FROM pending WHERE identity_no = ?"
    " ORDER BY no LIMIT 1"
)
_OF_SESSION: Final = (
    "SELECT no, session_no, identity_no, since_ms FROM pending WHERE session_no = ?"
)
_FORGET: Final = (
    "DELETE FROM remembered WHERE identity_no = ?1 AND cli = ?2"
    " AND session_id = ifnull(?3, session_id)"
)
_LEAVE_OTHERS: Final = "DELETE FROM pending WHERE session_no = ? AND identity_no <> ?"
_LEAVE_BESIDE: Final = (
    "DELETE FROM pending WHERE identity_no = ? AND session_no IN (SELECT s.no FROM sessions AS s"
    " JOIN sessions AS own ON own.no = ? AND s.pid = own.pid AND s.start_ticks = own.start_ticks"
    " AND s.boot_id = own.boot_id)"
)
_LEAVE_ALL: Final = (
    "DELETE FROM pending WHERE identity_no = ?1 AND EXISTS (SELECT 1 FROM sessions AS s"
    " WHERE s.no = session_no AND s.cli = ?2 AND s.session_id = ifnull(?3, s.session_id))"
)
_ALL: Final = "SELECT no, session_no, identity_no, since_ms FROM pending ORDER BY no"


@dataclass(frozen=True, slots=True)
class PendingRow:
    """A session that waits for an identity since `since_ms` (UTC); a smaller `no` came first."""

    no: int
    session_no: int
    identity_no: int
    since_ms: int


def remember(tx: Tx, cli: str, session_id: str, identity_no: int, now_ms: int) -> None:
    """A conversation holds this identity: it gets it again when it comes back."""
    tx.run(
        "INSERT INTO remembered (cli, session_id, identity_no, since_ms) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (cli, session_id) DO UPDATE"
        " SET identity_no = excluded.identity_no, since_ms = excluded.since_ms",
        (cli, session_id, identity_no, now_ms),
    )


def forget(tx: Tx, cli: str, session_id: str | None, identity_no: int) -> None:
    """A conversation gave this identity back by itself, or learns that it lost it.

    It does not get it again by itself, nor does another process of it that waits. With None, no
    conversation of the agent CLI does.
    """
    named = (identity_no, cli, session_id)
    tx.run(_FORGET, named)
    tx.run(_LEAVE_ALL, named)


def remembered(tx: Tx, cli: str, session_id: str) -> int | None:
    """The key of the identity that a conversation held last, or None."""
    row = tx.one(
        "SELECT identity_no FROM remembered WHERE cli = ? AND session_id = ?", (cli, session_id)
    )
    return int(row[0]) if row else None


def join(tx: Tx, session_no: int, identity_no: int, now_ms: int) -> None:
    """The session waits for the identity from now on; who waits for it already keeps its place.

    One place for a session: who goes on as another conversation leaves what that one waited for.
    """
    tx.run(_LEAVE_OTHERS, (session_no, identity_no))
    tx.run(
        "INSERT INTO pending (session_no, identity_no, since_ms) VALUES (?, ?, ?)"
        " ON CONFLICT (session_no) DO NOTHING",
        (session_no, identity_no, now_ms),
    )


def leave(tx: Tx, session_no: int) -> None:
    """The session waits for nothing any more."""
    tx.run("DELETE FROM pending WHERE session_no = ?", (session_no,))


def leave_beside(tx: Tx, session_no: int, identity_no: int) -> None:
    """No conversation in the process of this session waits for the identity any more."""
    tx.run(_LEAVE_BESIDE, (identity_no, session_no))


def oldest(tx: Tx, identity_no: int) -> PendingRow | None:
    """Who waits longest for an identity."""
    row = tx.one(_OLDEST, (identity_no,))
    return PendingRow(*row) if row else None


def of_session(tx: Tx, session_no: int) -> PendingRow | None:
    """What a session waits for."""
    row = tx.one(_OF_SESSION, (session_no,))
    return PendingRow(*row) if row else None


def everybody(tx: Tx) -> list[PendingRow]:
    """All who wait, in order."""
    return [PendingRow(*row) for row in tx.all(_ALL)]
