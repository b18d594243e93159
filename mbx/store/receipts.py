"""Signed receipt records."""

from mbx.core.record import Sealed
from mbx.store.database import Tx


def add(tx: Tx, receipt: Sealed, now_ms: int) -> int:
    """Keep a receipt, in the transaction that makes its facts true; its key."""
    return tx.insert(
        "INSERT INTO receipts (at_ms, record_id, payload, signature) VALUES (?, ?, ?, ?)",
        (now_ms, receipt.id, receipt.payload, receipt.signature),
    )
