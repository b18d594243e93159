"""`mail.inbox`, `mail.read`, `mail.ack`, `mail.sent`: the holder's own mail.

Listing never changes a state, reading marks *read*, only an ack clears. The owner's mailbox is
served by the same functions (`mbx.daemon.methods.owners_mail`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mbx.core import cursor, limits, names
from mbx.core.delivery import OUTCOMES, Stage
from mbx.core.errors import MbxError
from mbx.core.evidence import HARNESSES
from mbx.core.framing import boundary_for
from mbx.core.ids import IdPrefix, parse_prefix
from mbx.core.lines import imitations
from mbx.core.message import KINDS
from mbx.daemon import listing, mailboxes
from mbx.daemon.authority import Reader
from mbx.daemon.budget import Budget, json_bytes
from mbx.daemon.context import Answer, Context, Result
from mbx.daemon.effects import Glimpsed
from mbx.daemon.gate import Holder, Mailbox
from mbx.daemon.mailboxes import AckWords
from mbx.daemon.methods.table import lease_method
from mbx.daemon.params import Params
from mbx.daemon.times import rfc3339
from mbx.store import forwards, identities, messages
from mbx.store.database import Tx
from mbx.store.messages import Head, SentHead

_ENTRY_MIN_BYTES: Final = 1_024
"""With less room than this no message is opened any more."""

_ESCAPE_FACTOR: Final = 6
"""The most that JSON makes of one byte of text (``\\u0001``)."""

# -- inbox ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InboxRequest:
    """A page of the inbox."""

    rows: int
    cursor: str | None
    kind: str | None
    sender: str | None
    acked_too: bool

    @property
    def is_long(self) -> bool:
        """With a filter, much may have to be passed over before a page is full."""
        return self.kind is not None or self.sender is not None


def inbox_request(params: Params) -> InboxRequest:
    """The parameters of an inbox. Raises MbxError."""
    request = InboxRequest(
        params.rows(),
        params.optional_string("cursor"),
        params.choice("kind", KINDS),
        params.optional_string("from"),
        params.boolean("all"),
    )
    if request.sender is not None:
        names.parse_address(request.sender)
    return request


def inbox(context: Context, tx: Tx, own: Mailbox, request: InboxRequest) -> Answer:
    """A page of a mailbox; with a filter it may be short, or empty, and yet not the last."""
    filters = (request.kind, request.sender, request.acked_too)
    after_no, scan_end = 0, None
    inserted = forwards.handed_on(tx, own.identity_no)
    if request.cursor is not None:
        after_no = cursor.decode(request.cursor, "inbox", own.identity, filters, inserted)
    sender_no = listing.correspondent(context, tx, request.sender)
    if request.is_long:
        scan_end = messages.scan_end(
            tx, own.identity_no, after_no=after_no, acked_too=request.acked_too
        )
    heads = messages.page(
        tx,
        own.identity_no,
        after_no=after_no,
        until_no=messages.NEWEST if scan_end is None else scan_end,
        rows=request.rows + 1,
        kind=request.kind,
        sender_no=sender_no,
        acked_too=request.acked_too,
    )
    shown = heads[: request.rows]
    last_no = shown[-1].no if len(heads) > len(shown) else scan_end
    reader = listing.reader(context, tx, own.identity)
    following = last_no and cursor.encode("inbox", own.identity, filters, last_no, inserted)
    return Answer(
        {
            "messages": [listing.listed(context, reader, head) for head in shown],
            "unread": identities.unread(tx, own.identity_no),
            "next_cursor": following,
            "has_more": following is not None,
        },
        mailboxes.glimpsed(context, own, reader, shown),
    )


# -- read -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """Messages to read: the body from byte `offset`, at most `max_bytes` of it."""

    ids: tuple[str, ...]
    offset: int
    max_bytes: int


def read_request(params: Params) -> ReadRequest:
    """The parameters of a read. Raises MbxError."""
    request = ReadRequest(
        params.strings("ids", limits.IDS_MAX, required=True),
        params.integer("offset", 0, 0, limits.BODY_MAX_BYTES),
        params.integer("max_bytes", limits.BODY_MAX_BYTES, 4, limits.BODY_MAX_BYTES),
    )
    if request.offset and len(request.ids) > 1:
        raise MbxError("usage", "offset goes with one id")
    return request


def read(context: Context, tx: Tx, own: Mailbox, request: ReadRequest) -> Answer:
    """Messages with their bodies, marked read."""
    reader = listing.reader(context, tx, own.identity)
    shown, failed, seen = _shown(context, tx, own, reader, request)
    effects = mailboxes.mark_read(context, tx, own, [head for head, _ in seen])
    if isinstance(own, Holder):
        read = (mailboxes.exposure(context, own, reader, head, content) for head, content in seen)
        mailboxes.expose(tx, own, read)
    unread = identities.unread(tx, own.identity_no)
    return Answer({"messages": shown, "failed": failed, "unread": unread}, effects)


def peek(context: Context, tx: Tx, own: Mailbox, request: ReadRequest) -> Answer:
    """Reading while nothing can be written: what was shown stays unread."""
    reader = listing.reader(context, tx, own.identity)
    shown, failed, seen = _shown(context, tx, own, reader, request)
    unread = identities.unread(tx, own.identity_no)
    warning = "the disk is full: what was read could not be marked read"
    result = {"messages": shown, "failed": failed, "unread": unread, "warnings": [warning]}
    if not isinstance(own, Holder):
        return Answer(result)
    read = [mailboxes.exposure(context, own, reader, head, content) for head, content in seen]
    found = tuple(one for one in read if one is not None)
    return Answer(result, (Glimpsed(own.binding.cli, own.binding.session_id, found),))


def _shown(
    context: Context, tx: Tx, own: Mailbox, reader: Reader, request: ReadRequest
) -> tuple[list[Result], list[dict[str, str]], list[tuple[Head, dict[str, Any]]]]:
    """What one answer has room for, the ids that failed, and what was shown with its payload."""
    heads, failed = _find_all(tx, own, request.ids)
    budget = Budget()
    shown: list[Result] = []
    seen: list[tuple[Head, dict[str, Any]]] = []
    for head in heads:
        if budget.left_bytes < _ENTRY_MIN_BYTES:
            failed.append({"id": head.id, "code": "too-many"})
            continue
        content = mailboxes.content(tx, head.no)
        entry, body = _opened(context, tx, reader, head, content)
        if not budget.take(entry) and shown:
            failed.append({"id": head.id, "code": "too-many"})
            continue
        piece = _cut(body, request.offset, request.max_bytes, budget.left_bytes)
        budget.take(piece)
        shown.append({**entry, **_body_fields(body, request.offset, piece)})
        if piece or not body:
            seen.append((head, content))
    return shown, failed, seen


def _opened(
    context: Context, tx: Tx, reader: Reader, head: Head, content: dict[str, Any]
) -> tuple[Result, bytes]:
    body: str = content["body"]
    lines = reader.lines(head)
    draws = (context.moment.nonce(f"boundary {head.no} {n}") for n in range(_ESCAPE_FACTOR))
    boundary = boundary_for(
        lambda: next(draws), body, head.subject, content["topic"] or "", *content["refs"]
    )
    entry = {
        **listing.listed(context, reader, head),
        "stage": Stage(max(head.stage, Stage.READ)).label,
        "to": listing.recipients(context, tx, reader, head, content),
        "reply_to": messages.answered_id(tx, head.no),
        "topic": content["topic"],
        "boundary": boundary,
        "refs": content["refs"],
        "origin": content["origin"],
        "hop": content["hop"],
        "trust_line": lines.trust_line,
        "policy_line": lines.policy_line,
        "imitations": imitations(body),
    }
    return entry, body.encode()


def _cut(body: bytes, offset: int, max_bytes: int, budget_bytes: int) -> str:
    """The text from byte `offset` that fits, cut only at a character. Raises MbxError usage."""
    if offset > len(body) or (offset < len(body) and _continues(body[offset])):
        raise MbxError("usage", f"offset {offset} is not the start of a character of this body")
    whole = body[offset : offset + max_bytes]
    safe = len(whole) * _ESCAPE_FACTOR <= budget_bytes
    if not safe and json_bytes(_whole_characters(whole)) > budget_bytes:
        whole = whole[: max(0, budget_bytes) // _ESCAPE_FACTOR]
    return _whole_characters(whole)


def _continues(byte: int) -> bool:
    return byte & 0xC0 == 0x80


def _whole_characters(piece: bytes) -> str:
    return piece.decode("utf-8", "ignore")


def _body_fields(body: bytes, offset: int, piece: str) -> Result:
    end = offset + len(piece.encode())
    truncated = end < len(body)
    return {
        "body": piece,
        "body_offset": offset,
        "body_total": len(body),
        "truncated": truncated,
        "next_offset": end if truncated else None,
    }


def _find_all(tx: Tx, own: Mailbox, ids: Iterable[str]) -> tuple[list[Head], list[dict[str, str]]]:
    """The messages found, each once, and the ids that failed. A lone id that fails raises."""
    wanted = tuple(dict.fromkeys(ids))
    found: dict[int, Head] = {}
    failed: list[dict[str, str]] = []
    for text in wanted:
        try:
            prefix: IdPrefix = parse_prefix(text)
            head = mailboxes.find_received(tx, own, prefix)
        except MbxError as error:
            if len(wanted) == 1:
                raise
            failed.append({"id": text[: limits.ID_CHARS], "code": error.code})
        else:
            found.setdefault(head.no, head)
    return list(found.values()), failed


# -- ack ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AckRequest:
    """Messages to clear, and what was done with them."""

    ids: tuple[str, ...]
    words: AckWords


def ack_request(params: Params) -> AckRequest:
    """The parameters of an ack. Raises MbxError."""
    ids = params.strings("ids", limits.IDS_MAX, required=True)
    outcome = params.choice("outcome", OUTCOMES)
    did, note = params.optional_string("did"), params.optional_string("note")
    return AckRequest(ids, mailboxes.ack_words(outcome, did, note))


def ack(context: Context, tx: Tx, own: Mailbox, request: AckRequest) -> Answer:
    """Clear messages."""
    heads, failed = _find_all(tx, own, request.ids)
    effects = mailboxes.ack(context, tx, own, heads, request.words)
    warnings = [f"did was cut to {limits.DID_KEPT_CHARS} characters"] * request.words.did_cut
    warnings += [
        f"{head.id} was acked before: what was said then stays"
        for head in heads
        if head.stage == Stage.ACKED
    ]
    return Answer(
        {
            "acked": [head.id for head in heads],
            "failed": failed,
            "unread": identities.unread(tx, own.identity_no),
            "warnings": warnings,
        },
        effects,
    )


# -- sent -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SentRequest:
    """One sent message with its body from byte `offset`, or a page of them, newest first."""

    id: IdPrefix | None
    rows: int
    cursor: str | None
    offset: int
    max_bytes: int


def _read_sent(params: Params) -> SentRequest:
    text = params.optional_string("id")
    prefix = parse_prefix(text) if text is not None else None
    request = SentRequest(
        prefix,
        params.rows(),
        params.optional_string("cursor"),
        params.integer("offset", 0, 0, limits.BODY_MAX_BYTES),
        params.integer("max_bytes", limits.BODY_MAX_BYTES, 4, limits.BODY_MAX_BYTES),
    )
    if request.offset and request.id is None:
        raise MbxError("usage", "offset goes with an id")
    return request


def _sent(context: Context, tx: Tx, holder: Holder, request: SentRequest) -> Answer:
    own, reader = holder.binding, listing.reader(context, tx, holder.identity)
    if request.id is not None:
        head = mailboxes.find_sent(tx, holder, request.id)
        entry = _sent_whole(context, tx, reader, head, request)
        return Answer(
            {"messages": [entry], "next_cursor": None, "has_more": False},
            mailboxes.glimpsed(context, holder, reader, [head]),
        )
    before_no = messages.NEWEST
    if request.cursor is not None:
        before_no = cursor.decode(request.cursor, "sent", own.identity, ())
    heads = messages.sent_page(tx, own.identity_no, before_no=before_no, rows=request.rows + 1)
    entries = _within_budget(context, tx, reader, heads[: request.rows])
    has_more = len(heads) > len(entries)
    last_no = heads[len(entries) - 1].no if entries else 0
    following = cursor.encode("sent", own.identity, (), last_no) if has_more else None
    return Answer(
        {"messages": entries, "next_cursor": following, "has_more": has_more},
        mailboxes.glimpsed(context, holder, reader, heads[: len(entries)]),
    )


def _within_budget(
    context: Context, tx: Tx, reader: Reader, heads: Sequence[SentHead]
) -> list[Result]:
    budget, entries = Budget(), list[Result]()
    for head in heads:
        entry = _sent_entry(context, tx, reader, head)
        if not budget.take(entry) and entries:
            break
        entries.append(entry)
    return entries


def _sent_whole(
    context: Context, tx: Tx, reader: Reader, head: SentHead, request: SentRequest
) -> Result:
    """A sent message with as much of its body as the answer has room for behind its receipts."""
    budget, entry = Budget(), _sent_entry(context, tx, reader, head)
    budget.take(entry)
    body: bytes = mailboxes.content(tx, head.no)["body"].encode()
    piece = _cut(body, request.offset, request.max_bytes, budget.left_bytes)
    return {**entry, **_body_fields(body, request.offset, piece)}


def _sent_entry(context: Context, tx: Tx, reader: Reader, head: SentHead) -> Result:
    copies = messages.copies(tx, head.no)
    return {
        "id": head.id,
        "subject": head.subject,
        "to": [listing.address(context, reader, copy.name, copy.peer_no) for copy in copies],
        "at": rfc3339(head.accepted_ms),
        "recipients": [listing.copy_of(context, tx, reader, copy) for copy in copies],
    }


# -- watch ----------------------------------------------------------------------------------------


def _read_nothing(params: Params) -> None:
    return None


def _watch(context: Context, tx: Tx, holder: Holder, request: None) -> Answer:
    """An agent is pushed what it was not told of yet, so that what it leaves unread wakes it once.

    Scripts and people are told at once of all that is unread.
    """
    own, waking = holder.binding, messages.waking(tx, holder.identity_no)
    return Answer(
        {
            "agent": own.name,
            "unread": identities.unread(tx, own.identity_no),
            "waking": waking,
            "arrived": waking > 0 and own.cli not in HARNESSES,
        }
    )


METHODS: Final = (
    lease_method(
        "mail.inbox",
        "Mail that is not acked, oldest first.",
        inbox_request,
        inbox,
        writes=False,
        brief=True,
    ),
    lease_method(
        "mail.read",
        "Read messages and mark them read.",
        read_request,
        read,
        writes=True,
        when_full=peek,
        keyed=False,
    ),
    lease_method(
        "mail.ack", "Clear messages, saying what was done.", ack_request, ack, writes=True
    ),
    lease_method(
        "mail.watch",
        "From now on this connection is told, by `mail.arrived`, of mail that wakes.",
        _read_nothing,
        _watch,
        writes=False,
        brief=True,
    ),
    lease_method(
        "mail.sent", "What became of the mail sent, newest first.", _read_sent, _sent, writes=False
    ),
)
"""What this module adds to the table of methods."""
