"""The first answer to each idempotency key, for ever."""

from mbx.store.database import Tx


def find(tx: Tx, scope: str, key: str) -> tuple[bytes, str] | None:
    """(16 bytes of the request's hash, the answer's JSON text) of an earlier call with this key."""
    row = tx.one("SELECT request, answer FROM answers WHERE scope = ? AND key = ?", (scope, key))
    return (row[0], row[1]) if row else None


def save(tx: Tx, scope: str, key: str, request: bytes, answer: str) -> None:
    """Remember the answer, in the transaction that made it true."""
    tx.run(
        "INSERT INTO answers (scope, key, request, answer) VALUES (?, ?, ?, ?)",
        (scope, key, request, answer),
    )
