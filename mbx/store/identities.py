"""Rows of identities: named mailboxes with an immutable id."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from mbx.core.limits import RECIPIENTS_MAX
from mbx.core.names import skeleton
from mbx.store.database import Row, Tx

_COLUMNS: Final = (
    "SELECT no, identity, name, role, description, project, retired_ms, last_seen_ms, card, peer_no"
    " FROM identities"
)
_BY_NAME: Final = _COLUMNS + " WHERE name = ? AND peer_no IS NULL"
_BY_NO: Final = _COLUMNS + " WHERE no = ?"
_BY_ID: Final = _COLUMNS + " WHERE identity = ? AND peer_no IS NULL"
_BY_SKELETON: Final = _COLUMNS + " WHERE skeleton = ? AND peer_no IS NULL"
_AFTER: Final = _COLUMNS + " WHERE peer_no IS NULL AND name > ? AND name <> 'owner' ORDER BY name"


class IdentityRow(NamedTuple):
    """One identity; times are ms UTC. `peer_no`: the paired host it lives on, None for this one."""

    no: int
    identity: str
    name: str
    role: str
    description: str
    project: str | None
    retired_ms: int | None
    last_seen_ms: int | None
    card: str | None = None
    peer_no: int | None = None


def create(
    tx: Tx,
    *,
    identity: str,
    name: str,
    role: str,
    description: str,
    project: str | None,
    now_ms: int,
) -> IdentityRow:
    """A new identity with an empty mailbox. The caller has checked name and look-alikes."""
    no = tx.insert(
        "INSERT INTO identities (identity, name, skeleton, role, description, project, created_ms)"
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        (identity, name, skeleton(name), role, description, project, now_ms),
    )
    tx.run("INSERT INTO mailboxes (identity_no, unread) VALUES (?, 0)", (no,))
    return IdentityRow(no, identity, name, role, description, project, None, None)


def by_name(tx: Tx, name: str) -> IdentityRow | None:
    """The identity of this host that is called exactly `name`."""
    return _row(tx.one(_BY_NAME, (name,)))


def by_no(tx: Tx, no: int) -> IdentityRow:
    """The identity with this key; it exists."""
    row = _row(tx.one(_BY_NO, (no,)))
    if row is None:
        raise LookupError(f"no identity {no}")
    return row


def by_identity(tx: Tx, identity: str) -> IdentityRow | None:
    """The identity of this host with this immutable id."""
    return _row(tx.one(_BY_ID, (identity,)))


def look_alike(tx: Tx, name: str) -> IdentityRow | None:
    """An identity of this host whose name folds to the same skeleton as `name`."""
    return _row(tx.one(_BY_SKELETON, (skeleton(name),)))


def everyone(tx: Tx, after: str = "") -> list[IdentityRow]:
    """All identities of this host by name, those after the name `after`."""
    return [IdentityRow(*row) for row in tx.all(_AFTER, (after,))]


def set_facts(tx: Tx, no: int, *, role: str, description: str, card: str | None) -> None:
    """Replace what an identity says of itself."""
    tx.run(
        "UPDATE identities SET role = ?, description = ?, card = ? WHERE no = ?",
        (role, description, card, no),
    )


def rename(tx: Tx, no: int, name: str) -> None:
    """Call an identity `name`. Mail, threads and rights hang on its key and stay."""
    tx.run("UPDATE identities SET name = ?, skeleton = ? WHERE no = ?", (name, skeleton(name), no))


def retire(tx: Tx, no: int, now_ms: int) -> None:
    """End an identity for good: nobody waits for it or resumes it; its name stays taken.

    Its mail stays. A lease that is held ends by its own way, before or after.
    """
    tx.run("UPDATE identities SET retired_ms = ? WHERE no = ? AND retired_ms IS NULL", (now_ms, no))
    tx.run("DELETE FROM pending WHERE identity_no = ?", (no,))
    tx.run("DELETE FROM remembered WHERE identity_no = ?", (no,))


def names(tx: Tx) -> list[str]:
    """All names of this host, for suggestions."""
    rows = tx.all(
        "SELECT name FROM identities WHERE peer_no IS NULL AND retired_ms IS NULL"
        " AND name <> 'owner' LIMIT ?",
        (RECIPIENTS_MAX,),
    )
    return [row[0] for row in rows]


def unread(tx: Tx, no: int) -> int:
    """Deliveries of this mailbox before the stage *read*: the one number for every face."""
    row = tx.one("SELECT unread FROM mailboxes WHERE identity_no = ?", (no,))
    return int(row[0]) if row else 0


def add_unread(tx: Tx, no: int, count: int) -> None:
    """Move the unread count of a mailbox by `count`, in the transaction that changes the stages."""
    tx.run("UPDATE mailboxes SET unread = unread + ? WHERE identity_no = ?", (count, no))


def save_last_seen(tx: Tx, seen: Mapping[int, int], now_ms: int) -> None:
    """Remember when holders were last heard of: key of the identity -> ms UTC.

    What was heard last counts, not the greater number: the clock may have been set back. A time
    that lies ahead of the clock since then becomes now.
    """
    for no, seen_ms in seen.items():
        tx.run("UPDATE identities SET last_seen_ms = ? WHERE no = ?", (seen_ms, no))
    tx.run("UPDATE identities SET last_seen_ms = ?1 WHERE last_seen_ms > ?1", (now_ms,))


def _row(row: Row | None) -> IdentityRow | None:
    return IdentityRow(*row) if row else None
