"""`mail.thread` and `mail.search`: the holder's own mail, sent and received, in other orders."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from mbx.core import cursor, limits, names
from mbx.core.errors import MbxError
from mbx.core.exposure import Exposure
from mbx.core.ids import IdPrefix, parse_prefix
from mbx.core.message import KINDS
from mbx.core.moments import parse_moment
from mbx.core.terms import match_of
from mbx.core.text import check_line
from mbx.daemon import listing, mailboxes
from mbx.daemon.authority import Reader
from mbx.daemon.budget import Budget
from mbx.daemon.context import Answer, Context, Result
from mbx.daemon.gate import Holder
from mbx.daemon.methods.table import lease_method
from mbx.daemon.params import Params
from mbx.store import forwards, history, messages, search
from mbx.store.database import Tx
from mbx.store.history import OwnMessage
from mbx.store.search import Filters

_INDEX_BATCH: Final = 1_024
_SNIPPET_CHARS: Final = 120
_SNIPPET_BEFORE_CHARS: Final = 30


# -- thread ---------------------------------------------------------------------------------------


class ThreadRequest(NamedTuple):
    """The thread of a message, in pages."""

    id: IdPrefix
    rows: int
    cursor: str | None


def _read_thread(params: Params) -> ThreadRequest:
    prefix = parse_prefix(params.string("id"))
    rows = params.integer("limit", limits.LIST_MAX_ROWS, 1, limits.LIST_MAX_ROWS)
    return ThreadRequest(prefix, rows, params.optional_string("cursor"))


def _thread(context: Context, tx: Tx, holder: Holder, request: ThreadRequest) -> Answer:
    own = holder.binding
    thread = _thread_of(tx, own.identity_no, request.id)
    after_no, inserted = 0, forwards.handed_on(tx, own.identity_no)
    if request.cursor is not None:
        after_no = cursor.decode(request.cursor, "thread", own.identity, (thread,), inserted)
    found = history.thread_page(
        tx, own.identity_no, thread, after_no=after_no, rows=request.rows + 1
    )
    budget, entries = Budget(), list[Result]()
    reader = listing.reader(context, tx, own.identity)
    for message in found[: request.rows]:
        entry = _thread_entry(context, tx, reader, own.identity_no, message)
        if not budget.take(entry) and entries:
            break
        entries.append(entry)
    has_more = len(found) > len(entries)
    last_no = found[len(entries) - 1].no if entries else 0
    following = None
    if has_more:
        following = cursor.encode("thread", own.identity, (thread,), last_no, inserted)
    return Answer(
        {"thread": thread, "messages": entries, "next_cursor": following, "has_more": has_more},
        mailboxes.glimpsed(context, holder, reader, found[: len(entries)]),
    )


def _thread_of(tx: Tx, own_no: int, prefix: IdPrefix) -> str:
    found = history.own(tx, own_no, prefix)
    if not found:
        raise MbxError("not-found", f"no message with id {prefix.text}", "mbx inbox --all")
    if len({thread for _, thread in found}) > 1:
        raise MbxError(
            "ambiguous",
            f"{prefix.text} fits {len(found)} messages",
            "give more characters of the id",
            candidates=[message_id for message_id, _ in found],
        )
    return found[0][1]


def _thread_entry(
    context: Context, tx: Tx, reader: Reader, own_no: int, message: OwnMessage
) -> Result:
    """A message with its receipts: all of them for its sender, else those of the own copy."""
    copies = messages.copies(tx, message.no)
    shown = [copy for copy in copies if message.sender_no == own_no or copy.recipient_no == own_no]
    return {
        **listing.listed(context, reader, message),
        "to": [listing.address(context, reader, copy.name, copy.peer_no) for copy in copies],
        "reply_to": message.reply_to,
        "recipients": [listing.copy_of(context, tx, reader, copy) for copy in shown],
    }


# -- search ---------------------------------------------------------------------------------------


class SearchRequest(NamedTuple):
    """Words to find, literally, and what to leave out."""

    match: str
    words: tuple[str, ...]
    sender: str | None
    recipient: str | None
    kind: str | None
    since: str | None
    until: str | None
    rows: int
    cursor: str | None


def _read_search(params: Params) -> SearchRequest:
    query = params.string("query")
    check_line("query", query, limits.SEARCH_CHARS_MAX)
    request = SearchRequest(
        _match(query),
        tuple(query.split()),
        params.optional_string("from"),
        params.optional_string("to"),
        params.choice("kind", KINDS),
        params.optional_string("since"),
        params.optional_string("until"),
        params.rows(),
        params.optional_string("cursor"),
    )
    for address in (request.sender, request.recipient):
        if address is not None:
            names.parse_address(address)
    for field, text in (("since", request.since), ("until", request.until)):
        if text is not None:
            parse_moment(field, text, 0)
    return request


def _match(query: str) -> str:
    words = query.split()
    if len(words) > limits.SEARCH_WORDS_MAX:
        raise MbxError(
            "too-many",
            f"{len(words)} words are too many to search for; {limits.SEARCH_WORDS_MAX} are allowed",
            limit=limits.SEARCH_WORDS_MAX,
        )
    found = [match for word in words if (match := match_of(word))]
    if not found:
        raise MbxError("usage", "a search needs a word with a letter or a digit")
    return " AND ".join(found)


def _search(context: Context, tx: Tx, holder: Holder, request: SearchRequest) -> Answer:
    own, now_ms = holder.binding, context.moment.now_ms
    # What was there when it was asked for is in the index; a batch more, for what came since.
    search.index_some(tx, _INDEX_BATCH)
    position = messages.NEWEST
    scope = request[:7]
    if request.cursor is not None:
        position = cursor.decode(request.cursor, "search", own.identity, scope)
    filters = Filters(
        request.kind,
        listing.correspondent(context, tx, request.sender),
        listing.correspondent(context, tx, request.recipient),
        parse_moment("since", request.since, now_ms) if request.since else None,
        parse_moment("until", request.until, now_ms) if request.until else None,
    )
    found = history.found_page(
        tx, own.identity_no, request.match, filters, before_no=position, rows=request.rows + 1
    )
    shown = found[: request.rows]
    has_more = len(found) > len(shown)
    following = cursor.encode("search", own.identity, scope, shown[-1].no) if has_more else None
    return Answer(
        {
            "messages": _hits(context, tx, holder, shown, request.words),
            "next_cursor": following,
            "has_more": has_more,
        }
    )


def _hits(
    context: Context,
    tx: Tx,
    holder: Holder,
    found: Sequence[OwnMessage],
    words: tuple[str, ...],
) -> list[Result]:
    """The hits with a piece of their bodies, to which the conversation is exposed as by reading."""
    reader = listing.reader(context, tx, holder.identity)
    hits, read = list[Result](), list[Exposure | None]()
    for message in found:
        content = mailboxes.content(tx, message.no)
        read.append(mailboxes.exposure(context, holder, reader, message, content))
        listed = listing.listed(context, reader, message)
        hits.append({**listed, "snippet": snippet(content["body"], words)})
    mailboxes.expose(tx, holder, read)
    return hits


def snippet(body: str, words: tuple[str, ...]) -> str:
    """About 120 characters of the body around the first of `words`, on one line."""
    folded = body.casefold()
    # Folding may change lengths; then the place is a little off, never outside.
    places = [place for word in words if (place := folded.find(word.casefold())) >= 0]
    start = max(0, min(places, default=0) - _SNIPPET_BEFORE_CHARS)
    piece = body[start : start + _SNIPPET_CHARS]
    before = "\u2026" if start else ""
    after = "\u2026" if start + _SNIPPET_CHARS < len(body) else ""
    return before + " ".join(piece.split()) + after


METHODS: Final = (
    lease_method(
        "mail.thread",
        "A conversation in order, each message with its receipts; changes nothing.",
        _read_thread,
        _thread,
        writes=False,
    ),
    lease_method(
        "mail.search",
        "One's own mail by words, taken literally, newest first.",
        _read_search,
        _search,
        writes=True,
        keyed=False,
        after_index=True,
    ),
)
"""What this module adds to the table of methods."""
