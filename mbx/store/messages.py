"""Rows of messages and of their deliveries: the mailboxes."""

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from mbx.core.delivery import Stage
from mbx.core.ids import IdPrefix, id8, parse_prefix
from mbx.core.limits import LIST_MAX_ROWS
from mbx.core.receipt import Fact
from mbx.core.record import Record, Sealed
from mbx.core.terms import is_plain
from mbx.store.database import Tx

_HEAD: Final = (
    "SELECT m.no, m.id, i.name, m.subject, m.kind, m.accepted_ms, m.thread, m.needs_reply,"
    " m.body_bytes, d.stage, m.sender_no, i.identity, m.hop, m.external, m.owner_key,"
    " i.peer_no, m.root_ms FROM deliveries AS d JOIN messages AS m ON m.no = d.message_no"
    " JOIN identities AS i ON i.no = m.sender_no"
)
SCAN_ROWS: Final = 2_000
"""So many messages are looked at for one page with a filter: it stays a matter of milliseconds."""

NEWEST: Final = 2**62
"""Above every key of a message."""

_FILTER: Final = (
    " AND d.message_no > ?2 AND d.message_no <= ?6 AND (?3 IS NULL OR m.kind = ?3)"
    " AND (?4 IS NULL OR m.sender_no = ?4) ORDER BY d.message_no LIMIT ?5"
)
# By itself the planner may walk the whole mailbox: 2 ms instead of 0.05 at 50,000 acked messages.
_OPEN_PAGE: Final = (
    _HEAD.replace(" AS d JOIN", " AS d INDEXED BY deliveries_open JOIN")
    + " WHERE d.recipient_no = ?1 AND d.stage < 5"
    + _FILTER
)
_WHOLE_PAGE: Final = _HEAD + " WHERE d.recipient_no = ?1" + _FILTER
_OPEN_BEHIND: Final = (
    "SELECT message_no FROM deliveries INDEXED BY deliveries_open WHERE recipient_no = ?"
    " AND stage < 5 AND message_no > ? ORDER BY message_no LIMIT 2 OFFSET ?"
)
_WHOLE_BEHIND: Final = (
    "SELECT message_no FROM deliveries WHERE recipient_no = ? AND message_no > ?"
    " ORDER BY message_no LIMIT 2 OFFSET ?"
)
# The signs of plus keep SQLite from walking the whole mailbox in order instead of asking for the id
# (85 ms for each id among 10^5 messages, measured).
_RECEIVED: Final = (
    _HEAD + " WHERE m.id8 BETWEEN ?2 AND ?3 AND +d.recipient_no = ?1 ORDER BY +m.no LIMIT 8"
)
_SENT_PAGE: Final = (
    "SELECT no, id, subject, accepted_ms, sender_no, hop, external, owner_key, root_ms"
    " FROM messages WHERE sender_no = ?1 AND no < ?2 ORDER BY no DESC LIMIT ?3"
)
_SENT_ONE: Final = (
    "SELECT no, id, subject, accepted_ms, sender_no, hop, external, owner_key, root_ms"
    " FROM messages WHERE id8 BETWEEN ?2 AND ?3 AND +sender_no = ?1 ORDER BY +no LIMIT 8"
)
_COPIES: Final = (
    "SELECT i.name, i.identity, d.recipient_no, d.stage, d.stage_ms, d.did, d.note, d.outcome,"
    " d.error, i.peer_no FROM deliveries AS d JOIN identities AS i ON i.no = d.recipient_no"
    " WHERE d.message_no = ? ORDER BY d.recipient_no"
)
_SHARED: Final = (
    "SELECT m.no, m.id, m.thread FROM messages AS m JOIN identities AS i ON i.no = m.sender_no"
    " WHERE m.id8 BETWEEN ?1 AND ?2 AND ("
    "EXISTS (SELECT 1 FROM peers AS p WHERE p.no = i.peer_no AND p.key_id = ?3)"
    " OR EXISTS (SELECT 1 FROM deliveries AS d JOIN identities AS r ON r.no = d.recipient_no"
    " JOIN peers AS p ON p.no = r.peer_no WHERE d.message_no = m.no AND p.key_id = ?3)"
    " OR EXISTS (SELECT 1 FROM json_each(m.payload, '$.aud') AS a WHERE a.value = ?3))"
)
_IS_THREAD: Final = (
    "SELECT 1 FROM messages WHERE thread = ?1 AND thread <> id"
    " UNION ALL SELECT 1 FROM messages WHERE id8 BETWEEN ?2 AND ?3 AND id = ?1 LIMIT 1"
)
_IN_THREAD: Final = (
    "SELECT 1 FROM (SELECT no, sender_no FROM messages WHERE thread = ?1 AND thread <> id"
    " ORDER BY no DESC LIMIT ?3) AS m JOIN identities AS i ON i.no = m.sender_no"
    " WHERE EXISTS (SELECT 1 FROM peers AS p WHERE p.no = i.peer_no AND p.key_id = ?2)"
    " OR EXISTS (SELECT 1 FROM deliveries AS d JOIN identities AS r ON r.no = d.recipient_no"
    " JOIN peers AS p ON p.no = r.peer_no WHERE d.message_no = m.no AND p.key_id = ?2) LIMIT 1"
)
_SAYS: Final = (
    "SELECT 1 FROM (SELECT subject, payload FROM messages WHERE sender_no = ? ORDER BY no DESC"
    " LIMIT ?) WHERE subject = ? AND instr(payload, ?) > 0 LIMIT 1"
)
_INSERT: Final = (
    "INSERT INTO messages (id8, id, thread, reply_no, sender_no, accepted_ms, kind, needs_reply,"
    " plain, body_bytes, subject, digest, signature, payload, hop, external, owner_key,"
    " root_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_DELIVER: Final = (
    "INSERT INTO deliveries (recipient_no, message_no, stage, stage_ms, wakes)"
    " VALUES (?, ?, ?, ?, ?)"
)
_REACHED: Final = (
    "SELECT DISTINCT d.recipient_no FROM (SELECT no, accepted_ms FROM messages"
    " WHERE sender_no = ?1 ORDER BY no DESC LIMIT 32) AS newest"
    " CROSS JOIN deliveries AS d ON d.message_no = newest.no"
    " WHERE newest.accepted_ms >= ?2"
)
# By EXISTS: a list of all identities of the host would be made for each message.
_HANDED_OVER: Final = (
    "UPDATE deliveries SET stage = 1, stage_ms = ?1 WHERE message_no IN (SELECT o.message_no"
    " FROM outbox AS o WHERE o.peer_no = ?2 AND o.seq > ?3 AND o.seq <= ?4"
    " AND o.message_no IS NOT NULL AND o.withdrawn_ms IS NULL) AND stage = 0"
    " AND EXISTS (SELECT 1 FROM identities AS i WHERE i.no = recipient_no AND i.peer_no = ?2)"
)
_COPY_STATED: Final = (
    "SELECT m.no, m.id, d.stage FROM messages AS m CROSS JOIN deliveries AS d"
    " ON d.recipient_no = ?3 AND d.message_no = m.no WHERE m.id8 BETWEEN ?1 AND ?2"
)
_ADVANCE: Final = (
    "UPDATE deliveries SET stage = ?, stage_ms = ?, epoch = ?"
    " WHERE recipient_no = ? AND message_no = ?"
)
_ACK: Final = (
    "UPDATE deliveries SET stage = 5, stage_ms = ?, epoch = ?, outcome = ?, did = ?, note = ?"
    " WHERE recipient_no = ? AND message_no = ?"
)


class NewMessage(NamedTuple):
    """What the store keeps of an accepted message."""

    record: Sealed
    sender_no: int
    accepted_ms: int
    kind: str
    needs_reply: bool
    subject: str
    body: str
    body_bytes: int
    thread: str
    reply_no: int | None
    hop: int = 0
    external: bool = False
    owner_key: str | None = None
    """The owner's key that signed it, None for the host's."""
    root_ms: int | None = None
    """When it first came from outside, if it did; None: as of its reading."""


class Head(NamedTuple):
    """One message in one mailbox, as listings show it (everything but the text itself).

    `root_ms`: of what is `external`, when it first came from outside; None: as of its reading.
    """

    no: int
    id: str
    sender: str
    subject: str
    kind: str
    accepted_ms: int
    thread: str
    needs_reply: int
    body_bytes: int
    stage: int
    sender_no: int
    sender_identity: str
    hop: int
    external: int
    owner_key: str | None
    peer_no: int | None
    """The paired host that its sender lives on, None for this one."""
    root_ms: int | None


@dataclass(frozen=True, slots=True)
class SentHead:
    """One message in its sender's list; what is not shown of it as in `Head`."""

    no: int
    id: str
    subject: str
    accepted_ms: int
    sender_no: int
    hop: int
    external: int
    owner_key: str | None
    root_ms: int | None


@dataclass(frozen=True, slots=True)
class Copy:
    """One recipient's delivery as its sender may see it."""

    name: str
    identity: str
    recipient_no: int
    stage: int
    stage_ms: int
    did: str | None
    note: str | None
    outcome: str | None
    error: str | None
    """Why it came back, as a code; None where it did not."""
    peer_no: int | None
    """The paired host that its recipient lives on, None for this one."""


class Origin(NamedTuple):
    """A message as what comes back of it names it."""

    id: str
    thread: str
    sender_no: int


def add(tx: Tx, message: NewMessage, recipients: Sequence[tuple[int, bool]]) -> int:
    """Store a message and deliver it to each of `recipients` (identity key, wakes); its key."""
    record = message.record
    no = tx.insert(
        _INSERT,
        (
            id8(record.digest),
            record.id,
            message.thread,
            message.reply_no,
            message.sender_no,
            message.accepted_ms,
            message.kind,
            message.needs_reply,
            is_plain(message.body) and is_plain(message.subject),
            message.body_bytes,
            message.subject,
            record.digest,
            record.signature,
            record.payload,
            message.hop,
            message.external,
            message.owner_key,
            message.root_ms,
        ),
    )
    for recipient_no, wakes in recipients:
        tx.run(_DELIVER, (recipient_no, no, int(Stage.DELIVERED), message.accepted_ms, wakes))
        tx.run("UPDATE mailboxes SET unread = unread + 1 WHERE identity_no = ?", (recipient_no,))
    return no


def queue(tx: Tx, no: int, recipient_nos: Iterable[int], now_ms: int) -> None:
    """Copies of a stored message for mailboxes of paired hosts: on their way, not there yet."""
    for recipient_no in recipient_nos:
        tx.run(_DELIVER, (recipient_no, no, int(Stage.QUEUED), now_ms, False))


def copy_to(tx: Tx, record_id: str, recipient_no: int) -> tuple[int, Stage] | None:
    """Key and stage of the copy of the message with this id for one mailbox, None without one."""
    prefix = parse_prefix(record_id)
    rows = tx.all(_COPY_STATED, (prefix.low8, prefix.high8, recipient_no))
    return next(((no, Stage(stage)) for no, found, stage in rows if found == record_id), None)


def handed_over(tx: Tx, peer_no: int, after_seq: int, upto_seq: int, now_ms: int) -> None:
    """A paired host has the messages at these places: their queued copies there are handed over."""
    tx.run(_HANDED_OVER, (now_ms, peer_no, after_seq, upto_seq))


def reported(tx: Tx, no: int, recipient_no: int, fact: Fact) -> None:
    """Bring a copy on a paired host to what its host states; the caller has compared the stages."""
    tx.run(
        "UPDATE deliveries SET stage = ?, stage_ms = ?, outcome = ?, did = ?, note = ?"
        " WHERE recipient_no = ? AND message_no = ?",
        (
            int(fact.stage),
            fact.at_ms,
            fact.outcome,
            fact.did,
            fact.note,
            recipient_no,
            no,
        ),
    )


def returned(tx: Tx, no: int, recipient_no: int, error: str, now_ms: int) -> None:
    """A copy came back, for the reason of the code `error`."""
    tx.run(
        "UPDATE deliveries SET error = ?, stage_ms = ? WHERE recipient_no = ? AND message_no = ?",
        (error, now_ms, recipient_no, no),
    )


def page(
    tx: Tx,
    recipient_no: int,
    *,
    after_no: int,
    rows: int,
    kind: str | None,
    sender_no: int | None,
    acked_too: bool,
    until_no: int = NEWEST,
) -> list[Head]:
    """Up to `rows` messages of a mailbox in order of arrival: after `after_no`, to `until_no`."""
    query = _WHOLE_PAGE if acked_too else _OPEN_PAGE
    parameters = (recipient_no, after_no, kind, sender_no, rows, until_no)
    return [Head(*row) for row in tx.all(query, parameters)]


def scan_end(tx: Tx, recipient_no: int, *, after_no: int, acked_too: bool) -> int | None:
    """How far one page with a filter looks behind `after_no`; None: to the end of the mailbox."""
    query = _WHOLE_BEHIND if acked_too else _OPEN_BEHIND
    last = tx.all(query, (recipient_no, after_no, SCAN_ROWS - 1))
    return int(last[0][0]) if len(last) == 2 else None


def received(tx: Tx, recipient_no: int, prefix: IdPrefix) -> list[Head]:
    """The messages of a mailbox whose id starts with `prefix`."""
    rows = tx.all(_RECEIVED, (recipient_no, prefix.low8, prefix.high8))
    heads = [Head(*row) for row in rows]
    return [head for head in heads if prefix.matches(head.id)]


def payload(tx: Tx, no: int) -> str:
    """The exact signed text of a message."""
    row = tx.one("SELECT payload FROM messages WHERE no = ?", (no,))
    if row is None:
        raise LookupError(f"no message {no}")
    return str(row[0])


def by_id(tx: Tx, record_id: str) -> int | None:
    """The key of the message with this whole id, or None."""
    prefix = parse_prefix(record_id)
    rows = tx.all(
        "SELECT no, id FROM messages WHERE id8 BETWEEN ? AND ?", (prefix.low8, prefix.high8)
    )
    return next((int(no) for no, found in rows if found == record_id), None)


def is_known(tx: Tx, digest: bytes) -> bool:
    """Whether the message of this record is here."""
    rows = tx.all("SELECT digest FROM messages WHERE id8 = ?", (id8(digest),))
    return any(row[0] == digest for row in rows)


def shared(tx: Tx, record_id: str, key_id: str) -> tuple[int, str] | None:
    """Key and thread of the message with this id, if it is from or for the host of this key.

    In whichever pairing with it; the message's own audience names it by that key too.
    """
    prefix = parse_prefix(record_id)
    rows = tx.all(_SHARED, (prefix.low8, prefix.high8, key_id))
    return next(((int(no), str(thread)) for no, found, thread in rows if found == record_id), None)


def is_thread(tx: Tx, thread: str) -> bool:
    """Whether any message here stands in this thread, or began it."""
    prefix = parse_prefix(thread)
    return tx.one(_IS_THREAD, (thread, prefix.low8, prefix.high8)) is not None


def has_part(tx: Tx, thread: str, key_id: str) -> bool:
    """Whether one of the newest messages of a thread, but for its first, is from or for a host."""
    return tx.one(_IN_THREAD, (thread, key_id, LIST_MAX_ROWS)) is not None


def answered_id(tx: Tx, no: int) -> str | None:
    """The id of what a message answers, as far as that is here and was accepted as such."""
    row = tx.one(
        "SELECT p.id FROM messages AS m JOIN messages AS p ON p.no = m.reply_no WHERE m.no = ?",
        (no,),
    )
    return str(row[0]) if row else None


def says(tx: Tx, sender_no: int, subject: str, word: str) -> bool:
    """Whether one of the newest messages of a sender has this subject, and the word in it."""
    return tx.one(_SAYS, (sender_no, LIST_MAX_ROWS, subject, word)) is not None


def origin(tx: Tx, no: int) -> Origin:
    """Who sent a message, and in which thread; it exists."""
    row = tx.one("SELECT id, thread, sender_no FROM messages WHERE no = ?", (no,))
    if row is None:
        raise LookupError(f"no message {no}")
    return Origin(*row)


def signed(tx: Tx, no: int, key_id: str) -> Record:
    """A message of the owner's as the record that it is, to be verified again."""
    row = tx.one("SELECT payload, signature FROM messages WHERE no = ?", (no,))
    if row is None:
        raise LookupError(f"no message {no}")
    signature = base64.b64encode(row[1]).decode()
    return Record("owner-mail", row[0], {key_id: signature})


def advance(
    tx: Tx, recipient_no: int, head: Head, stage: Stage, *, now_ms: int, epoch: int
) -> None:
    """Bring a delivery to a later `stage` under the lease `epoch`."""
    tx.run(_ADVANCE, (int(stage), now_ms, epoch, recipient_no, head.no))
    if head.stage < Stage.READ <= stage:
        tx.run("UPDATE mailboxes SET unread = unread - 1 WHERE identity_no = ?", (recipient_no,))


def ack(
    tx: Tx,
    recipient_no: int,
    head: Head,
    *,
    now_ms: int,
    epoch: int,
    outcome: str,
    did: str | None,
    note: str | None,
) -> None:
    """Bring a delivery to *acked* with what was done."""
    tx.run(_ACK, (now_ms, epoch, outcome, did, note, recipient_no, head.no))
    if head.stage < Stage.READ:
        tx.run("UPDATE mailboxes SET unread = unread - 1 WHERE identity_no = ?", (recipient_no,))


def sent_page(tx: Tx, sender_no: int, *, before_no: int, rows: int) -> list[SentHead]:
    """Up to `rows` messages that an identity sent, newest first, those before `before_no`."""
    return [SentHead(*row) for row in tx.all(_SENT_PAGE, (sender_no, before_no, rows))]


def sent_one(tx: Tx, sender_no: int, prefix: IdPrefix) -> list[SentHead]:
    """The messages that an identity sent whose id starts with `prefix`."""
    heads = [SentHead(*row) for row in tx.all(_SENT_ONE, (sender_no, prefix.low8, prefix.high8))]
    return [head for head in heads if prefix.matches(head.id)]


def copies(tx: Tx, no: int) -> list[Copy]:
    """Every recipient's delivery of a message."""
    return [Copy(*row) for row in tx.all(_COPIES, (no,))]


def waking(tx: Tx, recipient_no: int) -> int:
    """How many unread messages of a mailbox wake its holder (counted up to 1,000)."""
    row = tx.one(
        "SELECT count(*) FROM (SELECT 1 FROM deliveries INDEXED BY deliveries_waking"
        " WHERE recipient_no = ? AND wakes = 1 AND stage < 4 LIMIT 1000)",
        (recipient_no,),
    )
    return int(row[0]) if row else 0


def open_threads(tx: Tx, recipient_no: int) -> int:
    """How many threads have unacked mail in this mailbox (of its first 1,000 messages)."""
    row = tx.one(
        "SELECT count(DISTINCT thread) FROM (SELECT m.thread FROM deliveries AS d"
        " INDEXED BY deliveries_open JOIN messages AS m ON m.no = d.message_no"
        " WHERE d.recipient_no = ? AND d.stage < 5 LIMIT 1000)",
        (recipient_no,),
    )
    return int(row[0]) if row else 0


def reached(tx: Tx, sender_no: int, since_ms: int) -> set[int]:
    """Whom the newest messages of a sender went to, since a time (ms UTC): keys of identities.

    Only a few are looked at: whoever is left out counts as not reached.
    """
    return {row[0] for row in tx.all(_REACHED, (sender_no, since_ms))}
