"""The rows of a store as plain values, so that the checker is a pure function of them."""

import json
import sqlite3
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mbx.core.keys import crockford
from mbx.store import inspection
from mbx.store.database import Tx


@dataclass(frozen=True)
class Message:
    """One stored message; `no` is its place in the order of commits."""

    no: int
    sender_no: int
    digest: bytes
    signature: bytes
    payload: str
    owner_key: str | None = None
    """The owner's key that signed it, None for the host's."""

    @property
    def id(self) -> str:
        return crockford(self.digest)

    @cached_property
    def content(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.payload)
        return content

    @property
    def source(self) -> str:
        """The id of the identity that wrote it."""
        return str(self.content["from"]["identity"])


@dataclass(frozen=True)
class Delivery:
    """One message in one mailbox; stages as in `mbx.core.delivery`."""

    recipient_no: int
    message_no: int
    stage: int
    wakes: bool = False


@dataclass(frozen=True)
class Receipt:
    """One signed receipt record."""

    no: int
    record_id: str
    payload: str
    signature: bytes

    @cached_property
    def content(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.payload)
        return content


@dataclass(frozen=True)
class Audit:
    """One row of the audit log; `detail` is canonical JSON and holds the commit's `seq`."""

    no: int
    at_ms: int
    act: str
    identity: str | None
    detail: str
    hash: bytes

    @cached_property
    def content(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.detail)
        return content


@dataclass(frozen=True)
class Lease:
    """A lease as the store has it now; states as in `mbx.core.lease`; the newest signed record."""

    identity_no: int
    epoch: int
    state: int
    payload: str | None = None
    signature: bytes | None = None


@dataclass(frozen=True)
class OwnerRecord:
    """One applied record of the owner's, and the host's signed word on it."""

    no: int
    kind: str
    record_id: str
    version: int | None
    payload: str
    acceptance: str
    acceptance_signature: bytes


@dataclass(frozen=True)
class Image:
    """All that the checker reads of one store.

    `identities` maps keys to immutable ids, `unread` keys to the counter kept in the mailbox;
    `complaints` is what SQLite's own checks said.
    """

    host_key_id: str
    host_public: bytes
    commit_seq: int = 0
    identities: tuple[tuple[int, str], ...] = ()
    unread: tuple[tuple[int, int], ...] = ()
    leases: tuple[Lease, ...] = ()
    messages: tuple[Message, ...] = ()
    deliveries: tuple[Delivery, ...] = ()
    receipts: tuple[Receipt, ...] = ()
    audit: tuple[Audit, ...] = ()
    answers: tuple[tuple[str, str], ...] = ()
    bound: tuple[tuple[int, int], ...] = ()
    """(identity key, epoch) of each session that was granted something and did not release it."""
    owner_records: tuple[OwnerRecord, ...] = ()
    indexed: int = 0
    complaints: tuple[str, ...] = ()
    state_hash: str = ""


def take(connection: sqlite3.Connection) -> Image:
    """Read the whole store, outside any transaction."""

    def rows(query: str) -> list[Any]:
        return connection.execute(query).fetchall()

    counters = dict(rows("SELECT name, value FROM counters"))
    key_id, public = rows("SELECT key_id, public_key FROM host")[0]
    return Image(
        host_key_id=key_id,
        host_public=public,
        commit_seq=counters["commit_seq"],
        identities=tuple(rows("SELECT no, identity FROM identities ORDER BY no")),
        unread=tuple(rows("SELECT identity_no, unread FROM mailboxes ORDER BY identity_no")),
        leases=tuple(
            Lease(*row)
            for row in rows("SELECT identity_no, epoch, state, payload, signature FROM leases")
        ),
        messages=tuple(
            Message(*row)
            for row in rows(
                "SELECT no, sender_no, digest, signature, payload, owner_key"
                " FROM messages ORDER BY no"
            )
        ),
        deliveries=tuple(
            Delivery(*row)
            for row in rows(
                "SELECT recipient_no, message_no, stage, wakes FROM deliveries"
                " ORDER BY message_no, recipient_no"
            )
        ),
        receipts=tuple(
            Receipt(*row)
            for row in rows("SELECT no, record_id, payload, signature FROM receipts ORDER BY no")
        ),
        audit=tuple(
            Audit(*row)
            for row in rows("SELECT no, at_ms, act, identity, detail, hash FROM audit ORDER BY no")
        ),
        answers=tuple(rows("SELECT scope, key FROM answers ORDER BY scope, key")),
        bound=tuple(rows("SELECT identity_no, epoch FROM sessions WHERE identity_no IS NOT NULL")),
        owner_records=tuple(
            OwnerRecord(*row)
            for row in rows(
                "SELECT no, kind, record_id, version, payload, acceptance, acceptance_signature"
                " FROM owner_records ORDER BY no"
            )
        ),
        indexed=counters["indexed_message"],
        complaints=_complaints(connection),
        state_hash=inspection.state_hash(Tx(connection, counters["commit_seq"])),
    )


def _complaints(connection: sqlite3.Connection) -> tuple[str, ...]:
    integrity = [row[0] for row in connection.execute("PRAGMA integrity_check")]
    broken = connection.execute("PRAGMA foreign_key_check").fetchall()
    found = [text for text in integrity if text != "ok"]
    return (*found, *(f"a row refers to nothing: {row!r}" for row in broken))
