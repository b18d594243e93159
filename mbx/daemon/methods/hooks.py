"""`session.hook`: what an agent CLI's hooks tell of its session: it begins, is called so, ends."""

from dataclasses import dataclass
from typing import Final

from mbx.core.clients import is_session_id
from mbx.core.errors import MbxError
from mbx.core.limits import SESSION_ID_MAX_CHARS
from mbx.daemon import granting, resuming
from mbx.daemon.context import Answer, Context, Result
from mbx.daemon.effects import Called, Effect, Relabelled
from mbx.daemon.gate import Access, Session
from mbx.daemon.methods.session import pending_name, ticket_for
from mbx.daemon.methods.table import Method
from mbx.daemon.params import Params
from mbx.store import identities, sessions
from mbx.store.database import Tx

_EVENTS: Final = ("start", "called", "end")


@dataclass(frozen=True, slots=True)
class HookRequest:
    """What happened to a session; `called` is what its client calls the conversation now."""

    event: str
    called: str | None


def _read(params: Params) -> HookRequest:
    request = HookRequest(
        params.choice("event", _EVENTS) or "called", params.optional_string("session")
    )
    called = request.called
    if called is not None and not is_session_id(called):
        raise MbxError(
            "usage", f"session must be printable, at most {SESSION_ID_MAX_CHARS} characters"
        )
    return request


def _hook(context: Context, tx: Tx, caller: Session, request: HookRequest) -> Answer:
    if request.event == "end":
        return _end(context, tx, caller, request.called)
    effects: list[Effect] = []
    if request.called is not None and not caller.conversation:
        effects.append(Called(caller.process, request.called))
    relabelled = _recall(context, tx, caller, request.called)
    if relabelled is not None:
        effects.append(relabelled)
    ticket = None
    if request.event == "start" and caller.conversation:
        ticket, ticketed = ticket_for(context, caller)
        effects.append(ticketed)
    binding = caller.binding
    result: Result = {
        "agent": binding.name if binding else None,
        "unread": identities.unread(tx, binding.identity_no) if binding else None,
        "pending": pending_name(tx, caller.caller.lineage),
        "ticket": ticket,
        "ended": None,
    }
    return Answer(result, effects)


def _recall(context: Context, tx: Tx, caller: Session, called: str | None) -> Relabelled | None:
    """In a process of one conversation the lease goes on with the process, under the new label."""
    session = sessions.find(tx, caller.process, caller.conversation)
    if session is None or called is None or caller.conversation:
        return None
    return granting.recall(context, tx, session, called)


def _end(context: Context, tx: Tx, caller: Session, called: str | None) -> Answer:
    """The end of exactly this conversation: one that another has followed changes nothing."""
    nothing: Result = dict.fromkeys(("agent", "unread", "pending", "ticket", "ended"))
    session = sessions.find(tx, caller.process, caller.conversation)
    if session is None or caller.binding is None:
        return Answer(nothing)
    names = {session.session_id, session.called}
    if called not in names and session.called != session.own_id:
        return Answer(nothing)
    identity = identities.by_no(tx, caller.binding.identity_no)
    ended = granting.hand_back(tx, context.moment, identity, session)
    follower = resuming.serve(tx, context.host, context.moment, identity.no)
    effects = (ended,) if follower is None else (ended, follower)
    return Answer({**nothing, "ended": identity.name}, effects)


METHODS: Final = (
    Method(
        "session.hook",
        Access.SESSION,
        True,
        "For hooks: the session begins (`start`), is called `session` now (`called`), or has really"
        " ended (`end`). Its lease stays with its process under the new name; an end frees it for"
        " whoever waits, and the conversation gets it again when it comes back.",
        _read,
        _hook,
    ),
)
"""What this module adds to the table of methods."""
