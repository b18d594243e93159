"""Rows of sessions: which process and conversation was granted what."""

from dataclasses import dataclass
from typing import Final

from mbx.core.evidence import Process, own_id
from mbx.store.database import Row, Tx

_COLUMNS: Final = (
    "SELECT no, cli, session_id, conversation, pid, start_ticks, boot_id, identity_no, epoch"
    " FROM sessions"
)
_BY_PROCESS: Final = (
    _COLUMNS + " WHERE pid = ? AND start_ticks = ? AND boot_id = ? AND conversation = ?"
)
_BY_NO: Final = _COLUMNS + " WHERE no = ?"
_CALLED: Final = (
    _COLUMNS + " WHERE cli = ?1 AND (session_id = ?2"
    " OR instr(?2, pid || '-' || start_ticks) = 1) ORDER BY no DESC LIMIT 64"
)
_BOUND: Final = _COLUMNS + " WHERE identity_no IS NOT NULL"


@dataclass(frozen=True, slots=True)
class SessionRow:
    """One session; `identity_no` and `epoch`: what it was granted and did not release."""

    no: int
    cli: str
    session_id: str
    conversation: str
    process: Process
    identity_no: int | None
    epoch: int | None

    @property
    def own_id(self) -> str:
        """The label that no session of another process can have."""
        return own_id(self.process, self.conversation)

    @property
    def called(self) -> str:
        """What its agent CLI calls it, as far as is known: its label may be its own id."""
        return self.conversation or self.session_id


def find(tx: Tx, process: Process, conversation: str) -> SessionRow | None:
    """The session of this process and conversation."""
    return _row(
        tx.one(_BY_PROCESS, (process.pid, process.start_ticks, process.boot_id, conversation))
    )


def is_label_taken(tx: Tx, cli: str, session_id: str, *, besides_no: int = 0) -> bool:
    """Whether another session than `besides_no` goes by this name and holds something, or did."""
    row = tx.one(
        "SELECT 1 FROM sessions"
        " WHERE cli = ? AND session_id = ? AND identity_no IS NOT NULL AND no <> ?",
        (cli, session_id, besides_no),
    )
    return row is not None


def relabel(tx: Tx, no: int, session_id: str) -> None:
    """The session goes by another name from now on."""
    tx.run("UPDATE sessions SET session_id = ? WHERE no = ?", (session_id, no))


def called(tx: Tx, cli: str, session_id: str) -> list[SessionRow]:
    """The sessions that went by this name, newest first: one of several processes may live.

    A session's own id names it too, whatever its label.
    """
    found = [row for raw in tx.all(_CALLED, (cli, session_id)) if (row := _row(raw)) is not None]
    return [row for row in found if session_id in (row.session_id, row.own_id)]


def by_no(tx: Tx, no: int) -> SessionRow | None:
    """The session with this key."""
    return _row(tx.one(_BY_NO, (no,)))


def create(
    tx: Tx, *, cli: str, session_id: str, conversation: str, process: Process, now_ms: int
) -> SessionRow:
    """A session seen for the first time, without identity."""
    no = tx.insert(
        "INSERT INTO sessions"
        " (cli, session_id, conversation, pid, start_ticks, boot_id, created_ms)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            cli,
            session_id,
            conversation,
            process.pid,
            process.start_ticks,
            process.boot_id,
            now_ms,
        ),
    )
    return SessionRow(no, cli, session_id, conversation, process, None, None)


def bind(tx: Tx, no: int, identity_no: int, epoch: int) -> None:
    """Record the grant of `identity_no` at `epoch` to the session."""
    tx.run("UPDATE sessions SET identity_no = ?, epoch = ? WHERE no = ?", (identity_no, epoch, no))


def unbind(tx: Tx, no: int) -> None:
    """Forget what the session was granted: it released it, or its process has ended."""
    tx.run("UPDATE sessions SET identity_no = NULL, epoch = NULL WHERE no = ?", (no,))


def bound(tx: Tx) -> list[SessionRow]:
    """Every session that was granted something it did not release (also one displaced since)."""
    return [row for raw in tx.all(_BOUND) if (row := _row(raw)) is not None]


def _row(row: Row | None) -> SessionRow | None:
    if row is None:
        return None
    no, cli, session_id, conversation, pid, start_ticks, boot_id, identity_no, epoch = row
    process = Process(pid, start_ticks, boot_id)
    return SessionRow(no, cli, session_id, conversation, process, identity_no, epoch)


def forget_unused(tx: Tx) -> None:
    """Remove the rows of sessions that hold nothing and that no lease tells of."""
    tx.run(
        "DELETE FROM sessions WHERE identity_no IS NULL"
        " AND no NOT IN (SELECT session_no FROM leases WHERE session_no IS NOT NULL)"
        " AND no NOT IN (SELECT session_no FROM pending)"
    )
