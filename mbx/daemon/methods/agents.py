"""`agents.list`: who there is to write to, and whether somebody is there."""

from typing import Final, NamedTuple

from mbx.core import limits
from mbx.core.lease import LeaseState
from mbx.core.text import check_line
from mbx.daemon import listing
from mbx.daemon.budget import Budget
from mbx.daemon.context import Answer, Context, Result
from mbx.daemon.gate import Open
from mbx.daemon.methods.table import open_method
from mbx.daemon.params import Params
from mbx.daemon.times import optional_rfc3339
from mbx.store import leases, peers, sessions
from mbx.store.database import Tx
from mbx.store.identities import IdentityRow
from mbx.store.leases import LeaseRow


class AgentsRequest(NamedTuple):
    """Which agents: words in name, role, description or card; a role, a project, a host.

    `after` is (name, host): a name may be on several hosts.
    """

    query: str | None
    role: str | None
    project: str | None
    host: str | None
    after: tuple[str, str]


def _read(params: Params) -> AgentsRequest:
    query = params.optional_string("query")
    if query is not None:
        check_line("query", query, limits.SEARCH_CHARS_MAX)
    return AgentsRequest(
        query,
        params.optional_string("role"),
        params.optional_string("project"),
        params.optional_string("host"),
        _place(params.optional_string("after") or ""),
    )


def _place(address: str) -> tuple[str, str]:
    name, _, host = address.partition("@")
    return name, host


def _list(context: Context, tx: Tx, caller: Open, request: AgentsRequest) -> Answer:
    budget, agents = Budget(), list[Result]()
    everybody, last = _everybody(context, tx, request)
    for place, identity, row in everybody:
        if place <= request.after or not _fits(identity, request):
            continue
        if last is not None and place > last:
            break
        if row is None:
            entry = _entry_elsewhere(context, tx, identity, place[1])
        else:
            entry = _entry(context, tx, identity, row)
        if not budget.take(entry):
            return Answer({"agents": agents, "next_after": agents[-1]["address"]})
        agents.append(entry)
    return Answer({"agents": agents, "next_after": last and "@".join(last)})


_Somebody = tuple[tuple[str, str], IdentityRow, LeaseRow | None]


def _everybody(
    context: Context, tx: Tx, request: AgentsRequest
) -> tuple[list[_Somebody], tuple[str, str] | None]:
    """Everybody by name and host, with the lease of those who live here.

    And up to whom: of paired hosts a page is read at a time, None where it was the last.
    """
    found: list[_Somebody] = []
    if request.host in (None, context.host.label):
        own = context.host.label
        found += [((who.name, own), who, row) for who, row in leases.of_everyone(tx)]
    labels = {peer.no: peer.label for peer in peers.present(tx)}
    away = peers.identities_present(tx, request.role, request.host, request.after)
    found += [((who.name, labels[who.peer_no or 0]), who, None) for who in away]
    last = found[-1][0] if len(away) == peers.PAGE_ROWS else None
    return sorted(found, key=lambda one: one[0]), last


def _fits(identity: IdentityRow, request: AgentsRequest) -> bool:
    if request.role not in (None, identity.role) or request.project not in (
        None,
        identity.project,
    ):
        return False
    told = "\n".join((identity.name, identity.role, identity.description, identity.card or ""))
    words = (request.query or "").casefold().split()
    return all(word in told.casefold() for word in words)


def _entry(context: Context, tx: Tx, identity: IdentityRow, row: LeaseRow) -> Result:
    held = row.lease.state is LeaseState.HELD
    session = sessions.by_no(tx, row.lease.session_no) if held and row.lease.session_no else None
    state, reach = listing.liveness(context, row), context.reach(row, None)
    is_live = state == "live"
    return {
        "name": identity.name,
        "host": context.host.label,
        "address": context.host.address(identity.name),
        "role": identity.role,
        "description": identity.description,
        "cli": session.cli if session else None,
        "state": "idle" if is_live and reach.is_idle else state,
        "reach": listing.reached(is_live, reach),
        "reach_detail": reach.detail if is_live else None,
        "project": identity.project,
        "card": identity.card,
        "last_seen": listing.last_seen(context, identity.no, identity.last_seen_ms),
    }


def _entry_elsewhere(context: Context, tx: Tx, identity: IdentityRow, label: str) -> Result:
    """As its own host told it last."""
    told, peer = peers.told(tx, identity.no), peers.by_no(tx, identity.peer_no or 0)
    state = listing.told_state(context, peer, told) if told else "unknown"
    return {
        "name": identity.name,
        "host": label,
        "address": f"{identity.name}@{label}",
        "role": identity.role,
        "description": identity.description,
        "cli": told.cli if told else None,
        "state": state,
        "reach": listing.told_reach(state, told),
        "reach_detail": None,
        "project": None,
        "card": None,
        "last_seen": optional_rfc3339(told.told_ms if told else None),
    }


METHODS: Final = (
    open_method("agents.list", "Who there is to write to, and who is there now.", _read, _list),
)
"""What this module adds to the table of methods."""
