"""The store's own row: which host it belongs to."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from mbx.core.canonical import encode
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


def listen(tx: Tx) -> tuple[str, ...]:
    """The endpoints at which this host listens for others; none: it does not."""
    row = tx.one("SELECT listen FROM host")
    return tuple(json.loads(row[0])) if row and row[0] else ()


def set_listen(tx: Tx, endpoints: Sequence[str]) -> None:
    """Listen there from now on, also after a restart."""
    tx.run("UPDATE host SET listen = ?", (encode(list(endpoints)) if endpoints else None,))


def create(tx: Tx, host: HostRow, now_ms: int) -> None:
    """Record the host, once."""
    tx.run(
        "INSERT INTO host (only, key_id, public_key, label, store_id, created_ms)"
        " VALUES (1, ?, ?, ?, ?, ?)",
        (host.key_id, host.public_key, host.label, host.store_id, now_ms),
    )
