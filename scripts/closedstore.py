"""What the store of a stopped daemon holds, read from outside: an independent look at signatures.

The file is opened read-only and immutable, so nothing of it can change. While a daemon runs nobody
else can open it.
"""

import base64
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mbx.core import record
from mbx.core.record import ANY_AUDIENCE, Record, RecordError
from mbx.store import audit, inspection
from mbx.store.database import Tx

_MESSAGES = (
    "SELECT m.digest, m.payload, m.signature, p.key_id FROM messages AS m"
    " JOIN identities AS i ON i.no = m.sender_no LEFT JOIN peers AS p ON p.no = i.peer_no"
    " ORDER BY m.no"
)
_RECEIPTS = "SELECT payload, signature FROM receipts ORDER BY no"
_LEASES = "SELECT payload, signature FROM leases WHERE payload IS NOT NULL ORDER BY identity_no"


@dataclass
class Audit:
    """Verified records by kind, what was wrong, and the ids of all messages in order of arrival."""

    messages: list[str] = field(default_factory=list)
    receipts: int = 0
    leases: int = 0
    audit_rows: int = 0
    state_hash: str = ""
    """As `mbx daemon status --hash` tells it of this store."""
    faults: list[str] = field(default_factory=list)


def audit_store(path: Path) -> Audit:
    """Verify every signature and the audit chain of the closed store at `path`.

    Mail between hosts bears the key of its sender's.
    """
    found = Audit()
    connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    try:
        key_id, public = connection.execute("SELECT key_id, public_key FROM host").fetchone()
        keys = {key_id: bytes(public)}
        for peer_id, public_key in connection.execute("SELECT key_id, public_key FROM peers"):
            keys[peer_id] = bytes(public_key)
        trusted = _Trusted(key_id, keys, found.faults)
        for digest, payload, signature, peer_id in connection.execute(_MESSAGES):
            record_id, right = trusted.verify("message", payload, bytes(signature), peer_id)
            if right.digest != digest:
                found.faults.append(f"message {record_id} is stored under another digest")
            found.messages.append(record_id)
        for payload, signature in connection.execute(_RECEIPTS):
            trusted.verify("receipt", payload, bytes(signature))
            found.receipts += 1
        for payload, signature in connection.execute(_LEASES):
            trusted.verify("lease", payload, bytes(signature))
            found.leases += 1
        _walk(connection, found)
    finally:
        connection.close()
    return found


def _walk(connection: sqlite3.Connection, found: Audit) -> None:
    tx = Tx(connection, 0)
    found.state_hash = inspection.state_hash(tx)
    found.audit_rows = sum(1 for _ in audit.rows(tx))
    if (broken := audit.first_break(tx)) is not None:
        found.faults.append(f"the audit chain breaks at row {broken}")


class _Trusted:
    """The keys of this host and of those paired with it, and a place for what is wrong."""

    def __init__(self, own_id: str, keys: Mapping[str, bytes], faults: list[str]) -> None:
        self._own_id = own_id
        self._keys = keys
        self._faults = faults

    def verify(
        self, kind: str, payload: str, signature: bytes, peer_id: str | None = None
    ) -> tuple[str, Record]:
        """The id and the record, verified; what is wrong goes to the faults.

        `peer_id`: the key of the paired host that its sender lives on. What comes from there is
        meant for this host; what was signed here, for this one or a paired one.
        """
        signer = peer_id or self._own_id
        one = Record(kind, payload, {signer: base64.b64encode(signature).decode()})
        audience = ANY_AUDIENCE if peer_id is None else self._own_id
        try:
            said = record.verify(
                one, kind=kind, signers={signer: self._keys[signer]}, audience=audience
            )
            meant = said.get("aud")
            if not set(meant if isinstance(meant, list) else [meant]) <= self._keys.keys():
                self._faults.append(f"{kind} {one.id}: it is meant for a stranger")
        except RecordError as error:
            self._faults.append(f"{kind} {one.id}: {error}")
        return one.id, one
