"""What the host signed when it applied the owner's records, as it lies in the store."""

from typing import Final, NamedTuple

from mbx.store.database import Tx

# As bytes: a text that somebody has made no UTF-8 must be told as damage, not end the reader.
_COLUMNS: Final = (
    "SELECT no, CAST(record_id AS BLOB), CAST(acceptance AS BLOB), acceptance_signature"
    " FROM owner_records"
)
_BEHIND: Final = _COLUMNS + " WHERE no > ? ORDER BY no LIMIT ?"
_NEWEST: Final = _COLUMNS + " ORDER BY no DESC LIMIT 1"


class Acceptance(NamedTuple):
    """The host's word that it applied a record: `no` is the record's key, `payload` not checked."""

    no: int
    record_id: str
    payload: str
    signature: bytes


def behind(tx: Tx, no: int, count: int) -> list[Acceptance]:
    """The acceptances of the records behind the one with key `no`, in order."""
    return [_read(*row) for row in tx.all(_BEHIND, (no, count))]


def newest(tx: Tx) -> Acceptance | None:
    """The acceptance of the newest record."""
    row = tx.one(_NEWEST)
    return _read(*row) if row else None


def is_kept(tx: Tx, record_id: str) -> bool:
    """Whether a record of this id is kept."""
    return tx.one("SELECT 1 FROM owner_records WHERE record_id = ?", (record_id,)) is not None


def _read(no: int, record_id: bytes, payload: bytes, signature: bytes) -> Acceptance:
    name, text = (raw.decode("utf-8", "surrogateescape") for raw in (record_id, payload))
    return Acceptance(no, name, text, bytes(signature))
