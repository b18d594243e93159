"""`policy.list` and `policy.show`: what the owner delegated, and what of it holds now."""

from typing import Final, NamedTuple

from mbx.core.authority import Book, Clock
from mbx.core.policy import Policy
from mbx.daemon import drafting
from mbx.daemon.context import Answer, Context, Result
from mbx.daemon.gate import Open
from mbx.daemon.methods.table import open_method
from mbx.daemon.params import Params
from mbx.daemon.times import rfc3339
from mbx.store import identities
from mbx.store.database import Tx


class ListRequest(NamedTuple):
    """Policies in effect, or all of the chain; of one identity, or of everybody."""

    every: bool
    to: str | None


def _read_list(params: Params) -> ListRequest:
    return ListRequest(params.boolean("all"), params.optional_string("to"))


def _list(context: Context, tx: Tx, caller: Open, request: ListRequest) -> Answer:
    book = context.authority.book(tx)
    clock = context.authority.clock(tx, context.moment.now_ms)
    to = drafting.named(tx, request.to).identity if request.to is not None else None
    chosen = [
        policy
        for policy in book.policies()
        if (request.every or not book.standing(policy, clock, to))
        and (to is None or policy.concerns(to))
    ]
    return Answer(
        {
            "policies": [shown(tx, book, policy, clock, to) for policy in chosen],
            "version": book.version,
            "damage": [{"version": one.version, "reason": one.reason} for one in book.damaged],
            "void_until": book.void,
            "clock_behind": clock.is_behind,
            "floor_fault": context.authority.floor_fault or None,
        }
    )


def _read_show(params: Params) -> str:
    return params.string("id")


def _show(context: Context, tx: Tx, caller: Open, text: str) -> Answer:
    book = context.authority.book(tx)
    clock = context.authority.clock(tx, context.moment.now_ms)
    return Answer(shown(tx, book, drafting.policy_called(context, tx, text), clock))


def shown(tx: Tx, book: Book, policy: Policy, clock: Clock, recipient: str | None = None) -> Result:
    """One policy; `state` is in effect, or why it grants nothing now (to this recipient).

    `superseded`: for whom and whose mail newer records govern, so that it is in effect in part.
    """
    fault = book.standing(policy, clock, recipient)
    names = {one.identity: _name_now(tx, one.identity, one.name) for one in policy.to}
    parts = [] if fault else book.parts(policy, recipient)
    return {
        "id": policy.id,
        "version": policy.version,
        "to": [names[one.identity] for one in policy.to],
        "level": policy.level,
        "classes": list(policy.classes),
        "from": [source.words for source in policy.sources],
        "projects": list(policy.projects),
        "at": rfc3339(policy.iat_ms),
        "until": rfc3339(policy.exp_ms),
        "reason": policy.reason,
        "in_effect": not fault,
        "superseded": [
            {"to": names[to], "from": part.sender, "record": part.record} for to, part in parts
        ],
        "state": fault or ("in effect in part" if parts else "in effect"),
    }


def _name_now(tx: Tx, identity: str, name_then: str) -> str:
    row = identities.by_identity(tx, identity)
    return row.name if row else name_then


METHODS: Final = (
    open_method(
        "policy.list", "Policies in effect; with `all` the whole chain.", _read_list, _list
    ),
    open_method("policy.show", "One policy, and whether it holds now.", _read_show, _show),
)
"""What this module adds to the table of methods."""
