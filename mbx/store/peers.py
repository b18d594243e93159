"""Rows of paired hosts, and of the identities that live on them as they last told."""

import json
from collections.abc import Sequence
from typing import Final, NamedTuple

from mbx.core.canonical import encode
from mbx.core.limits import RECIPIENTS_MAX
from mbx.core.names import skeleton
from mbx.store.database import Row, Tx
from mbx.store.identities import IdentityRow

_COLUMNS: Final = (
    "SELECT no, key_id, public_key, certificate, label, told_label, addresses, owner_key,"
    " record_id, version, paired_ms, seen_ms, ended_ms, ended_by, told_addresses, own_addresses"
    " FROM peers"
)
_BY_NO: Final = _COLUMNS + " WHERE no = ?"
_BY_KEY: Final = _COLUMNS + " WHERE key_id = ? AND ended_ms IS NULL"
_BY_LABEL: Final = _COLUMNS + " WHERE label = ? AND ended_ms IS NULL"
_CALLED: Final = _COLUMNS + " WHERE label = ? ORDER BY ended_ms IS NOT NULL, no DESC LIMIT 1"
_LATEST: Final = _COLUMNS + " WHERE key_id = ? ORDER BY no DESC LIMIT 1"
_PRESENT: Final = _COLUMNS + " WHERE ended_ms IS NULL ORDER BY no"
_ALL: Final = _COLUMNS + " ORDER BY no"
_IDENTITY: Final = (
    "SELECT i.no, i.identity, i.name, i.role, i.description, i.project, i.retired_ms,"
    " i.last_seen_ms, i.card, i.peer_no FROM identities AS i"
)
_OF_PEER: Final = _IDENTITY + " WHERE i.peer_no = ?1 AND i.peer_no IS NOT NULL AND i.identity = ?2"
# By `+`, the few pairings with one host are looked through, and not all identities of all hosts.
_OF_HOST: Final = (
    _IDENTITY + " JOIN peers AS p ON i.peer_no = +p.no WHERE p.key_id = ?1"
    " AND i.peer_no IS NOT NULL AND i.identity = ?2 ORDER BY i.peer_no"
)
# Names that were told for two ids of one host, between a rename and its swap: the one told last.
_NAMED: Final = (
    _IDENTITY + " JOIN peers AS p ON p.no = i.peer_no WHERE i.name = ?1 AND i.peer_no IS NOT NULL"
    " AND i.retired_ms IS NULL AND p.ended_ms IS NULL AND (?2 IS NULL OR p.label = ?2)"
    " ORDER BY i.peer_no, i.no"
)
_FORWARDED: Final = (
    _IDENTITY + " JOIN peers AS p ON p.no = i.peer_no WHERE i.name = ?1 AND i.peer_no IS NOT NULL"
    " AND i.retired_ms IS NOT NULL AND i.forward_no IS NOT NULL AND p.ended_ms IS NULL"
    " AND (?2 IS NULL OR p.label = ?2) ORDER BY i.peer_no, i.no"
)
_FORMERLY: Final = (
    "SELECT p.label FROM identities AS i JOIN peers AS p ON p.no = i.peer_no WHERE i.name = ?"
    " AND i.peer_no IS NOT NULL AND p.ended_ms IS NOT NULL ORDER BY p.no DESC LIMIT 1"
)
_PRESENT_IDENTITIES: Final = (
    _IDENTITY + " JOIN peers AS p ON p.no = i.peer_no WHERE i.peer_no IS NOT NULL"
    " AND i.retired_ms IS NULL AND p.ended_ms IS NULL AND i.name <> 'owner'"
    " AND (?1 IS NULL OR i.role = ?1) AND (?2 IS NULL OR p.label = ?2)"
    " AND i.name >= ?3 AND (i.name > ?3 OR p.label > ?4) ORDER BY i.name, p.label, i.no LIMIT ?5"
)
_DIRECTORY: Final = "SELECT state, cli, told_ms, reach FROM directory WHERE identity_no = ?"
_TOLD: Final = "SELECT identity_no, entry FROM directory_told WHERE peer_no = ?"


class PeerRow(NamedTuple):
    """One pairing; times are ms UTC. `certificate`: DER. `ended_by`: who ended it, None: nobody.

    `addresses` are our owner's, `told_addresses` the host's own word, `own_addresses` what it was
    last told of ours.
    """

    no: int
    key_id: str
    public_key: bytes
    certificate: bytes
    label: str
    told_label: str
    addresses: tuple[str, ...]
    owner_key: str | None
    record_id: str
    version: int
    paired_ms: int
    seen_ms: int | None
    ended_ms: int | None
    ended_by: str | None
    told_addresses: tuple[str, ...]
    own_addresses: tuple[str, ...]

    def address(self, name: str) -> str:
        """``name@host``, by our label for it."""
        return f"{name}@{self.label}"

    @property
    def dialled_at(self) -> tuple[str, ...]:
        """Where it is dialled, in order: what our owner says comes first."""
        return tuple(dict.fromkeys((*self.addresses, *self.told_addresses)))


class NewPeer(NamedTuple):
    """What a pairing records of the other host; as the columns of `peers`."""

    key_id: str
    public_key: bytes
    certificate: bytes
    label: str
    told_label: str
    addresses: Sequence[str]
    owner_key: str | None
    record_id: str
    version: int


class Told(NamedTuple):
    """What a paired host last told of one of its identities: `state`, `cli`, when (ms UTC).

    `reach`: how its holder is reached, None where it did not say.
    """

    state: str
    cli: str | None
    told_ms: int
    reach: str | None = None


def add(tx: Tx, peer: NewPeer, now_ms: int) -> int:
    """Record a pairing; its key. There is none with this key or label now."""
    return tx.insert(
        "INSERT INTO peers (key_id, public_key, certificate, label, told_label, addresses,"
        " owner_key, record_id, version, paired_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            peer.key_id,
            peer.public_key,
            peer.certificate,
            peer.label,
            peer.told_label,
            encode(list(peer.addresses)),
            peer.owner_key,
            peer.record_id,
            peer.version,
            now_ms,
        ),
    )


def change(
    tx: Tx, no: int, *, label: str, addresses: Sequence[str], record_id: str, version: int
) -> None:
    """Replace what the owner decides of a peer, by a newer record."""
    tx.run(
        "UPDATE peers SET label = ?, addresses = ?, record_id = ?, version = ? WHERE no = ?",
        (label, encode(list(addresses)), record_id, version, no),
    )


def learn_address(tx: Tx, no: int, addresses: Sequence[str]) -> None:
    """Replace the addresses by what the peer itself told over its link: no right hangs on them."""
    tx.run("UPDATE peers SET addresses = ? WHERE no = ?", (encode(list(addresses)), no))


def save_told_addresses(tx: Tx, no: int, addresses: Sequence[str]) -> None:
    """Replace where the peer itself says that it can be dialled."""
    tx.run("UPDATE peers SET told_addresses = ? WHERE no = ?", (encode(list(addresses)), no))


def save_own_addresses(tx: Tx, no: int, addresses: Sequence[str]) -> None:
    """Remember what the peer is told of where we can be dialled."""
    tx.run("UPDATE peers SET own_addresses = ? WHERE no = ?", (encode(list(addresses)), no))


def seen(tx: Tx, no: int, now_ms: int) -> None:
    """A link to the peer stands, or stood until now."""
    tx.run("UPDATE peers SET seen_ms = ? WHERE no = ?", (now_ms, no))


def end(tx: Tx, no: int, by: str, now_ms: int) -> None:
    """The pairing is over, by the word of `by` (us, peer)."""
    tx.run(
        "UPDATE peers SET ended_ms = ?, ended_by = ? WHERE no = ? AND ended_ms IS NULL",
        (now_ms, by, no),
    )


def remove(tx: Tx, no: int, record_id: str, version: int, now_ms: int) -> None:
    """The pairing is over by a record of our owner's, also if the peer ended it before."""
    tx.run(
        "UPDATE peers SET ended_ms = coalesce(ended_ms, ?), ended_by = 'us', record_id = ?,"
        " version = ? WHERE no = ?",
        (now_ms, record_id, version, no),
    )


def last_version(tx: Tx, key_id: str) -> int:
    """The version of the last record about the host of this key, 0 if there was none."""
    row = tx.one("SELECT max(version) FROM peers WHERE key_id = ?", (key_id,))
    return int(row[0] or 0) if row else 0


def by_no(tx: Tx, no: int) -> PeerRow:
    """The pairing with this key; it exists."""
    row = tx.one(_BY_NO, (no,))
    if row is None:
        raise LookupError(f"no peer {no}")
    return _row(row)


def by_key(tx: Tx, key_id: str) -> PeerRow | None:
    """The pairing that stands with the host of this key."""
    row = tx.one(_BY_KEY, (key_id,))
    return _row(row) if row else None


def by_label(tx: Tx, label: str) -> PeerRow | None:
    """The pairing that stands with the host that we call `label`."""
    row = tx.one(_BY_LABEL, (label,))
    return _row(row) if row else None


def called(tx: Tx, label: str) -> PeerRow | None:
    """The pairing with the host that we call `label`, else the last one that was called so."""
    row = tx.one(_CALLED, (label,))
    return _row(row) if row else None


def latest(tx: Tx, key_id: str) -> PeerRow | None:
    """The last pairing with the host of this key, whether it stands or not."""
    row = tx.one(_LATEST, (key_id,))
    return _row(row) if row else None


def is_latest(tx: Tx, peer: PeerRow) -> bool:
    """Whether no other pairing with the same host followed this one."""
    last = latest(tx, peer.key_id)
    return last is not None and last.no == peer.no


def present(tx: Tx) -> list[PeerRow]:
    """The pairings that stand, in the order they were made."""
    return [_row(row) for row in tx.all(_PRESENT)]


def everything(tx: Tx) -> list[PeerRow]:
    """Every pairing that ever was."""
    return [_row(row) for row in tx.all(_ALL)]


# -- identities of paired hosts --------------------------------------------------------------------


def identity_of(tx: Tx, peer_no: int, identity: str) -> IdentityRow | None:
    """The identity with this id on that host."""
    row = tx.one(_OF_PEER, (peer_no, identity))
    return IdentityRow(*row) if row else None


def identities_of_host(tx: Tx, key_id: str, identity: str) -> list[IdentityRow]:
    """The identity with this id as each pairing with the host of this key has known it."""
    return [IdentityRow(*row) for row in tx.all(_OF_HOST, (key_id, identity))]


def count_of(tx: Tx, peer_no: int) -> int:
    """How many identities of a paired host were ever told of or wrote."""
    row = tx.one("SELECT count(*) FROM identities WHERE peer_no = ?", (peer_no,))
    return int(row[0]) if row else 0


def named(tx: Tx, name: str, label: str | None) -> list[IdentityRow]:
    """The identities of this name on paired hosts, or on the one we call `label`."""
    rows = [IdentityRow(*row) for row in tx.all(_NAMED, (name, label))]
    return list({row.peer_no: row for row in rows}.values())


def forwarded(tx: Tx, name: str, label: str | None) -> list[IdentityRow]:
    """As `named`, those that are retired and whose mail somebody else has there."""
    rows = [IdentityRow(*row) for row in tx.all(_FORWARDED, (name, label))]
    return list({row.peer_no: row for row in rows}.values())


def is_retired_on(tx: Tx, name: str, peer_no: int) -> bool:
    """Whether a paired host has told of an identity of this name that it is retired."""
    found = tx.one(
        "SELECT 1 FROM identities WHERE peer_no = ? AND name = ? AND retired_ms IS NOT NULL",
        (peer_no, name),
    )
    return found is not None


PAGE_ROWS: Final = RECIPIENTS_MAX + 2
"""So many identities of paired hosts are read at a time: more than may be addressed."""


def identities_present(
    tx: Tx, role: str | None = None, label: str | None = None, after: tuple[str, str] = ("", "")
) -> list[IdentityRow]:
    """Up to `PAGE_ROWS` identities of paired hosts by name and host, those behind `after` (both).

    Those with a role, and those of the host that we call `label`.
    """
    found = tx.all(_PRESENT_IDENTITIES, (role, label, *after, PAGE_ROWS))
    return [IdentityRow(*row) for row in found]


def formerly_on(tx: Tx, name: str) -> str | None:
    """The label of a host, not paired any more, on which an identity of this name lived."""
    row = tx.one(_FORMERLY, (name,))
    return str(row[0]) if row else None


def save_identity(
    tx: Tx,
    peer_no: int,
    identity: str,
    *,
    name: str,
    role: str,
    description: str,
    retired: bool,
    now_ms: int,
) -> int:
    """Replace what a paired host says of one of its identities; the key of its row."""
    known = identity_of(tx, peer_no, identity)
    if known is None:
        return tx.insert(
            "INSERT INTO identities (peer_no, identity, name, skeleton, role, description,"
            " created_ms, retired_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                peer_no,
                identity,
                name,
                skeleton(name),
                role,
                description,
                now_ms,
                now_ms if retired else None,
            ),
        )
    retired_ms = (known.retired_ms or now_ms) if retired else None
    told = (name, role, description, retired_ms)
    if (known.name, known.role, known.description, known.retired_ms) == told:
        return known.no
    tx.run(
        "UPDATE identities SET name = ?, skeleton = ?, role = ?, description = ?, retired_ms = ?"
        " WHERE no = ?",
        (name, skeleton(name), role, description, retired_ms, known.no),
    )
    return known.no


def save_told(tx: Tx, identity_no: int, told: Told) -> None:
    """Replace what changes often of an identity of a paired host."""
    tx.run(
        "INSERT INTO directory (identity_no, state, cli, told_ms, reach) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (identity_no) DO UPDATE SET state = excluded.state, cli = excluded.cli,"
        " told_ms = excluded.told_ms, reach = excluded.reach",
        (identity_no, *told),
    )


def told(tx: Tx, identity_no: int) -> Told | None:
    """What the host of an identity last told of it."""
    row = tx.one(_DIRECTORY, (identity_no,))
    return Told(*row) if row else None


def was_told(tx: Tx, peer_no: int) -> dict[int, bytes]:
    """Key of each identity of ours that a paired host was told of -> 16 bytes of the entry."""
    return {row[0]: bytes(row[1]) for row in tx.all(_TOLD, (peer_no,))}


def save_was_told(tx: Tx, peer_no: int, identity_no: int, entry: bytes) -> None:
    """Remember what a paired host is told of an identity of ours."""
    tx.run(
        "INSERT INTO directory_told (peer_no, identity_no, entry) VALUES (?, ?, ?)"
        " ON CONFLICT (peer_no, identity_no) DO UPDATE SET entry = excluded.entry",
        (peer_no, identity_no, entry),
    )


def _row(row: Row) -> PeerRow:
    addresses, *others = (tuple(json.loads(row[at])) for at in (6, -2, -1))
    return PeerRow(*(*row[:6], addresses, *row[7:-2], *others))
