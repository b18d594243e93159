"""What S1, S6 and S7 are held against: the bare cost of what they cannot do without.

Of a send, one after another, as if nothing overlapped: the rows into SQLite at FULL (without full
text, gate, savepoints), a line there and back through bare asyncio, canonical JSON and an Ed25519
signature.
"""

import json
import os
import sqlite3
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from benchmarks.mail import BODY_BYTES, RECIPIENTS, body
from mbx.core.keys import SigningKey
from mbx.core.record import Sealed, seal
from mbx.store.database import connect

_ID: Final = "0123456789abcdefghjkmnpqrs"
_PAGE_BYTES: Final = 4_096
_NOW_MS: Final = 1_760_000_000_000
_MESSAGE: Final = (
    "INSERT INTO messages (id8, id, thread, reply_no, sender_no, accepted_ms, kind, needs_reply,"
    " plain, body_bytes, subject, digest, signature, payload)"
    " VALUES (?, ?, ?, NULL, ?, ?, 'message', 0, 1, ?, ?, ?, ?, ?)"
)
_DELIVERY: Final = (
    "INSERT INTO deliveries (recipient_no, message_no, stage, stage_ms) VALUES (?, ?, 2, ?)"
)
_UNREAD: Final = "UPDATE mailboxes SET unread = unread + 1 WHERE identity_no = ?"
_ANSWER: Final = "INSERT INTO answers (scope, key, request, answer) VALUES (?, ?, ?, ?)"
_SEQUENCE: Final = "UPDATE counters SET value = value + ? WHERE name = 'commit_seq'"


def payload(number: int, nonce: str) -> dict[str, object]:
    """What is signed for one message of the bench."""

    def party(name: str) -> dict[str, object]:
        return {"identity": _ID, "name": name, "host": "desktop"}

    return {
        "v": 1,
        "type": "message",
        "iat": _NOW_MS,
        "nonce": nonce,
        "aud": [_ID],
        "from": party("bench-load"),
        "lease": {"epoch": 1, "id": _ID},
        "to": [party(RECIPIENTS[number % len(RECIPIENTS)])],
        "thread": None,
        "reply_to": None,
        "kind": "message",
        "subject": f"Bench message {number}",
        "body": body(number),
        "needs_reply": False,
        "refs": [],
        "attachments": [],
        "topic": None,
        "expected_output": None,
        "origin": None,
        "hop": 0,
        "external_since": None,
        "project": None,
        "sent_at": _NOW_MS,
    }


def canonical(value: object) -> bytes:
    """Canonical JSON by the standard library."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode()


def signature_s(count: int) -> float:
    """Seconds for the canonical JSON and the signature of one message, over `count` of them."""
    key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    payloads = [payload(number, os.urandom(16).hex()) for number in range(count)]
    begun = time.perf_counter()
    for one in payloads:
        key.sign(b"mbx-sig/1\0message\0" + canonical(one))
    return (time.perf_counter() - begun) / count


def verify_s(count: int) -> float:
    """Seconds for the verification of one message's signature, over `count` of them."""
    key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    signed = [
        b"mbx-sig/1\0message\0" + canonical(payload(number, os.urandom(16).hex()))
        for number in range(count)
    ]
    signatures, public = [key.sign(one) for one in signed], key.public_key()
    begun = time.perf_counter()
    for one, signature in zip(signed, signatures, strict=True):
        public.verify(signature, one)
    return (time.perf_counter() - begun) / count


def sync_s(path: Path, count: int) -> float:
    """Seconds for a page written behind a file's end and `fdatasync`, the median of `count`."""
    took, page = [], bytes(_PAGE_BYTES)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        for _ in range(count):
            begun = time.perf_counter()
            os.write(fd, page)
            os.fdatasync(fd)
            took.append(time.perf_counter() - begun)
    finally:
        os.close(fd)
    return statistics.median(took)


def add(
    connection: sqlite3.Connection,
    message: tuple[object, ...],
    recipient: int,
    answer: tuple[object, ...] | None,
) -> None:
    """The rows of one send by bare sqlite3; the arguments are those that `rows` makes.

    Mail of another host has no `answer`: nobody asked here.
    """
    no = connection.execute(_MESSAGE, message).lastrowid
    connection.execute(_DELIVERY, (recipient, no, _NOW_MS))
    connection.execute(_UNREAD, (recipient,))
    if answer is not None:
        connection.execute(_ANSWER, answer)


class InsertFloor:
    """A store of the same schema and settings, written to by bare sqlite3."""

    def __init__(self, path: Path) -> None:
        self._connection = connect(str(path))
        self._connection.executescript(schema())
        _add_people(self._connection)
        self._signer = SigningKey.from_seed(bytes(range(32)))
        self._made = 0

    def close(self) -> None:
        """Close it."""
        self._connection.close()

    def insert_s(self, count: int, group: int, *, is_relayed: bool = False) -> float:
        """Seconds for the rows of one message, over `count` in transactions of `group`.

        `is_relayed`: as the host of the recipient keeps it, which answered nobody.
        """
        numbers = range(self._made, self._made + count)
        ready = [self._row(number) for number in numbers]
        self._made += count
        run = self._connection.execute
        begun = time.perf_counter()
        for first in range(0, count, group):
            together = ready[first : first + group]
            run("BEGIN IMMEDIATE")
            for message, recipient, answer in together:
                add(self._connection, message, recipient, None if is_relayed else answer)
            run(_SEQUENCE, (len(together),))
            run("COMMIT")
        return (time.perf_counter() - begun) / count

    def _row(self, number: int) -> tuple[tuple[object, ...], int, tuple[object, ...]]:
        text = canonical(payload(number, os.urandom(16).hex()))
        message, answer = rows(number, 1, seal("message", text, self._signer))
        return message, 2 + number % len(RECIPIENTS), answer


def schema() -> str:
    """The SQL of all migrations of the mbx that is measured."""
    import mbx.store

    folder = Path(mbx.store.__path__[0]) / "migrations"
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.sql")))


def _add_people(connection: sqlite3.Connection) -> None:
    people: Iterator[str] = iter(("bench-load", *RECIPIENTS))
    for no, name in enumerate(people, 1):
        connection.execute(
            "INSERT INTO identities (no, identity, name, skeleton, role, description, created_ms)"
            " VALUES (?, ?, ?, ?, 'bench', '', 0)",
            (no, f"{name:x<26}"[:26], name, name),
        )
        connection.execute("INSERT INTO mailboxes (identity_no, unread) VALUES (?, 0)", (no,))


def rows(number: int, sender: int, record: Sealed) -> tuple[tuple[object, ...], tuple[object, ...]]:
    """(message, answer) of one send as the store keeps them."""
    message = (
        int.from_bytes(record.digest[:8], "big", signed=True),
        record.id,
        record.id,
        sender,
        _NOW_MS,
        BODY_BYTES,
        f"Bench message {number}",
        record.digest,
        record.signature,
        record.payload,
    )
    answer = json.dumps({"id": record.id, "thread": record.id, "recipients": [_REACH]})
    key = f"0198f2c4-7b1e-floor-{number:012}"
    return message, (f"i{sender}", key, record.digest[:16], answer)


_REACH: Final = {
    "address": "bench-ada@desktop",
    "identity": _ID,
    "state": "offline",
    "detail": "nobody holds it since 2026-01-01T00:00:00Z",
}
