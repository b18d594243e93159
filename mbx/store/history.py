"""Threads and searches: messages of one identity's own, sent or received, in other orders."""

from typing import Final, NamedTuple

from mbx.core.ids import IdPrefix, parse_prefix
from mbx.store import search
from mbx.store.database import Row, Tx
from mbx.store.search import Filters

_OF_THREAD: Final = (
    "SELECT m.no, m.id, i.name, m.subject, m.kind, m.accepted_ms, m.thread, m.needs_reply,"
    " m.body_bytes, m.sender_no, (SELECT d.stage FROM deliveries AS d"
    " WHERE d.recipient_no = ?1 AND d.message_no = m.no),"
    " (SELECT p.id FROM messages AS p WHERE p.no = m.reply_no), i.identity, m.hop, m.external,"
    " m.owner_key, i.peer_no, m.root_ms"
    " FROM messages AS m JOIN identities AS i ON i.no = m.sender_no"
    " WHERE ((m.thread = ?2 AND m.thread <> m.id) OR m.id8 = ?3) AND m.thread = ?2"
    " AND m.no > ?4 AND (+m.sender_no = ?1 OR EXISTS (SELECT 1 FROM deliveries AS d"
    " WHERE d.recipient_no = ?1 AND d.message_no = m.no)) ORDER BY m.no LIMIT ?5"
)
_FOUND: Final = (
    "SELECT m.no, m.id, i.name, m.subject, m.kind, m.accepted_ms, m.thread, m.needs_reply,"
    " m.body_bytes, m.sender_no, (SELECT d.stage FROM deliveries AS d"
    " WHERE d.recipient_no = ?1 AND d.message_no = m.no),"
    " (SELECT p.id FROM messages AS p WHERE p.no = m.reply_no), i.identity, m.hop, m.external,"
    " m.owner_key, i.peer_no, m.root_ms"
    " FROM search AS s JOIN messages AS m ON m.no = s.rowid"
    " JOIN identities AS i ON i.no = m.sender_no"
    " WHERE s.search MATCH ?2 AND s.rowid < ?3 AND s.rowid >= ?10 AND (m.sender_no = ?1 OR EXISTS"
    " (SELECT 1 FROM deliveries AS d WHERE d.recipient_no = ?1 AND d.message_no = m.no))"
    " AND (?4 IS NULL OR m.kind = ?4) AND (?5 IS NULL OR m.sender_no = ?5)"
    " AND (?6 IS NULL OR EXISTS (SELECT 1 FROM deliveries AS t"
    " WHERE t.recipient_no = ?6 AND t.message_no = m.no))"
    " AND (?7 IS NULL OR m.accepted_ms >= ?7) AND (?8 IS NULL OR m.accepted_ms < ?8)"
    " ORDER BY s.rowid DESC LIMIT ?9"
)
_ONE: Final = (
    "SELECT m.id, m.thread FROM messages AS m"
    " WHERE m.id8 BETWEEN ?2 AND ?3 AND (+m.sender_no = ?1 OR EXISTS (SELECT 1 FROM deliveries AS d"
    " WHERE d.recipient_no = ?1 AND d.message_no = m.no)) ORDER BY +m.no LIMIT 8"
)


class OwnMessage(NamedTuple):
    """One message of an identity's own; `stage` is of its copy, None where it only sent it.

    `root_ms` as in `mbx.store.messages.Head`.
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
    sender_no: int
    stage: int | None
    reply_to: str | None
    sender_identity: str
    hop: int
    external: int
    owner_key: str | None
    peer_no: int | None
    root_ms: int | None


def thread_page(tx: Tx, own_no: int, thread: str, *, after_no: int, rows: int) -> list[OwnMessage]:
    """Messages of a thread that `own_no` sent or received, in order of arrival."""
    root8 = parse_prefix(thread).low8
    parameters = (own_no, thread, root8, after_no, rows)
    return [_row(row) for row in tx.all(_OF_THREAD, parameters)]


def found_page(
    tx: Tx, own_no: int, words: str, filters: Filters, *, before_no: int, rows: int
) -> list[OwnMessage]:
    """Messages of `own_no` that the full-text expression `words` finds, newest first."""
    match = search.expression(words, own_no, filters)
    low, high = search.bounds(tx, filters)
    high = min(before_no, high)
    if low >= high:
        return []
    parameters = (own_no, match, high, *filters, rows, low)
    return [_row(row) for row in tx.all(_FOUND, parameters)]


def own(tx: Tx, own_no: int, prefix: IdPrefix) -> list[tuple[str, str]]:
    """(id, thread) of the messages sent or received whose id starts with `prefix`."""
    rows = tx.all(_ONE, (own_no, prefix.low8, prefix.high8))
    return [(row[0], row[1]) for row in rows if prefix.matches(row[0])]


def _row(row: Row) -> OwnMessage:
    return OwnMessage(*row)
