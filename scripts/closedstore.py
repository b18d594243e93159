"""What the store of a stopped daemon holds, read from outside: an independent look at signatures.

The file is opened read-only and immutable, so nothing of it can change. While a daemon runs nobody
else can open it.
"""

import base64
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path

from mbx.core import record
from mbx.core.record import Record, RecordError
from mbx.store import audit
from mbx.store.database import Tx

_MESSAGES = (
    "SELECT digest, payload, signature FROM messages ORDER BY no",
    "SELECT payload, signature FROM receipts ORDER BY no",
    "SELECT payload, signature FROM leases WHERE payload IS NOT NULL ORDER BY identity_no",
)


@dataclass
class Audit:
    """Verified records by kind, what was wrong, and the ids of all messages in order of arrival."""

    messages: list[str] = field(default_factory=list)
    receipts: int = 0
    leases: int = 0
    audit_rows: int = 0
    faults: list[str] = field(default_factory=list)


def audit_store(path: Path) -> Audit:
    """Verify every signature and the audit chain of the closed store at `path`."""
    found = Audit()
    connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    try:
        key_id, public = connection.execute("SELECT key_id, public_key FROM host").fetchone()
        trusted = _Trusted(key_id, bytes(public), found.faults)
        for digest, payload, signature in connection.execute(_MESSAGES[0]):
            record_id, right = trusted.verify("message", payload, bytes(signature))
            if right.digest != digest:
                found.faults.append(f"message {record_id} is stored under another digest")
            found.messages.append(record_id)
        for payload, signature in connection.execute(_MESSAGES[1]):
            trusted.verify("receipt", payload, bytes(signature))
            found.receipts += 1
        for payload, signature in connection.execute(_MESSAGES[2]):
            trusted.verify("lease", payload, bytes(signature))
            found.leases += 1
        _walk_audit(connection, found)
    finally:
        connection.close()
    return found


def _walk_audit(connection: sqlite3.Connection, found: Audit) -> None:
    tx = Tx(connection, 0)
    found.audit_rows = sum(1 for _ in audit.rows(tx))
    if (broken := audit.first_break(tx)) is not None:
        found.faults.append(f"the audit chain breaks at row {broken}")


class _Trusted:
    """The host's key, and a place for what it did not sign."""

    def __init__(self, key_id: str, public: bytes, faults: list[str]) -> None:
        self._key_id = key_id
        self._signers = {key_id: public}
        self._faults = faults

    def verify(self, kind: str, payload: str, signature: bytes) -> tuple[str, Record]:
        """The id and the record, verified; what is wrong goes to the faults."""
        text = base64.b64encode(signature).decode()
        one = Record(kind, payload, {self._key_id: text})
        try:
            record.verify(one, kind=kind, signers=self._signers, audience=self._key_id)
        except RecordError as error:
            self._faults.append(f"{kind} {one.id}: {error}")
        return one.id, one
