"""Rows of leases: one for each identity, and the tokens of its epochs."""

from typing import Final, NamedTuple

from mbx.core.lease import Lease, LeaseState
from mbx.core.limits import RECIPIENTS_MAX
from mbx.core.record import Sealed
from mbx.store.database import Row, Tx
from mbx.store.identities import IdentityRow

_COLUMNS: Final = (
    "SELECT identity_no, state, epoch, session_no, since_ms, record_id, expires_ms FROM leases"
)
_BY_IDENTITY: Final = _COLUMNS + " WHERE identity_no = ?"
_WITH_IDENTITY: Final = (
    "SELECT i.no, i.identity, i.name, i.role, i.description, i.project, i.retired_ms,"
    " i.last_seen_ms, i.card, i.peer_no, l.identity_no, l.state, l.epoch, l.session_no, l.since_ms,"
    " l.record_id, l.expires_ms FROM identities AS i JOIN leases AS l ON l.identity_no = i.no"
)
_BY_NAME: Final = _WITH_IDENTITY + " WHERE i.name = ? AND i.peer_no IS NULL"
_PRESENT: Final = (
    _WITH_IDENTITY + " WHERE i.retired_ms IS NULL AND i.name <> 'owner' ORDER BY i.name LIMIT ?"
)
_OF_ROLE: Final = (
    _WITH_IDENTITY + " WHERE i.retired_ms IS NULL AND i.name <> 'owner' AND i.role = ?"
    " ORDER BY i.name LIMIT ?"
)
_HELD: Final = _COLUMNS + " WHERE state = 1"
_ALL: Final = _COLUMNS + " ORDER BY identity_no"


class LeaseRow(NamedTuple):
    """The lease of `identity_no`; `record_id`, `expires_ms`: of the newest signed record."""

    identity_no: int
    lease: Lease
    record_id: str | None
    expires_ms: int | None


def create(tx: Tx, identity_no: int, now_ms: int) -> LeaseRow:
    """The lease of a new identity: free, epoch 0."""
    tx.run(
        "INSERT INTO leases (identity_no, epoch, state, since_ms) VALUES (?, 0, 0, ?)",
        (identity_no, now_ms),
    )
    return LeaseRow(identity_no, Lease(LeaseState.FREE, 0, None, now_ms), None, None)


def find(tx: Tx, identity_no: int) -> LeaseRow:
    """The lease of an identity; it exists."""
    row = tx.one(_BY_IDENTITY, (identity_no,))
    if row is None:
        raise LookupError(f"no lease for identity {identity_no}")
    return _row(row)


def of_name(tx: Tx, name: str) -> tuple[IdentityRow, LeaseRow] | None:
    """The identity called `name` and its lease: what a send asks of each recipient."""
    row = tx.one(_BY_NAME, (name,))
    return _pair(row) if row else None


def of_everyone(tx: Tx) -> list[tuple[IdentityRow, LeaseRow]]:
    """Every identity that is not retired, by name; more than may be addressed when too many."""
    return [_pair(row) for row in tx.all(_PRESENT, (RECIPIENTS_MAX + 2,))]


def of_role(tx: Tx, role: str) -> list[tuple[IdentityRow, LeaseRow]]:
    """As `of_everyone`, those with a role."""
    return [_pair(row) for row in tx.all(_OF_ROLE, (role, RECIPIENTS_MAX + 2))]


def held(tx: Tx) -> list[LeaseRow]:
    """Every held lease."""
    return [_row(row) for row in tx.all(_HELD)]


def everything(tx: Tx) -> list[LeaseRow]:
    """Every lease."""
    return [_row(row) for row in tx.all(_ALL)]


def save(tx: Tx, identity_no: int, before: Lease, after: Lease) -> None:
    """Replace `before` by `after`, if the row is still at `before`: fencing in the store."""
    changed = tx.run(
        "UPDATE leases SET epoch = ?, state = ?, session_no = ?, since_ms = ?"
        " WHERE identity_no = ? AND epoch = ? AND state = ?",
        (
            after.epoch,
            int(after.state),
            after.session_no,
            after.since_ms,
            identity_no,
            before.epoch,
            int(before.state),
        ),
    )
    if changed != 1:
        raise LookupError(f"the lease of identity {identity_no} is not at epoch {before.epoch}")


def save_grant(
    tx: Tx, identity_no: int, before: Lease, after: Lease, record: Sealed, expires_ms: int
) -> None:
    """Replace `before` by the new grant `after` together with its signed record."""
    changed = tx.run(
        "UPDATE leases SET epoch = ?, state = ?, session_no = ?, since_ms = ?,"
        " record_id = ?, payload = ?, signature = ?, expires_ms = ?"
        " WHERE identity_no = ? AND epoch = ? AND state = ?",
        (
            after.epoch,
            int(after.state),
            after.session_no,
            after.since_ms,
            record.id,
            record.payload,
            record.signature,
            expires_ms,
            identity_no,
            before.epoch,
            int(before.state),
        ),
    )
    if changed != 1:
        raise LookupError(f"the lease of identity {identity_no} is not at epoch {before.epoch}")


def save_renewal(tx: Tx, identity_no: int, epoch: int, record: Sealed, expires_ms: int) -> None:
    """Store a newer signed record of the same epoch."""
    tx.run(
        "UPDATE leases SET record_id = ?, payload = ?, signature = ?, expires_ms = ?"
        " WHERE identity_no = ? AND epoch = ?",
        (
            record.id,
            record.payload,
            record.signature,
            expires_ms,
            identity_no,
            epoch,
        ),
    )


def add_token(tx: Tx, identity_no: int, epoch: int, token_hash: bytes) -> None:
    """Let the bearer of the token with this SHA-256 hash prove `epoch`."""
    tx.run(
        "INSERT OR IGNORE INTO tokens (hash, identity_no, epoch) VALUES (?, ?, ?)",
        (token_hash, identity_no, epoch),
    )


def find_token(tx: Tx, token_hash: bytes) -> tuple[int, int] | None:
    """(identity_no, epoch) of a token."""
    row = tx.one("SELECT identity_no, epoch FROM tokens WHERE hash = ?", (token_hash,))
    return (row[0], row[1]) if row else None


def drop_tokens(tx: Tx, identity_no: int, below_epoch: int) -> None:
    """Forget the tokens of epochs before `below_epoch`."""
    tx.run("DELETE FROM tokens WHERE identity_no = ? AND epoch < ?", (identity_no, below_epoch))


def _pair(row: Row) -> tuple[IdentityRow, LeaseRow]:
    return IdentityRow(*row[:10]), _row(row[10:])


def _row(row: Row) -> LeaseRow:
    identity_no, state, epoch, session_no, since_ms, record_id, expires_ms = row
    lease = Lease(LeaseState(state), epoch, session_no, since_ms)
    return LeaseRow(identity_no, lease, record_id, expires_ms)
