"""Rows of the owner's keys and records: what was signed, what it answered, the chain's head."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from mbx.core.canonical import CanonicalError, encode, parse
from mbx.core.chains import Link, OwnerKey
from mbx.core.directive import FORWARD
from mbx.core.limits import CLOCK_KEPT_MS, RECORD_MAX_BYTES
from mbx.core.record import Record, Sealed
from mbx.store.database import Tx

_COLUMNS: Final = (
    "SELECT no, kind, record_id, version, payload, signatures, applied_ms, answer, acceptance,"
    " acceptance_signature FROM owner_records"
)
_BY_ID: Final = _COLUMNS + " WHERE record_id = ?"
# As bytes: a text that is no UTF-8 any more must be found out as damage, not end the reader.
_CHAIN: Final = (
    "SELECT version, CAST(kind AS BLOB), CAST(payload AS BLOB), CAST(signatures AS BLOB),"
    " applied_ms FROM owner_records WHERE version IS NOT NULL ORDER BY no"
)
_FOLLOWED: Final = (
    "SELECT chain_version, CAST(kind AS BLOB), CAST(payload AS BLOB), CAST(signatures AS BLOB),"
    " applied_ms FROM owner_records WHERE chain = ? AND chain_version IS NOT NULL ORDER BY no"
)
_ALL: Final = _COLUMNS + " ORDER BY no"
_KEYS: Final = (
    "SELECT CAST(key_id AS BLOB), public_key, until_version FROM owner_keys ORDER BY no DESC"
)
# A walk over what the owner ever signed: few records, and only where a forward is signed.
_ROTATIONS: Final = (
    "SELECT CAST(payload AS BLOB), CAST(signatures AS BLOB) FROM owner_records"
    " WHERE kind = 'rotate' ORDER BY no DESC"
)
_DIRECTIVES: Final = (
    "SELECT record_id, CAST(payload AS BLOB) FROM owner_records WHERE kind = 'directive'"
    " ORDER BY no DESC"
)
_SIGNATURES_MAX_BYTES: Final = 4_096
_CLOCK: Final = "clock_high_ms"
_KEEP_CLOCK: Final = (
    "UPDATE counters SET value = ?1 WHERE name = ?2 AND value < ?1 - ?3"
    " AND EXISTS (SELECT 1 FROM owner_keys)"
)


class OwnerRecordRow(NamedTuple):
    """One applied record of the owner's, and the host's signed word on it."""

    no: int
    kind: str
    record_id: str
    version: int | None
    payload: str
    signatures: str
    applied_ms: int
    answer: str
    acceptance: str
    acceptance_signature: bytes

    def record(self) -> Record:
        """The record as it was signed; without signatures where the row was damaged."""
        return Record(self.kind, self.payload, _signatures(self.signatures))


def keys(tx: Tx) -> list[OwnerKey]:
    """The owner's keys, the one of now first; empty while there is no owner."""
    return [OwnerKey(_text(key_id), public, until) for key_id, public, until in tx.all(_KEYS)]


def since_ms(tx: Tx) -> int | None:
    """When the key of now was recorded (ms UTC)."""
    row = tx.one("SELECT since_ms FROM owner_keys ORDER BY no DESC LIMIT 1")
    return int(row[0]) if row else None


def add_key(tx: Tx, key: OwnerKey, now_ms: int, until_version: int) -> None:
    """Record the key of now; the one before it verifies the chain up to `until_version`."""
    tx.run("UPDATE owner_keys SET until_version = ? WHERE until_version IS NULL", (until_version,))
    tx.run(
        "INSERT INTO owner_keys (key_id, public_key, since_ms) VALUES (?, ?, ?)",
        (key.key_id, key.public, now_ms),
    )


def find(tx: Tx, record_id: str) -> OwnerRecordRow | None:
    """The applied record of this id."""
    row = tx.one(_BY_ID, (record_id,))
    return OwnerRecordRow(*row) if row else None


def last_forward(tx: Tx, identity: str) -> str | None:
    """The id of the record that says where mail of an identity (its id) goes on, if one does."""
    for record_id, payload in tx.each(_DIRECTIVES):
        try:
            told = parse(payload, RECORD_MAX_BYTES)
        except CanonicalError:  # a damaged row says nothing
            continue
        if isinstance(told, dict) and (told.get("act"), told.get("identity")) == (
            FORWARD,
            identity,
        ):
            return str(record_id)
    return None


class Followed(NamedTuple):
    """The place of a record in the chain of another host: its key id, the version there."""

    chain: str
    version: int


def add(
    tx: Tx,
    record: Record,
    version: int | None,
    now_ms: int,
    answer: str,
    acceptance: Sealed,
    followed: Followed | None = None,
) -> None:
    """Keep an applied record, its first answer, and the host's acceptance.

    `version`: its place in our own chain; `followed`: in that of another host.
    """
    tx.run(
        "INSERT INTO owner_records (kind, record_id, version, payload, signatures, applied_ms,"
        " answer, acceptance, acceptance_signature, chain, chain_version)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            record.kind,
            record.id,
            version,
            record.payload,
            encode([[key_id, text] for key_id, text in sorted(record.signatures.items())]),
            now_ms,
            answer,
            acceptance.payload,
            acceptance.signature,
            followed.chain if followed else None,
            followed.version if followed else None,
        ),
    )


def chain(tx: Tx) -> list[Link]:
    """The records of policies and revocations as they lie in the store, as they were applied."""
    return [_link(*row) for row in tx.all(_CHAIN)]


def followed_chain(tx: Tx, host: str) -> list[Link]:
    """As `chain`, for what came of the chain of the host with this key id."""
    return [_link(*row) for row in tx.all(_FOLLOWED, (host,))]


def _link(version: int, kind: bytes, payload: bytes, signatures: bytes, applied_ms: int) -> Link:
    record = Record(_text(kind), _text(payload), _signatures(_text(signatures)))
    return Link(version, record, applied_ms)


def rotations(tx: Tx) -> list[Record]:
    """The records by which the owner's key was changed, as they lie in the store."""
    return [
        Record("rotate", _text(payload), _signatures(_text(signatures)))
        for payload, signatures in tx.all(_ROTATIONS)
    ]


def everything(tx: Tx) -> list[OwnerRecordRow]:
    """All applied records, in order."""
    return [OwnerRecordRow(*row) for row in tx.all(_ALL)]


_STATE: Final = (
    "SELECT (SELECT CAST(record_id AS BLOB) FROM owner_records ORDER BY no DESC LIMIT 1),"
    " (SELECT CAST(key_id AS BLOB) FROM owner_keys ORDER BY no DESC LIMIT 1),"
    " (SELECT CAST(group_concat(f.ended_version || ' ' || p.label) AS BLOB)"
    " FROM followed_chains AS f JOIN peers AS p ON p.key_id = f.chain)"
)


def state(tx: Tx) -> tuple[str, str, str]:
    """Names what the chains and the keys are now: equal as long as nothing was added to any.

    Ids, not counts: after a rollback a count comes again for another record. And what the hosts of
    followed chains are called, and up to where these do not count.
    """
    record, key, followed = tx.one(_STATE) or (None, None, None)
    return _text(record or b""), _text(key or b""), _text(followed or b"")


def clock_high_ms(tx: Tx) -> int:
    """The latest wall clock that something was recorded at (ms UTC)."""
    row = tx.one("SELECT value FROM counters WHERE name = ?", (_CLOCK,))
    return int(row[0]) if row else 0


def raise_clock(tx: Tx, now_ms: int) -> None:
    """Remember the wall clock, if it is later than ever."""
    tx.run("UPDATE counters SET value = ?1 WHERE name = ?2 AND value < ?1", (now_ms, _CLOCK))


def keep_clock(tx: Tx, now_ms: int) -> None:
    """Remember the wall clock now and then, while there is an owner whose records have terms.

    What ended more than `CLOCK_BACK_MAX_MS` and `CLOCK_KEPT_MS` ago, while a daemon ran, is not
    brought back by a clock that is set back. An idle daemon commits so much less often.
    """
    tx.run(_KEEP_CLOCK, (now_ms, _CLOCK, CLOCK_KEPT_MS))


def set_clock(tx: Tx, now_ms: int) -> None:
    """The owner signed something at this time: it is the true one, also if it is earlier."""
    tx.run("UPDATE counters SET value = ? WHERE name = ?", (now_ms, _CLOCK))


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _signatures(text: str) -> dict[str, str]:
    try:
        pairs = parse(text.encode("utf-8", "surrogateescape"), _SIGNATURES_MAX_BYTES)
        return dict(_pairs(pairs if isinstance(pairs, list) else []))
    except ValueError:
        return {}


def _pairs(pairs: Sequence[object]) -> list[tuple[str, str]]:
    found = []
    for pair in pairs:
        if isinstance(pair, list) and len(pair) == 2 and all(isinstance(x, str) for x in pair):
            found.append((str(pair[0]), str(pair[1])))
    return found
