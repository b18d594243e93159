"""`diagnostics.show`: one mailbox or one session, exactly; ids, stages and ages, never words."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from mbx.core import names
from mbx.core.delivery import STAGE_LABELS
from mbx.core.errors import MbxError
from mbx.core.lease import LeaseState, claimable
from mbx.core.limits import CLI_NAME_MAX_CHARS, SESSION_ID_MAX_CHARS
from mbx.core.text import check_line
from mbx.daemon import listing, peerlist
from mbx.daemon.context import Answer, Context, Result
from mbx.daemon.gate import Open
from mbx.daemon.methods.table import open_method
from mbx.daemon.params import Params
from mbx.daemon.times import rfc3339
from mbx.store import health, identities, leases, peers, sessions, wakes
from mbx.store.database import Tx
from mbx.store.health import Conversation, Queued
from mbx.store.identities import IdentityRow
from mbx.store.leases import LeaseRow
from mbx.store.peers import PeerRow

NO_BINDING: Final = "no-binding"
"""The session is known and holds no identity. A daemon that does not answer, and a mailbox that is
held, free or lapsed, are other words: whoever reads one of them need not guess which it is."""

REMOTE: Final = "mailbox-remote"
"""The mailbox is one of a paired host: what is said of its holder is that host's own word."""

_ONE_SCOPE: Final = "give mailbox, or cli and session"


class Scope(NamedTuple):
    """One mailbox by name, or one conversation; never more."""

    mailbox: str | None
    cli: str | None
    session_id: str | None
    rows: int


def _read_show(params: Params) -> Scope:
    scope = Scope(
        params.optional_string("mailbox"),
        params.optional_string("cli"),
        params.optional_string("session"),
        params.rows(),
    )
    if (scope.cli is None) != (scope.session_id is None):
        raise MbxError("usage", f"cli and session go together: {_ONE_SCOPE}")
    if (scope.mailbox is None) == (scope.cli is None):
        raise MbxError("usage", _ONE_SCOPE)
    if scope.cli is not None and scope.session_id is not None:
        check_line("cli", scope.cli, CLI_NAME_MAX_CHARS)
        check_line("session", scope.session_id, SESSION_ID_MAX_CHARS)
    return scope


def _show(context: Context, tx: Tx, caller: Open, scope: Scope) -> Answer:
    """Raises MbxError not-found for a scope that nobody knows: never more than was asked for."""
    known, identity = None, None
    if scope.mailbox is not None:
        identity = _mailbox_called(context, tx, scope.mailbox)
    else:
        known = health.conversation(tx, scope.cli or "", scope.session_id or "")
        if not known.is_known:
            raise MbxError(
                "not-found", "no session of that cli and id is known", "mbx identity list"
            )
        identity = _held_by(tx, known)
    return Answer(
        {
            "scope": _scope(scope),
            **(_found(context, tx, identity, scope.rows) if identity else _nothing()),
            "lost": _lost_by(tx, known) if known and not identity else None,
            "pending": known.waits_for if known else None,
            "remembered": known.remembered if known else None,
            "installed_version": None,  # of the command that asks: it fills that in
            "daemon_version": context.facts.version,
            "connector": None,
        }
    )


def _mailbox_called(context: Context, tx: Tx, text: str) -> IdentityRow:
    """The mailbox of a name, here or (``name@host``) on a paired host. Raises MbxError not-found.

    A name alone is one here, else the only one of that name on a paired host.
    """
    name, _, host = text.partition("@")
    found = identities.by_name(tx, name) if host in ("", context.host.label) else None
    if found is None and host != context.host.label:
        away = peers.named(tx, name, host or None)
        found = away[0] if len(away) == 1 else None
    if found is None or found.name == names.OWNER:
        raise MbxError("not-found", "there is no mailbox of that name", "mbx agents")
    return found


def _found(context: Context, tx: Tx, identity: IdentityRow, rows: int) -> Result:
    if identity.peer_no is None:
        return {**_mailbox(context, tx, identity, rows), "remote": None}
    return _remote(context, tx, identity, peers.by_no(tx, identity.peer_no), rows)


def _remote(context: Context, tx: Tx, identity: IdentityRow, peer: PeerRow, rows: int) -> Result:
    """A mailbox of a paired host: what its host told of it, and the mail from here to it."""
    told = peers.told(tx, identity.no)
    state = listing.told_state(context, peer, told) if told else None
    return {
        "status": REMOTE,
        "mailbox": peer.address(identity.name),
        "holder": None,
        "lease": None,
        "remote": {
            "host": peerlist.shown(context, tx, peer),
            "state": state,
            "reach": listing.told_reach(state or "unknown", told),
            "cli": told.cli if told else None,
            "told_at": rfc3339(told.told_ms) if told else None,
        },
        "reach": None,
        "wakes": [],
        "queue": _queue(context, health.away(tx, identity.no, rows)),
        "queue_total": health.away_count(tx, identity.no),
        "receipts": _receipts(tx, identity, rows),
    }


def _held_by(tx: Tx, known: Conversation) -> IdentityRow | None:
    """What the session holds now: its grant is still the lease."""
    if known.identity_no is None:
        return None
    lease = leases.find(tx, known.identity_no).lease
    is_own = (lease.session_no, lease.epoch) == (known.session_no, known.epoch)
    return identities.by_no(tx, known.identity_no) if is_own else None


def _lost_by(tx: Tx, known: Conversation) -> str | None:
    """The name of what the session was granted and somebody else was granted since."""
    return identities.by_no(tx, known.identity_no).name if known.identity_no is not None else None


def _scope(scope: Scope) -> Result:
    if scope.mailbox is not None:
        return {"mailbox": scope.mailbox}
    return {"cli": scope.cli, "session": scope.session_id}


def _nothing() -> Result:
    empty: Result = {"remote": None, "queue": [], "queue_total": 0, "receipts": []}
    empty |= {"reach": None, "wakes": []}
    return {"status": NO_BINDING, "mailbox": None, "holder": None, "lease": None, **empty}


def _mailbox(context: Context, tx: Tx, identity: IdentityRow, rows: int) -> Result:
    row = leases.find(tx, identity.no)
    state = "retired" if identity.retired_ms is not None else row.lease.state.name.lower()
    return {
        "status": f"mailbox-{state}",
        "mailbox": context.host.address(identity.name),
        "holder": _holder(context, tx, row),
        "lease": _lease(context, row),
        "reach": _reach(context, row),
        "wakes": _wakes(tx, identity, rows),
        "queue": _queue(context, health.queue(tx, identity.no, rows)),
        "queue_total": health.open_count(tx, identity.no),
        "receipts": _receipts(tx, identity, rows),
    }


def _reach(context: Context, row: LeaseRow) -> Result | None:
    """Whether new mail would wake the holder now, by which way, and if not, why."""
    if row.lease.state is not LeaseState.HELD:
        return None
    is_live, reach = listing.liveness(context, row) == "live", context.reach(row, None)
    return {"state": listing.reached(is_live, reach), "way": reach.way, "detail": reach.detail}


def _wakes(tx: Tx, identity: IdentityRow, rows: int) -> list[Result]:
    """The last wakes, newest first; one without outcome is being tried."""
    return [
        {
            "at": rfc3339(one.at_ms),
            "way": one.way,
            "epoch": one.epoch,
            "messages": one.messages,
            "outcome": one.outcome,
            "reason": one.reason,
        }
        for one in wakes.newest(tx, identity.no, rows)
    ]


def _queue(context: Context, found: Sequence[Queued]) -> list[Result]:
    return [
        {
            "id": one.id,
            "stage": STAGE_LABELS[one.stage],
            "at": rfc3339(one.accepted_ms),
            "age_s": max(0, context.moment.now_ms - one.accepted_ms) // 1000,
            "stage_at": rfc3339(one.stage_ms),
        }
        for one in found
    ]


def _receipts(tx: Tx, identity: IdentityRow, rows: int) -> list[Result]:
    return [
        {
            "id": one.id,
            "stage": STAGE_LABELS[one.stage],
            "at": rfc3339(one.stage_ms),
            "outcome": one.outcome,
            "epoch": one.epoch,
        }
        for one in health.receipts(tx, identity.no, rows)
    ]


def _holder(context: Context, tx: Tx, row: LeaseRow) -> Result | None:
    """Who holds it; for a lease that lapsed or was given back, None: `lease` says which."""
    held = row.lease.state is LeaseState.HELD
    session = sessions.by_no(tx, row.lease.session_no) if held and row.lease.session_no else None
    if session is None:
        return None
    seen = context.observe(row)
    return {
        "cli": session.cli,
        "session": session.session_id,
        "pid": session.process.pid,
        "evidence": seen.evidence if seen else "unknown",
        "silent_s": seen.silent_ms // 1000 if seen else None,
    }


def _lease(context: Context, row: LeaseRow) -> Result:
    verdict = claimable(row.lease, context.observe(row))
    held = row.lease.state is LeaseState.HELD
    left_ms = (row.expires_ms or 0) - context.moment.now_ms
    return {
        "state": row.lease.state.name.lower(),
        "epoch": row.lease.epoch,
        "since": rfc3339(row.lease.since_ms),
        "expires_in_s": max(0, left_ms // 1000) if held else None,
        "claimable": verdict.ok,
        "reason": verdict.reason,
    }


METHODS: Final = (
    open_method(
        "diagnostics.show",
        "One mailbox, or one session, exactly: holder, lease, how it is woken, queue, receipts; no"
        " words of mail.",
        _read_show,
        _show,
    ),
)
"""What this module adds to the table of methods."""
