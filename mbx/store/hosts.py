"""The store's own row: which host it belongs to."""

from dataclasses import dataclass

from mbx.store.database import Tx


@dataclass(frozen=True, slots=True)
class HostRow:
    """The host as recorded at the first start: key id, 32 bytes of public key, label, store id."""

    key_id: str
    public_key: bytes
    label: str
    store_id: str


def find(tx: Tx) -> HostRow | None:
    """The host of this store, or None in a new store."""
    row = tx.one("SELECT key_id, public_key, label, store_id FROM host")
    return HostRow(*row) if row else None


def create(tx: Tx, host: HostRow, now_ms: int) -> None:
    """Record the host, once."""
    tx.run(
        "INSERT INTO host (only, key_id, public_key, label, store_id, created_ms)"
        " VALUES (1, ?, ?, ?, ?, ?)",
        (host.key_id, host.public_key, host.label, host.store_id, now_ms),
    )
