"""How the store is doing, for `daemon.health` and `diagnostics.show`: counts, ages, chains.

Everything here is bounded in rows, because everybody waits for it. No subject and no body is read.
"""

from typing import Final, NamedTuple

from mbx.core.errors import MbxError
from mbx.store import sessions
from mbx.store.database import Tx, refusal_of

COUNTED_MAX: Final = 1_000
"""Mail of one mailbox is counted up to here; more is told as this many."""

QUICK_CHECK_MAX_BYTES: Final = 64 * 1024 * 1024
"""A larger store is not checked while it serves: 27 MB took 37 ms (measured)."""

_FAULTS_MAX: Final = 3
_FAULT_MAX_CHARS: Final = 200
_NEWEST_LOOKED_AT: Final = 100

_SIZES: Final = (
    "SELECT (SELECT page_size FROM pragma_page_size), (SELECT page_count FROM pragma_page_count),"
    " (SELECT freelist_count FROM pragma_freelist_count), sqlite_version()"
)
# A clock that was turned back leaves newer rows behind older ones.
_NEWEST: Final = (
    "SELECT max(at_ms) FROM (SELECT max(at_ms) AS at_ms FROM"
    " (SELECT at_ms FROM audit ORDER BY no DESC LIMIT ?1) UNION ALL SELECT max(accepted_ms) FROM"
    " (SELECT accepted_ms FROM messages ORDER BY no DESC LIMIT ?1))"
)
_STRANDED: Final = (
    "SELECT i.no, i.name, l.state, l.since_ms, s.cli, s.session_id, i.last_seen_ms, i.retired_ms"
    " FROM identities AS i JOIN leases AS l ON l.identity_no = i.no"
    " LEFT JOIN sessions AS s ON s.no = l.session_no"
    " WHERE l.state <> 1 AND i.name <> 'owner'"
    " AND EXISTS (SELECT 1 FROM deliveries INDEXED BY deliveries_open"
    " WHERE recipient_no = i.no AND stage < 5) ORDER BY i.name LIMIT ?"
)
_COUNT_OPEN: Final = (
    "SELECT count(*) FROM (SELECT 1 FROM deliveries INDEXED BY deliveries_open"
    " WHERE recipient_no = ? AND stage < 5 LIMIT ?)"
)
_QUEUE: Final = (
    "SELECT m.id, d.stage, d.stage_ms, m.accepted_ms"
    " FROM deliveries AS d INDEXED BY deliveries_open JOIN messages AS m ON m.no = d.message_no"
    " WHERE d.recipient_no = ? AND d.stage < 5 ORDER BY d.message_no LIMIT ?"
)
_AWAY: Final = (
    "SELECT m.id, d.stage, d.stage_ms, m.accepted_ms"
    " FROM deliveries AS d INDEXED BY deliveries_open JOIN messages AS m ON m.no = d.message_no"
    " WHERE d.recipient_no = ? AND d.stage < 5 AND d.error IS NULL ORDER BY d.message_no LIMIT ?"
)
_COUNT_AWAY: Final = (
    "SELECT count(*) FROM (SELECT 1 FROM deliveries INDEXED BY deliveries_open"
    " WHERE recipient_no = ? AND stage < 5 AND error IS NULL LIMIT ?)"
)
_RECEIPTS: Final = (
    "SELECT m.id, d.stage, d.stage_ms, d.outcome, d.epoch FROM"
    " (SELECT message_no, stage, stage_ms, outcome, epoch FROM deliveries"
    " WHERE recipient_no = ?1 ORDER BY message_no DESC LIMIT ?2) AS d"
    " JOIN messages AS m ON m.no = d.message_no"
    " WHERE d.stage >= 4 ORDER BY d.message_no DESC LIMIT ?3"
)
_WAITING: Final = (
    "SELECT s.cli, CASE WHEN s.conversation = '' THEN s.pid || '-' || s.start_ticks"
    " ELSE s.session_id END, i.name, p.since_ms FROM pending AS p"
    " JOIN sessions AS s ON s.no = p.session_no JOIN identities AS i ON i.no = p.identity_no"
    " ORDER BY p.no LIMIT ?"
)
_WAITS_FOR: Final = (
    "SELECT i.name FROM pending AS p JOIN identities AS i ON i.no = p.identity_no"
    " WHERE p.session_no = ?"
)
_REMEMBERED: Final = (
    "SELECT i.name FROM remembered AS r JOIN identities AS i ON i.no = r.identity_no"
    " WHERE r.cli = ? AND r.session_id = ?"
)


class Sizes(NamedTuple):
    """The store file in bytes, what of it is free, and which SQLite keeps it."""

    store_bytes: int
    free_bytes: int
    sqlite_version: str


class Stranded(NamedTuple):
    """Unacked mail of an identity nobody holds; `unacked` stops at `COUNTED_MAX`; times ms UTC."""

    identity_no: int
    name: str
    state: int
    since_ms: int
    cli: str | None
    session_id: str | None
    last_seen_ms: int | None
    retired_ms: int | None
    unacked: int
    oldest_ms: int


class Waiting(NamedTuple):
    """A session that waits for an identity somebody else holds."""

    cli: str
    session_id: str
    name: str
    since_ms: int


class Queued(NamedTuple):
    """One unacked message of a mailbox, without its words."""

    id: str
    stage: int
    stage_ms: int
    accepted_ms: int


class Receipt(NamedTuple):
    """One message that a mailbox has read or acked, without its words."""

    id: str
    stage: int
    stage_ms: int
    outcome: str | None
    epoch: int | None


class Conversation(NamedTuple):
    """What the store knows of a cli and session id: its session, and what that was granted.

    `waits_for` and `remembered` are names of identities.
    """

    session_no: int | None
    identity_no: int | None
    epoch: int | None
    waits_for: str | None
    remembered: str | None

    @property
    def is_known(self) -> bool:
        """Whether the store has heard of it at all."""
        return self.session_no is not None or self.remembered is not None


def sizes(tx: Tx) -> Sizes:
    """The size of the store."""
    row = tx.one(_SIZES)
    assert row is not None
    page_bytes, pages, free_pages, sqlite_version = row
    return Sizes(page_bytes * pages, page_bytes * free_pages, sqlite_version)


def newest_ms(tx: Tx) -> int | None:
    """The latest time (ms UTC) that one of the newest rows of mail and audit log bears."""
    row = tx.one(_NEWEST, (_NEWEST_LOOKED_AT,))
    return None if row is None or row[0] is None else int(row[0])


def quick_check(tx: Tx, store_bytes: int) -> list[str] | None:
    """What `PRAGMA quick_check` finds wrong, at most three lines; None for too large a store."""
    if store_bytes > QUICK_CHECK_MAX_BYTES:
        return None
    try:
        rows = tx.all("SELECT quick_check FROM pragma_quick_check(?)", (_FAULTS_MAX,))
    except Exception as error:
        if isinstance(refusal := refusal_of(error), MbxError):
            return [refusal.message[:_FAULT_MAX_CHARS]]
        raise
    # One row may hold many lines, of which the first only names the database.
    lines = [line.strip(" *") for row in rows for line in str(row[0]).splitlines()]
    faults = [line for line in lines if line not in ("ok", "in database main")]
    return [line[:_FAULT_MAX_CHARS] for line in faults[:_FAULTS_MAX]]


def stranded(tx: Tx, rows: int) -> list[Stranded]:
    """Mail that nobody reads now: unacked, of identities that no session holds."""
    found = []
    for row in tx.all(_STRANDED, (rows,)):
        oldest = queue(tx, row[0], 1)[0]
        no, name, state, since_ms, cli, session_id, seen_ms, retired_ms = row
        who = (no, name, state, since_ms, cli, session_id, seen_ms, retired_ms)
        found.append(Stranded(*who, open_count(tx, no), oldest.accepted_ms))
    return found


def open_count(tx: Tx, identity_no: int) -> int:
    """How much unacked mail a mailbox has, up to `COUNTED_MAX`."""
    row = tx.one(_COUNT_OPEN, (identity_no, COUNTED_MAX))
    return int(row[0]) if row else 0


def waiting(tx: Tx, rows: int) -> list[Waiting]:
    """The sessions that wait for an identity, in the order in which they are served."""
    return [Waiting(*row) for row in tx.all(_WAITING, (rows,))]


def queue(tx: Tx, identity_no: int, rows: int) -> list[Queued]:
    """The oldest unacked mail of a mailbox."""
    return [Queued(*row) for row in tx.all(_QUEUE, (identity_no, rows))]


def away(tx: Tx, identity_no: int, rows: int) -> list[Queued]:
    """The oldest mail from here to a mailbox of a paired host that is not acked there."""
    return [Queued(*row) for row in tx.all(_AWAY, (identity_no, rows))]


def away_count(tx: Tx, identity_no: int) -> int:
    """How much of that there is, up to `COUNTED_MAX`; what came back does not count."""
    row = tx.one(_COUNT_AWAY, (identity_no, COUNTED_MAX))
    return int(row[0]) if row else 0


def receipts(tx: Tx, identity_no: int, rows: int) -> list[Receipt]:
    """What a mailbox has read or acked of its newest `COUNTED_MAX` messages, newest first."""
    return [Receipt(*row) for row in tx.all(_RECEIPTS, (identity_no, COUNTED_MAX, rows))]


def conversation(tx: Tx, cli: str, session_id: str) -> Conversation:
    """What is known of a conversation; of several processes, the one that holds an identity.

    A session's own id names it too, whatever its label.
    """
    called = sorted(sessions.called(tx, cli, session_id), key=lambda one: one.identity_no is None)
    one = called[0] if called else None
    waits = tx.one(_WAITS_FOR, (one.no if one else None,))
    remembered = tx.one(_REMEMBERED, (cli, session_id))
    return Conversation(
        one.no if one else None,
        one.identity_no if one else None,
        one.epoch if one else None,
        waits[0] if waits else None,
        remembered[0] if remembered else None,
    )
