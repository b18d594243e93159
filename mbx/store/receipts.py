"""Signed receipt records."""

import base64

from mbx.core.record import Record
from mbx.store.database import Tx


def add(tx: Tx, record: Record, now_ms: int) -> None:
    """Keep a receipt, in the transaction that makes its facts true."""
    signature = base64.b64decode(next(iter(record.signatures.values())))
    tx.run(
        "INSERT INTO receipts (at_ms, record_id, payload, signature) VALUES (?, ?, ?, ?)",
        (now_ms, record.id, record.payload, signature),
    )
