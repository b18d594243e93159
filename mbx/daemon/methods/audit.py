"""`audit.list` and `audit.verify`: what was done in this house, for the owner's terminal alone."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from mbx.core import cursor
from mbx.core.acts import ACTS
from mbx.core.canonical import JsonValue
from mbx.core.moments import parse_moment
from mbx.daemon import auditing, drafting
from mbx.daemon.budget import Budget
from mbx.daemon.context import Answer, Context, Result
from mbx.daemon.gate import OwnerTerminal
from mbx.daemon.methods.table import owner_method
from mbx.daemon.params import Params
from mbx.daemon.times import rfc3339
from mbx.store import audit, identities
from mbx.store.audit import AuditRow, Wanted
from mbx.store.chain import Fault
from mbx.store.database import Tx

FAULTS_MAX: Final = 20
"""Faults of one piece that are told one by one: a log that is all wrong needs no more words."""

_ROWS_STEP, _ACCEPTANCES_STEP = 0, 1
_STEPS: Final = 2
_LIFTED: Final = frozenset({"cli", "session", "record"})


# -- list -----------------------------------------------------------------------------------------


class ListRequest(NamedTuple):
    """Which rows, and how many."""

    since: str | None
    identity: str | None
    act: str | None
    rows: int
    cursor: str | None


def _read_list(params: Params) -> ListRequest:
    request = ListRequest(
        params.optional_string("since"),
        params.optional_string("identity"),
        params.choice("act", ACTS),
        params.rows(),
        params.optional_string("cursor"),
    )
    if request.since is not None:
        parse_moment("since", request.since, 0)
    return request


def _list(context: Context, tx: Tx, caller: OwnerTerminal, request: ListRequest) -> Answer:
    since, identity, act = request.since, request.identity, request.act
    filters = (since, identity, act)
    before = None
    if request.cursor is not None:
        before = cursor.decode(request.cursor, "audit", "", filters)
    since_ms = parse_moment("since", since, context.moment.now_ms) if since is not None else 0
    who = _identity(tx, identity) if identity is not None else None
    page = audit.page(tx, Wanted(since_ms, who, act), before, request.rows)
    entries: list[Result] = []
    next_before = page.next_before
    budget = Budget()
    for row in page.rows:
        entry = _entry(tx, row)
        if not budget.take(entry) and entries:
            next_before = entries[-1]["no"]
            break
        entries.append(entry)
    following = None if next_before is None else cursor.encode("audit", "", filters, next_before)
    return Answer(
        {
            "rows": entries,
            "total": audit.head(tx)[0],
            "next_cursor": following,
            "has_more": following is not None,
        }
    )


def _identity(tx: Tx, text: str) -> str:
    """The id of an identity, from its id or its name of now. Raises MbxError unknown-identity."""
    row = identities.by_identity(tx, text) or identities.by_name(tx, text)
    return (row or drafting.named(tx, text)).identity


def _entry(tx: Tx, row: AuditRow) -> Result:
    """One row as facts; `details` is null for a text that nothing of ours has written."""
    told = auditing.details(row)
    whose = None if row.identity is None else _printable(row.identity)
    identity = identities.by_identity(tx, whose) if whose is not None else None
    return {
        "no": row.no,
        "at": rfc3339(row.at_ms),
        "act": _printable(row.act),
        "agent": identity.name if identity else None,
        "identity": whose,
        "session": _session(told or {}),
        "record": (told or {}).get("record"),
        "details": None if told is None else {k: v for k, v in told.items() if k not in _LIFTED},
        "hash": row.hash.hex(),
    }


def _session(told: Mapping[str, JsonValue]) -> Result | None:
    if "cli" not in told and "session" not in told:
        return None
    return {"cli": told.get("cli"), "id": told.get("session")}


def _printable(text: str) -> str:
    """A text of a row; bytes that are no UTF-8, which nothing of ours writes, as escapes."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


# -- verify ---------------------------------------------------------------------------------------


def _read_verify(params: Params) -> str | None:
    return params.optional_string("cursor")


def _verify(context: Context, tx: Tx, caller: OwnerTerminal, after: str | None) -> Answer:
    """One piece: first all rows, then the acceptances, and with the last of them the floor.

    Each piece is a unit of its own, so that nobody waits; rows are only ever added meanwhile.
    """
    position = 0 if after is None else cursor.decode(after, "audit --verify", "", ())
    done, step = divmod(position, _STEPS)
    if step == _ROWS_STEP:
        rows, faults = auditing.examined(tx, done, auditing.PIECE_ROWS)
        is_last = len(rows) < auditing.PIECE_ROWS
        following = (0, _ACCEPTANCES_STEP) if is_last else (rows[-1].no, _ROWS_STEP)
        return _piece(context, tx, following, faults, rows=len(rows))
    count = auditing.PIECE_ACCEPTANCES
    found, faults = auditing.accepted(context.host, tx, done, count)
    if len(found) == count:
        following = (found[-1].no, _ACCEPTANCES_STEP)
        return _piece(context, tx, following, faults, acceptances=len(found))
    faults += auditing.by_floor(context.host, tx, context.authority.audit_reached)
    return _piece(context, tx, None, faults, acceptances=len(found))


def _piece(
    context: Context,
    tx: Tx,
    following: tuple[int, int] | None,
    faults: Sequence[Fault],
    *,
    rows: int = 0,
    acceptances: int = 0,
) -> Answer:
    position = None if following is None else following[0] * _STEPS + following[1]
    last = audit.last(tx, 1)
    return Answer(
        {
            "checked": rows,
            "acceptances": acceptances,
            "faults": [fault_object(fault) for fault in faults[:FAULTS_MAX]],
            "faults_total": len(faults),
            "last": {"no": last[0].no, "at": rfc3339(last[0].at_ms), "hash": last[0].hash.hex()}
            if last
            else None,
            "floor": context.authority.audit_reached[0] or None,
            "next_cursor": None
            if position is None
            else cursor.encode("audit --verify", "", (), position),
            "has_more": position is not None,
        }
    )


def fault_object(fault: Fault) -> Result:
    """A fault as answers show it; `row` is 0 where it is about no row."""
    return {"kind": fault.kind, "row": fault.row, "last": fault.last, "words": fault.words}


METHODS: Final = (
    owner_method(
        "audit.list",
        "The audit log, newest first: who did what, by which session and owner record. A page may"
        " be empty and have more behind it.",
        _read_list,
        _list,
        writes=False,
    ),
    owner_method(
        "audit.verify",
        "A piece of the audit log against its chain; then against the host's acceptances and the"
        " floor. Go on with the cursor until there is none.",
        _read_verify,
        _verify,
        writes=False,
    ),
)
"""What this module adds to the table of methods."""
