"""Rows of the streams to and from paired hosts, and of the outbox: what each place holds.

A place is given in the transaction that makes its record true. Places are contiguous, and each
carries the running head, so that two hosts can tell whether they speak of the same history.
"""

import base64
import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from mbx.core.canonical import encode
from mbx.core.limits import OFFERED_AT_ONCE_MAX_BYTES, PUT_RECORDS_MAX
from mbx.core.record import Record, Sealed
from mbx.core.streams import COPIED, EMPTY_HEAD, Incoming, Outgoing, StreamState, extended
from mbx.store.database import Tx

_STREAMS: Final = (
    "SELECT peer_no, out_stream, out_seq, out_head, offered_seq, acked_seq, queued_messages,"
    " queued_bytes, in_stream, in_seq, in_head, in_store, stopped, lag_ms,"
    " parted, parted_ms FROM streams"
)
_STREAM: Final = _STREAMS + " WHERE peer_no = ?"
_PLACES: Final = (
    "SELECT o.seq, o.kind, o.digest, o.size_bytes, o.withdrawn_ms, coalesce(m.payload, r.payload),"
    " coalesce(m.signature, r.signature), m.owner_key, o.record FROM outbox AS o"
    " LEFT JOIN messages AS m ON m.no = o.message_no"
    " LEFT JOIN receipts AS r ON r.no = o.receipt_no"
    " WHERE o.peer_no = ? AND o.seq > ? ORDER BY o.seq LIMIT ?"
)
_PLACE: Final = (
    "INSERT INTO outbox (peer_no, seq, kind, digest, head, size_bytes, message_no, receipt_no,"
    " record, queued_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_ADVANCE: Final = (
    "UPDATE streams SET out_seq = ?, out_head = ?, queued_messages = queued_messages + ?,"
    " queued_bytes = queued_bytes + ? WHERE peer_no = ?"
)
_MESSAGES_UP_TO: Final = (
    "SELECT seq, message_no, size_bytes FROM outbox WHERE peer_no = ? AND seq > ? AND seq <= ?"
    " AND message_no IS NOT NULL AND withdrawn_ms IS NULL ORDER BY seq"
)
_NEVER_OFFERED: Final = (
    "SELECT seq, message_no, size_bytes FROM outbox WHERE peer_no = ? AND seq > ?"
    " AND queued_ms < ? AND message_no IS NOT NULL AND withdrawn_ms IS NULL ORDER BY seq LIMIT ?"
)
_OFFERED_LAST: Final = (
    "SELECT o.message_no FROM streams AS s JOIN outbox AS o ON o.peer_no = s.peer_no"
    " AND o.seq <= s.offered_seq WHERE s.peer_no = ? AND o.message_no IS NOT NULL"
    " ORDER BY o.seq DESC LIMIT 1"
)
_OFFERED_AT_ONCE: Final = (
    "UPDATE streams SET offered_seq = out_seq WHERE peer_no = ?1"
    " AND out_seq - acked_seq <= ?2 AND queued_bytes <= ?3"
)
_LEFT_OVER: Final = (
    "SELECT s.peer_no FROM streams AS s JOIN peers AS p ON p.no = s.peer_no"
    " WHERE p.ended_ms IS NOT NULL AND s.queued_messages > 0 ORDER BY s.peer_no"
)
_SIGNED: Final = (
    "SELECT count(*), min(queued_ms) FROM outbox INDEXED BY outbox_signed"
    " WHERE peer_no = ? AND seq > ? AND kind IN ('policy', 'revoke', 'rotate')"
)
_OLDEST: Final = (
    "SELECT queued_ms FROM outbox WHERE peer_no = ? AND seq > ? AND message_no IS NOT NULL"
    " AND withdrawn_ms IS NULL ORDER BY seq LIMIT 1"
)


class StreamRow(NamedTuple):
    """Both streams of one pairing; see the migration for what each column says."""

    peer_no: int
    out_stream: str
    out_seq: int
    out_head: bytes
    offered_seq: int
    acked_seq: int
    queued_messages: int
    queued_bytes: int
    in_stream: str | None
    in_seq: int
    in_head: bytes
    in_store: str | None
    stopped: str | None
    lag_ms: int | None
    parted: str | None
    parted_ms: int | None

    @property
    def waiting_answers(self) -> int:
        """Places that the peer has not acknowledged, but for those of messages."""
        return self.out_seq - self.acked_seq - self.queued_messages

    @property
    def both(self) -> StreamState:
        """As the two hosts tell each other."""
        return StreamState(
            Outgoing(self.out_stream, self.out_seq, self.out_head, self.acked_seq),
            Incoming(self.in_stream, self.in_seq, self.in_head),
        )


class Place(NamedTuple):
    """One place of a stream out: its record, or (withdrawn) none, and the record's digest."""

    seq: int
    digest: bytes
    size_bytes: int
    record: Record | None


class QueuedMessage(NamedTuple):
    """A message at a place of the outbox."""

    seq: int
    message_no: int
    size_bytes: int


def begin(tx: Tx, peer_no: int, stream: str) -> None:
    """The two streams of a new pairing, empty; `stream` names ours."""
    tx.run(
        "INSERT INTO streams (peer_no, out_stream, out_head, in_head) VALUES (?, ?, ?, ?)",
        (peer_no, stream, EMPTY_HEAD, EMPTY_HEAD),
    )


def stream(tx: Tx, peer_no: int) -> StreamRow:
    """The streams of a pairing; they exist."""
    row = tx.one(_STREAM, (peer_no,))
    if row is None:
        raise LookupError(f"no streams of peer {peer_no}")
    return StreamRow(*row)


def streams(tx: Tx) -> list[StreamRow]:
    """The streams of every pairing."""
    return [StreamRow(*row) for row in tx.all(_STREAMS)]


# -- out -------------------------------------------------------------------------------------------


def queue_message(
    tx: Tx, peer_no: int, message_no: int, kind: str, digest: bytes, size_bytes: int, now_ms: int
) -> None:
    """Give a stored message the next place of the stream to a peer."""
    _queue(tx, peer_no, kind, digest, size_bytes, now_ms, message_no=message_no)


def queue_receipt(tx: Tx, peer_no: int, receipt_no: int, receipt: Sealed, now_ms: int) -> None:
    """Give a kept receipt the next place."""
    size_bytes = len(receipt.payload)
    _queue(tx, peer_no, "receipt", receipt.digest, size_bytes, now_ms, receipt_no=receipt_no)


def queue_record(tx: Tx, peer_no: int, record: Record, now_ms: int) -> None:
    """Give any other record the next place."""
    text = encode([record.payload, [[key, text] for key, text in record.signatures.items()]])
    _queue(tx, peer_no, record.kind, record.digest, len(text), now_ms, text=text)


def places(tx: Tx, peer_no: int, own_key: str, after_seq: int, rows: int) -> list[Place]:
    """Up to `rows` places after `after_seq`. `own_key`: the id of the host key that signs here."""
    return [
        Place(
            seq,
            digest,
            size_bytes,
            None
            if withdrawn_ms is not None
            else _record(kind, payload, signature, owner_key or own_key, record),
        )
        for seq, kind, digest, size_bytes, withdrawn_ms, payload, signature, owner_key, record in (
            tx.all(_PLACES, (peer_no, after_seq, rows))
        )
    ]


def offered(tx: Tx, peer_no: int, seq: int) -> None:
    """All places up to `seq` are about to be handed to a link."""
    tx.run(
        "UPDATE streams SET offered_seq = ?1 WHERE peer_no = ?2 AND offered_seq < ?1",
        (seq, peer_no),
    )


def offered_at_once(tx: Tx, peer_no: int) -> None:
    """As `offered`, of all places that there are now, for a link that stands.

    Not where more waits than one frame takes: those wait, and are not offered before their turn.
    """
    tx.run(_OFFERED_AT_ONCE, (peer_no, PUT_RECORDS_MAX, OFFERED_AT_ONCE_MAX_BYTES))


def acknowledged(tx: Tx, peer_no: int, seq: int, now_ms: int) -> tuple[int, int]:
    """The peer has committed all places up to `seq`; behind which and up to which they are new."""
    before = stream(tx, peer_no)
    # What the peer provably has counts, also where an older copy of ours never offered it.
    upto = min(seq, before.out_seq)
    if upto <= before.acked_seq:
        return before.acked_seq, before.acked_seq
    offered(tx, peer_no, upto)
    found = [
        QueuedMessage(*row) for row in tx.all(_MESSAGES_UP_TO, (peer_no, before.acked_seq, upto))
    ]
    tx.run("UPDATE streams SET acked_seq = ? WHERE peer_no = ?", (upto, peer_no))
    tx.run(
        "UPDATE outbox SET acked_ms = ? WHERE peer_no = ? AND seq > ? AND seq <= ?",
        (now_ms, peer_no, before.acked_seq, upto),
    )
    _count(tx, peer_no, -len(found), -sum(one.size_bytes for one in found))
    return before.acked_seq, upto


def head_at(tx: Tx, peer_no: int, seq: int) -> bytes | None:
    """The running head of our stream after place `seq`, None where it is not known any more."""
    if seq == 0:
        return EMPTY_HEAD
    row = tx.one("SELECT head FROM outbox WHERE peer_no = ? AND seq = ?", (peer_no, seq))
    return bytes(row[0]) if row else None


def last_offered(tx: Tx, peer_no: int) -> int:
    """The key of the last message that a link was handed, 0 where there is none.

    Messages get their places in the order of their keys: all those before it were handed over too.
    """
    row = tx.one(_OFFERED_LAST, (peer_no,))
    return int(row[0]) if row else 0


def never_offered(
    tx: Tx, peer_no: int, before_ms: int, rows: int, after_seq: int = 0
) -> list[QueuedMessage]:
    """Messages behind `after_seq` queued before `before_ms` (UTC) that no link was ever handed."""
    first = max(stream(tx, peer_no).offered_seq, after_seq)
    found = tx.all(_NEVER_OFFERED, (peer_no, first, before_ms, rows))
    return [QueuedMessage(*row) for row in found]


def waiting(tx: Tx, peer_no: int, rows: int, after_seq: int = 0) -> list[QueuedMessage]:
    """Messages behind `after_seq` that the peer has not acknowledged, in order."""
    state = stream(tx, peer_no)
    first = max(state.acked_seq, after_seq)
    found = tx.all(_MESSAGES_UP_TO + " LIMIT ?", (peer_no, first, state.out_seq, rows))
    return [QueuedMessage(*row) for row in found]


def left_over(tx: Tx) -> list[int]:
    """The peers whose pairing has ended while messages for them are still to be returned."""
    return [int(row[0]) for row in tx.all(_LEFT_OVER)]


def message_at(tx: Tx, peer_no: int, seq: int) -> QueuedMessage | None:
    """The message at one place, None for another record."""
    row = tx.one(_MESSAGES_UP_TO, (peer_no, seq - 1, seq))
    return QueuedMessage(*row) if row else None


def oldest_ms(tx: Tx, peer_no: int) -> int | None:
    """When the oldest message that is not acknowledged was queued (ms UTC)."""
    row = tx.one(_OLDEST, (peer_no, stream(tx, peer_no).acked_seq))
    return int(row[0]) if row else None


def signed_waiting(tx: Tx, peer_no: int) -> tuple[int, int | None]:
    """How many of the owner's records the peer has not acknowledged, and since when (ms UTC)."""
    row = tx.one(_SIGNED, (peer_no, stream(tx, peer_no).acked_seq))
    return (int(row[0]), row[1]) if row else (0, None)


def withdraw(tx: Tx, peer_no: int, message: QueuedMessage, now_ms: int) -> None:
    """Give up a message; its place stays, without a record."""
    changed = tx.run(
        "UPDATE outbox SET withdrawn_ms = ? WHERE peer_no = ? AND seq = ? AND withdrawn_ms IS NULL",
        (now_ms, peer_no, message.seq),
    )
    if changed:
        _count(tx, peer_no, -1, -message.size_bytes)


def forget_acknowledged(tx: Tx, before_ms: int, rows: int) -> int:
    """Remove up to `rows` places that were acknowledged before `before_ms`; how many went."""
    return tx.run(
        "DELETE FROM outbox WHERE (peer_no, seq) IN (SELECT peer_no, seq FROM outbox"
        " INDEXED BY outbox_acknowledged WHERE acked_ms IS NOT NULL AND acked_ms < ? LIMIT ?)",
        (before_ms, rows),
    )


# -- in --------------------------------------------------------------------------------------------


def name_incoming(tx: Tx, peer_no: int, stream: str) -> None:
    """So the peer's stream is called, if nobody knew before."""
    tx.run(
        "UPDATE streams SET in_stream = ? WHERE peer_no = ? AND in_stream IS NULL",
        (stream, peer_no),
    )


def name_store(tx: Tx, peer_no: int, store: str) -> None:
    """So the peer's store is called, if nobody knew before."""
    tx.run(
        "UPDATE streams SET in_store = ? WHERE peer_no = ? AND in_store IS NULL", (store, peer_no)
    )


def received(tx: Tx, peer_no: int, seq: int, head: bytes, lag_ms: int | None = None) -> None:
    """Everything of the peer's stream up to `seq` is committed with this transaction.

    `lag_ms`: how long after it was signed the last record came; below 0 where the peer's clock is
    ahead of ours.
    """
    tx.run(
        "UPDATE streams SET in_seq = ?, in_head = ?, lag_ms = coalesce(?, lag_ms)"
        " WHERE peer_no = ?",
        (seq, head, lag_ms, peer_no),
    )


def stop(tx: Tx, peer_no: int, why: str, now_ms: int) -> None:
    """Nothing goes on between the two, and why; that it was so at `now_ms` (UTC) stays known."""
    tx.run(
        "UPDATE streams SET stopped = ?1, parted = ?1, parted_ms = ?2 WHERE peer_no = ?3",
        (why, now_ms, peer_no),
    )


def go_on(tx: Tx, peer_no: int) -> None:
    """A link stands: nothing stops it now, unless an owner has to act."""
    tx.run(
        "UPDATE streams SET stopped = NULL WHERE peer_no = ? AND stopped <> ?", (peer_no, COPIED)
    )


def release(tx: Tx, peer_no: int) -> None:
    """The owner has acted: whatever stopped the link is forgotten, and each connect compares."""
    tx.run(
        "UPDATE streams SET stopped = NULL, parted = NULL, parted_ms = NULL WHERE peer_no = ?",
        (peer_no,),
    )


# -- inside ----------------------------------------------------------------------------------------


def _queue(
    tx: Tx,
    peer_no: int,
    kind: str,
    digest: bytes,
    size_bytes: int,
    now_ms: int,
    *,
    message_no: int | None = None,
    receipt_no: int | None = None,
    text: str | None = None,
) -> None:
    row = tx.one("SELECT out_seq, out_head FROM streams WHERE peer_no = ?", (peer_no,))
    if row is None:
        raise LookupError(f"no streams of peer {peer_no}")
    seq, head = row[0] + 1, extended(row[1], digest)
    place = (peer_no, seq, kind, digest, head, size_bytes, message_no, receipt_no, text, now_ms)
    tx.run(_PLACE, place)
    messages, waiting_bytes = (0, 0) if message_no is None else (1, size_bytes)
    tx.run(_ADVANCE, (seq, head, messages, waiting_bytes, peer_no))


def _count(tx: Tx, peer_no: int, messages: int, size_bytes: int) -> None:
    tx.run(
        "UPDATE streams SET queued_messages = queued_messages + ?, queued_bytes = queued_bytes + ?"
        " WHERE peer_no = ?",
        (messages, size_bytes, peer_no),
    )


def _record(
    kind: str, payload: str | None, signature: bytes | None, signer: str, record: str | None
) -> Record:
    if record is not None:
        text, signatures = json.loads(record)
        return Record(kind, text, dict(signatures))
    assert payload is not None
    assert signature is not None
    signed: Mapping[str, str] = {signer: base64.b64encode(signature).decode()}
    return Record(kind, payload, signed)
