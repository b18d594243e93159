"""One query behind every gate check: a session, what it was granted, and the lease as it is now."""

from typing import Final, NamedTuple

from mbx.core.evidence import Process
from mbx.core.lease import Lease, LeaseState
from mbx.store.database import Row, Tx

_COLUMNS: Final = (
    "SELECT s.no, i.no, i.identity, i.name, i.role, i.description, i.project,"
    " l.state, l.epoch, l.session_no, l.since_ms, l.record_id, l.expires_ms, s.cli, s.session_id,"
    " i.retired_ms IS NOT NULL"
)
_BY_PROCESS: Final = (
    _COLUMNS + ", s.epoch FROM sessions AS s JOIN identities AS i ON i.no = s.identity_no"
    " JOIN leases AS l ON l.identity_no = s.identity_no"
    " WHERE s.pid = ? AND s.start_ticks = ? AND s.boot_id = ? AND s.conversation = ?"
)
_BY_TOKEN: Final = (
    _COLUMNS + ", t.epoch FROM tokens AS t JOIN identities AS i ON i.no = t.identity_no"
    " JOIN leases AS l ON l.identity_no = t.identity_no"
    " LEFT JOIN sessions AS s ON s.no = l.session_no WHERE t.hash = ?"
)


class Binding(NamedTuple):
    """`granted_epoch` is what the session (or token) was given; `lease` is what holds now.

    `cli` and `session_id` name the conversation.
    """

    session_no: int
    identity_no: int
    identity: str
    name: str
    role: str
    description: str
    project: str | None
    lease: Lease
    record_id: str
    expires_ms: int
    granted_epoch: int
    cli: str
    session_id: str
    is_retired: bool = False


def of_process(tx: Tx, process: Process, conversation: str) -> Binding | None:
    """What this session was granted and did not release, or None."""
    key = (process.pid, process.start_ticks, process.boot_id, conversation)
    return _binding(tx.one(_BY_PROCESS, key))


def of_token(tx: Tx, token_hash: bytes) -> Binding | None:
    """What the bearer of this token was granted, or None."""
    return _binding(tx.one(_BY_TOKEN, (token_hash,)))


def _binding(row: Row | None) -> Binding | None:
    if row is None:
        return None
    session_no, identity_no, identity, name, role, description, project = row[:7]
    state, epoch, holder_no, since_ms, record_id, expires_ms = row[7:13]
    cli, session_id, is_retired, granted_epoch = row[13:]
    return Binding(
        session_no,
        identity_no,
        identity,
        name,
        role,
        description,
        project,
        Lease(LeaseState(state), epoch, holder_no, since_ms),
        record_id,
        expires_ms,
        granted_epoch,
        cli or "",
        session_id or "",
        bool(is_retired),
    )
