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
from mbx.store import leases, sessions
from mbx.store.database import Tx
from mbx.store.identities import IdentityRow
from mbx.store.leases import LeaseRow


class AgentsRequest(NamedTuple):
    """Which agents: words in name, role, description or card; a role; a project; those after."""

    query: str | None
    role: str | None
    project: str | None
    after: str


def _read(params: Params) -> AgentsRequest:
    query = params.optional_string("query")
    if query is not None:
        check_line("query", query, limits.SEARCH_CHARS_MAX)
    return AgentsRequest(
        query,
        params.optional_string("role"),
        params.optional_string("project"),
        params.optional_string("after") or "",
    )


def _list(context: Context, tx: Tx, caller: Open, request: AgentsRequest) -> Answer:
    budget, agents = Budget(), list[Result]()
    for identity, row in leases.of_everyone(tx):
        if identity.name <= request.after or not _fits(identity, request):
            continue
        entry = _entry(context, tx, identity, row)
        if not budget.take(entry):
            return Answer({"agents": agents, "next_after": agents[-1]["name"]})
        agents.append(entry)
    return Answer({"agents": agents, "next_after": None})


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
    return {
        "name": identity.name,
        "host": context.host.label,
        "address": context.host.address(identity.name),
        "role": identity.role,
        "description": identity.description,
        "cli": session.cli if session else None,
        "state": listing.liveness(context, row),
        "project": identity.project,
        "card": identity.card,
        "last_seen": listing.last_seen(context, identity.no, identity.last_seen_ms),
    }


METHODS: Final = (
    open_method("agents.list", "Who there is to write to, and who is there now.", _read, _list),
)
"""What this module adds to the table of methods."""
