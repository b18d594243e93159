"""`policy.list` and `policy.show`: what the owner delegated, and what of it holds now."""

from typing import Final, NamedTuple

from mbx.core.authority import Book, Clock
from mbx.core.policy import Policy
from mbx.daemon import chainlist, drafting
from mbx.daemon.context import Answer, Context, Result
from mbx.daemon.gate import Open
from mbx.daemon.methods.table import open_method
from mbx.daemon.params import Params
from mbx.daemon.times import rfc3339
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
    to = drafting.subject(context, tx, request.to) if request.to is not None else None
    home = (to.host if to else "") or context.host.key_id
    who = to.identity if to else None
    listed = (
        book.policies() if request.every else chainlist.in_effect(context, tx, book, clock, who)
    )
    chosen = [one for one in listed if who is None or one.concerns(who, home)]
    return Answer(
        {
            "policies": [shown(context, tx, book, policy, clock, who) for policy in chosen],
            "version": book.version,
            "followed": chainlist.followed(book),
            "damage": chainlist.damage(context, book),
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
    policy = drafting.policy_called(context, tx, text)
    return Answer(shown(context, tx, book, policy, clock))


def shown(
    context: Context,
    tx: Tx,
    book: Book,
    policy: Policy,
    clock: Clock,
    recipient: str | None = None,
) -> Result:
    """One policy; `state` is in effect, or why it grants nothing now (to this recipient).

    `host`: on which it was signed. `superseded`: for whom and whose mail newer records govern, so
    that it is in effect in part; `disobeyed`: whose hosts do not follow it, in part likewise.
    """
    fault = chainlist.standing(context, tx, book, policy, clock, recipient)
    unheard = {} if fault else chainlist.disobeying(context, tx, policy)
    disobeyed = [to for to in unheard if recipient in (None, to.identity)]
    names = {to: chainlist.called(context, tx, policy, to) for to in policy.to}
    parts = [] if fault else book.parts(policy, recipient)
    return {
        "id": policy.id,
        "host": chainlist.host_of(context, book, policy.chain),
        "version": policy.version,
        "to": list(names.values()),
        "level": policy.level,
        "classes": list(policy.classes),
        "from": [chainlist.sender(context, tx, source) for source in policy.sources],
        "projects": list(policy.projects),
        "at": rfc3339(policy.iat_ms),
        "until": rfc3339(policy.exp_ms),
        "reason": policy.reason,
        "in_effect": not fault,
        "superseded": [
            {
                "to": names[to],
                "from": chainlist.sender(context, tx, part.sender),
                "record": part.record,
            }
            for to, part in parts
        ],
        "disobeyed": [{"to": names[to], "why": unheard[to]} for to in disobeyed],
        "state": fault or ("in effect in part" if parts or disobeyed else "in effect"),
    }


METHODS: Final = (
    open_method(
        "policy.list", "Policies in effect; with `all` the whole chain.", _read_list, _list
    ),
    open_method("policy.show", "One policy, and whether it holds now.", _read_show, _show),
)
"""What this module adds to the table of methods."""
