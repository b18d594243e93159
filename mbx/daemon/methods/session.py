"""`session.whoami`: what the caller is, holds, and should do next; `session.ticket`: who it is.

A bind ticket that whoami is given was redeemed by the face before: whose connection a call came on
is no matter of the store.
"""

from typing import Final

from mbx import __version__
from mbx.core.errors import MbxError
from mbx.core.evidence import Lineage, SessionKey, own_id
from mbx.core.exposure import external_since
from mbx.core.limits import EXPOSURE_MS, TICKET_TTL_MS
from mbx.daemon import chainlist, kinship
from mbx.daemon.context import Answer, Context, Result
from mbx.daemon.effects import Ticketed
from mbx.daemon.gate import Access, Open, Session, next_without_session
from mbx.daemon.methods.table import Method, open_method
from mbx.daemon.params import Params
from mbx.daemon.tickets import digest_of
from mbx.daemon.times import rfc3339
from mbx.store import identities, sessions, waiting
from mbx.store.bindings import Binding
from mbx.store.database import Tx

_CLAIM: Final = "mbx identity claim NAME, or mbx identity register NAME --role ROLE"


def _read_bind(params: Params) -> str | None:
    return params.optional_string("bind")


def _whoami(context: Context, tx: Tx, caller: Open, bind: str | None) -> Answer:
    lineage = caller.caller.lineage
    session = {"cli": lineage.cli, "id": _label(tx, caller)} if lineage.process else None
    binding = caller.binding
    held = _held(context, tx, binding) if binding else _nothing(lineage, session is not None)
    result: Result = {
        **held,
        "session": session,
        "missed": None,
        "pending": pending_name(tx, lineage),
        "lost": caller.lost,
        "policies": _policies(context, tx, binding) if binding else [],
        "external": _external(context, tx, binding) if binding else None,
        "host": context.host.label,
        "lineage": lineage.reason,
        "daemon_version": context.facts.version,
        "version": __version__,
    }
    return Answer(result)


def _read_nothing(params: Params) -> None:
    return None


def _ticket(context: Context, tx: Tx, caller: Session, request: None) -> Answer:
    lineage = caller.caller.lineage
    if not lineage.shared:
        raise MbxError(
            "usage",
            "the process of this session has no other conversation, so that nothing needs a ticket",
            "mbx whoami",
        )
    text, ticketed = ticket_for(context, caller)
    return Answer({"ticket": text, "expires_in_s": TICKET_TTL_MS // 1000}, (ticketed,))


def ticket_for(context: Context, caller: Session) -> tuple[str, Ticketed]:
    """A ticket for the caller's conversation, and the effect that makes it good."""
    text, lineage = context.moment.nonce("ticket"), caller.caller.lineage
    key = SessionKey(lineage.cli, lineage.session_id)
    return text, Ticketed(caller.process, key, digest_of(text))


def _held(context: Context, tx: Tx, binding: Binding) -> Result:
    expires_in_ms = binding.expires_ms - context.moment.now_ms
    unread = identities.unread(tx, binding.identity_no)
    return {
        "agent": binding.name,
        "address": context.host.address(binding.name),
        "identity": binding.identity,
        "role": binding.role,
        "description": binding.description,
        "project": binding.project,
        "lease": {
            "epoch": binding.lease.epoch,
            "since": rfc3339(binding.lease.since_ms),
            "expires_in_s": max(0, expires_in_ms // 1000),
        },
        "unread": unread,
        "next": "mbx inbox" if unread else None,
    }


def _policies(context: Context, tx: Tx, binding: Binding) -> list[Result]:
    """The policies in effect now that are about the identity held, newest first."""
    book = context.authority.book(tx)
    clock = context.authority.clock(tx, context.moment.now_ms)
    return [
        {
            "id": policy.id,
            "level": policy.level,
            "classes": list(policy.classes),
            "from": [chainlist.sender(context, tx, source) for source in policy.sources],
            "projects": list(policy.projects),
            "until": rfc3339(policy.exp_ms),
            "superseded": [
                {"from": chainlist.sender(context, tx, part.sender), "record": part.record}
                for _, part in book.parts(policy, binding.identity)
            ],
        }
        for policy in book.policies()
        if policy.concerns(binding.identity, context.host.key_id)
        and not book.standing(policy, clock, binding.identity)
    ]


def _external(context: Context, tx: Tx, binding: Binding) -> str | None:
    """Until when what the session writes counts as from outside, since it or its kin read such."""
    now_ms = context.moment.now_ms
    read = kinship.read_by(tx, context.authority, binding)
    overheard = kinship.read_by_kin(tx, context.authority, binding, now_ms)
    root_ms = external_since((*read, *overheard), None, now_ms)
    return None if root_ms is None else rfc3339(root_ms + EXPOSURE_MS)


def _label(tx: Tx, caller: Open) -> str:
    """The name by which this session, and no other process, is known everywhere else.

    What it calls itself; or its own id, while another one of that name holds something.
    """
    lineage = caller.caller.lineage
    if lineage.process is None:
        return lineage.session_id
    known = sessions.find(tx, lineage.process, lineage.conversation)
    if known is not None and known.identity_no is not None:
        return known.session_id
    no = known.no if known is not None else 0
    is_taken = sessions.is_label_taken(tx, lineage.cli, lineage.session_id, besides_no=no)
    return own_id(lineage.process, lineage.conversation) if is_taken else lineage.session_id


def pending_name(tx: Tx, lineage: Lineage) -> str | None:
    """The name of the identity that a session waits for."""
    if lineage.process is None:
        return None
    session = sessions.find(tx, lineage.process, lineage.conversation)
    pending = waiting.of_session(tx, session.no) if session else None
    return identities.by_no(tx, pending.identity_no).name if pending else None


def _nothing(lineage: Lineage, has_session: bool) -> Result:
    fields = ("agent", "address", "identity", "role", "description", "project", "lease", "unread")
    return {
        **dict.fromkeys(fields),
        "next": _CLAIM if has_session else next_without_session(lineage),
    }


METHODS: Final = (
    open_method(
        "session.whoami",
        "The caller's session, the identity it holds, its unread mail, and the next step.",
        _read_bind,
        _whoami,
        brief=True,
    ),
    Method(
        "session.ticket",
        Access.SESSION,
        False,
        "A ticket by which another connection of the same shared process becomes this conversation:"
        " once, within ten minutes, as `bind` of session.whoami.",
        _read_nothing,
        _ticket,
        brief=True,
    ),
)
"""What this module adds to the table of methods."""
