"""`identity.*`: names, and who holds them."""

from dataclasses import dataclass
from typing import Final

from mbx.core import limits, names
from mbx.core.errors import MbxError
from mbx.core.evidence import RUN
from mbx.core.keys import crockford
from mbx.core.lease import Claimable, LeaseState, claimable
from mbx.core.text import check_line, check_text
from mbx.daemon import forwarding, granting, listing, retiring
from mbx.daemon.budget import Budget
from mbx.daemon.context import Answer, Context, Result
from mbx.daemon.drafting import named
from mbx.daemon.effects import Described, Renamed
from mbx.daemon.gate import Holder, Open, Session, holder_of
from mbx.daemon.methods.table import lease_method, open_method, session_method
from mbx.daemon.params import Params
from mbx.daemon.times import rfc3339
from mbx.store import audit, identities, leases, messages, sessions
from mbx.store.database import Tx
from mbx.store.identities import IdentityRow
from mbx.store.leases import LeaseRow
from mbx.store.sessions import SessionRow

_LIST: Final = "mbx identity list"
_ANOTHER: Final = "choose another name"
_CLAIM: Final = "mbx identity claim"
_REGISTER: Final = "mbx identity register"


# -- reading --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ListRequest:
    """Which identities: of one project, or all; retired ones too; those after a name."""

    project: str | None
    retired_too: bool
    after: str


def _read_list(params: Params) -> ListRequest:
    return ListRequest(
        params.optional_string("project"),
        params.boolean("all"),
        params.optional_string("after") or "",
    )


def _list(context: Context, tx: Tx, caller: Open, request: ListRequest) -> Answer:
    own = caller.binding.identity_no if caller.binding else None
    by_no = {row.identity_no: row for row in leases.everything(tx)}
    budget, entries = Budget(), list[Result]()
    for identity in identities.everyone(tx, request.after):
        hidden = identity.retired_ms is not None and not request.retired_too
        if hidden or request.project not in (None, identity.project):
            continue
        entry = _entry(context, tx, identity, by_no[identity.no], own)
        if not budget.take(entry):
            return Answer({"identities": entries, "next_after": entries[-1]["name"]})
        entries.append(entry)
    return Answer({"identities": entries, "next_after": None})


def _read_show(params: Params) -> str:
    return params.string("name")


def _show(context: Context, tx: Tx, caller: Open, name: str) -> Answer:
    identity = named(tx, name)
    own = caller.binding.identity_no if caller.binding else None
    return Answer(_entry(context, tx, identity, leases.find(tx, identity.no), own))


def _entry(
    context: Context, tx: Tx, identity: IdentityRow, row: LeaseRow, own: int | None
) -> Result:
    verdict = _claimable(context, tx, identity, row, own)
    state = "retired" if identity.retired_ms is not None else row.lease.state.name.lower()
    held = row.lease.state is LeaseState.HELD
    session = sessions.by_no(tx, row.lease.session_no) if held and row.lease.session_no else None
    return {
        "name": identity.name,
        "identity": identity.identity,
        "role": identity.role,
        "description": identity.description,
        "project": identity.project,
        "state": state,
        "claimable": verdict.ok,
        "reason": verdict.reason,
        "holder": _holder(session, row) if session else None,
        "unread": identities.unread(tx, identity.no),
        "last_seen": listing.last_seen(context, identity.no, identity.last_seen_ms),
    }


def _holder(session: SessionRow, row: LeaseRow) -> Result:
    return {
        "cli": session.cli,
        "session": session.session_id,
        "pid": session.process.pid,
        "epoch": row.lease.epoch,
        "since": rfc3339(row.lease.since_ms),
    }


def _claimable(
    context: Context, tx: Tx, identity: IdentityRow, row: LeaseRow, own: int | None
) -> Claimable:
    if identity.retired_ms is not None:
        end = forwarding.end_of(tx, identity)
        return Claimable(False, f"forwarded to {end.name}" if end else "retired")
    if identity.no == own:
        return Claimable(True, "held by you")
    return claimable(row.lease, context.observe(row))


def _read_prunable(params: Params) -> int:
    return params.integer("days", limits.PRUNE_DAYS, 1, limits.PRUNE_DAYS_MAX)


def _prunable(context: Context, tx: Tx, caller: Open, days: int) -> Answer:
    return Answer(retiring.preview(context, tx, days))


# -- changing -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RegisterRequest:
    """A new identity, to be held by the caller."""

    name: str
    role: str
    description: str
    project: str | None


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """An identity to hold; `role` registers it when nobody has that name yet."""

    name: str
    role: str | None


def _read_register(params: Params) -> RegisterRequest:
    request = RegisterRequest(
        name=params.string("name"),
        role=params.string("role"),
        description=params.optional_string("description") or "",
        project=params.optional_string("project"),
    )
    _check_new(request)
    return request


def _check_new(request: RegisterRequest) -> None:
    names.check_name(request.name)
    names.check_role(request.role)
    check_line("description", request.description, limits.DESCRIPTION_MAX_CHARS, may_be_empty=True)
    if request.project is not None:
        check_line("project", request.project, limits.PROJECT_MAX_CHARS)


def _register(context: Context, tx: Tx, caller: Session, request: RegisterRequest) -> Answer:
    existing = identities.by_name(tx, request.name)
    if existing is not None and caller.binding and caller.binding.identity_no == existing.no:
        return Answer(_claimed(context, tx, existing, caller.binding.lease.epoch))
    if existing is not None:
        raise MbxError(
            "name-taken",
            f"{request.name} exists already",
            _ANOTHER if existing.retired_ms is not None else f"{_CLAIM} {request.name}",
        )
    _refuse_second(caller, request.name)
    return _grant(context, tx, caller, _create(context, tx, request))


def _read_claim(params: Params) -> ClaimRequest:
    request = ClaimRequest(params.string("name"), params.optional_string("role"))
    names.check_name(request.name)
    if request.role is not None:
        names.check_role(request.role)
    return request


def _claim(context: Context, tx: Tx, caller: Session, request: ClaimRequest) -> Answer:
    identity = identities.by_name(tx, request.name)
    if identity is None and request.role is not None:
        _refuse_second(caller, request.name)
        new = RegisterRequest(request.name, request.role, "", None)
        return _grant(context, tx, caller, _create(context, tx, new))
    if identity is None:
        is_run = caller.caller.lineage.cli == RUN
        register = f"{_REGISTER} {request.name} --role ROLE"
        run = f"mbx run --as {request.name} --role ROLE -- COMMAND"
        identity = named(tx, request.name, run if is_run else register)
    if identity.retired_ms is not None:
        raise MbxError("closed", f"{identity.name} is retired", _LIST)
    held = caller.binding
    if held and held.identity_no == identity.no and held.lease.state is LeaseState.HELD:
        return Answer(_claimed(context, tx, identity, held.lease.epoch))
    _refuse_second(caller, identity.name)
    return _grant(context, tx, caller, identity)


def create(context: Context, tx: Tx, name: str, role: str) -> IdentityRow:
    """A new identity that nobody holds yet. Raises MbxError name-invalid, name-taken."""
    names.check_name(name)
    names.check_role(role)
    return _create(context, tx, RegisterRequest(name, role, "", None))


def _create(context: Context, tx: Tx, request: RegisterRequest) -> IdentityRow:
    _refuse_taken(tx, request.name, None)
    now_ms = context.moment.now_ms
    identity = identities.create(
        tx,
        identity=crockford(context.moment.draw("identity")),
        name=request.name,
        role=request.role,
        description=request.description,
        project=request.project,
        now_ms=now_ms,
    )
    leases.create(tx, identity.no, now_ms)
    audit.append(
        tx,
        at_ms=now_ms,
        act="register",
        identity=identity.identity,
        name=identity.name,
        role=identity.role,
    )
    return identity


def _refuse_taken(tx: Tx, name: str, own_no: int | None) -> None:
    """Refuse a name that another identity has, or that looks like one."""
    twin = identities.look_alike(tx, name)
    if twin is not None and twin.no != own_no:
        same = twin.name == name
        raise MbxError(
            "name-taken",
            f"{name} exists already" if same else f"{name} looks like {twin.name}, which exists",
            _ANOTHER if twin.retired_ms is not None else f"{_ANOTHER}, or {_CLAIM} {twin.name}",
            similar=twin.name,
        )


def _grant(context: Context, tx: Tx, caller: Session, identity: IdentityRow) -> Answer:
    row = leases.find(tx, identity.no)
    if row.lease.state is LeaseState.HELD:
        row = _lapse_or_refuse(context, tx, caller, identity, row)
    session = granting.meet(context, tx, caller)
    granted = granting.grant(context.host, context.moment, tx, identity, row, session)
    return Answer(_claimed(context, tx, identity, granted.epoch), (granted,))


def _lapse_or_refuse(
    context: Context, tx: Tx, caller: Session, identity: IdentityRow, row: LeaseRow
) -> LeaseRow:
    verdict = claimable(row.lease, context.observe(row))
    holder = sessions.by_no(tx, row.lease.session_no) if row.lease.session_no else None
    if not verdict.ok or holder is None:
        raise MbxError(
            "in-use",
            f"{identity.name}: {verdict.reason}",
            f"mbx identity show {identity.name}",
            holder=_holder(holder, row) if holder else None,
            reason=verdict.reason,
        )
    return displace(context, tx, caller, row, holder, verdict.reason)


def displace(
    context: Context, tx: Tx, caller: Session, row: LeaseRow, holder: SessionRow, why: str
) -> LeaseRow:
    """End the lease of `holder`, which is dead or was silent too long, in favour of `caller`.

    One that lives will be told that it lost it and never waits for it; unless it is the caller's
    own conversation, that went on in another process.
    """
    granting.lapse(tx, context.moment, row, holder, why)
    seen, lineage = context.observe(row), caller.caller.lineage
    is_dead = seen is not None and seen.evidence == "dead"
    if not is_dead and (holder.cli, holder.called) != (lineage.cli, lineage.session_id):
        granting.forget(tx, holder, row.identity_no)
    return leases.find(tx, row.identity_no)


def _refuse_second(caller: Session, wanted: str) -> None:
    if caller.binding and caller.binding.name != wanted:
        raise MbxError(
            "conflict",
            f"this session holds {caller.binding.name}; a session holds one identity",
            f"mbx identity release, or mbx run --as {wanted} -- COMMAND",
            holds=caller.binding.name,
        )


def _claimed(context: Context, tx: Tx, identity: IdentityRow, epoch: int) -> Result:
    return {
        "agent": identity.name,
        "address": context.host.address(identity.name),
        "role": identity.role,
        "epoch": epoch,
        "unread": identities.unread(tx, identity.no),
        "missed": None,
        "open_threads": messages.open_threads(tx, identity.no),
        "recent_notes": [],
    }


@dataclass(frozen=True, slots=True)
class SetRequest:
    """What an identity says of itself from now on; None leaves it as it is."""

    role: str | None
    description: str | None
    card: str | None


def _read_set(params: Params) -> SetRequest:
    request = SetRequest(
        params.optional_string("role"),
        params.optional_string("description"),
        params.optional_string("card"),
    )
    if request == SetRequest(None, None, None):
        raise MbxError("usage", "nothing to set: give role, description or card")
    if request.role is not None:
        names.check_role(request.role)
    if request.description is not None:
        check_line(
            "description", request.description, limits.DESCRIPTION_MAX_CHARS, may_be_empty=True
        )
    if request.card is not None:
        check_text("card", request.card, limits.CARD_MAX_CHARS)
    return request


def _set(context: Context, tx: Tx, holder: Holder, request: SetRequest) -> Answer:
    identity = identities.by_no(tx, holder.identity_no)
    role = identity.role if request.role is None else request.role
    description = identity.description if request.description is None else request.description
    card = identity.card if request.card is None else request.card or None
    identities.set_facts(tx, identity.no, role=role, description=description, card=card)
    audit.append(tx, at_ms=context.moment.now_ms, act="set", identity=identity.identity, role=role)
    told = {"agent": identity.name, "role": role, "description": description, "card": card}
    return Answer(told, (Described(identity.no),))


def _read_rename(params: Params) -> str:
    name = params.string("name")
    names.check_name(name)
    return name


def _rename(context: Context, tx: Tx, holder: Holder, name: str) -> Answer:
    """Mail, threads and rights hang on the identity and follow; the old name is free at once."""
    identity = identities.by_no(tx, holder.identity_no)
    if name != identity.name:
        _refuse_taken(tx, name, identity.no)
        identities.rename(tx, identity.no, name)
        audit.append(
            tx,
            at_ms=context.moment.now_ms,
            act="rename",
            identity=identity.identity,
            name=name,
            old_name=identity.name,
        )
        granting.renew(tx, context.host, context.moment, leases.find(tx, identity.no))
    renamed = Renamed(identity.no, name)
    return Answer(
        {"agent": name, "address": context.host.address(name), "old_name": identity.name},
        (renamed,),
    )


def _read_nothing(params: Params) -> None:
    return None


def _release(context: Context, tx: Tx, caller: Session, request: None) -> Answer:
    holder = holder_of(tx, caller)
    identity = identities.by_no(tx, holder.identity_no)
    session = sessions.find(tx, caller.process, caller.conversation)
    if session is None:
        raise LookupError("the gate admitted a session that the store does not know")
    called = caller.caller.lineage.session_id
    ended = granting.release(tx, context.moment, identity, session, called)
    return Answer({"released": identity.name, "epoch": ended.epoch}, (ended,))


METHODS: Final = (
    open_method(
        "identity.list", "All identities: state, holder, claimable and why.", _read_list, _list
    ),
    open_method("identity.show", "One identity.", _read_show, _show, brief=True),
    open_method(
        "identity.prunable",
        "What `owner.draft` with act prune would retire, and why the others stay.",
        _read_prunable,
        _prunable,
    ),
    session_method(
        "identity.register", "Create an identity and hold it.", _read_register, _register
    ),
    session_method("identity.claim", "Hold an identity that nobody holds.", _read_claim, _claim),
    lease_method("identity.set", "What the identity says of itself.", _read_set, _set, writes=True),
    lease_method(
        "identity.rename",
        "Another name for the identity held; everything it has follows.",
        _read_rename,
        _rename,
        writes=True,
    ),
    session_method("identity.release", "Give back the identity held.", _read_nothing, _release),
)
"""What this module adds to the table of methods."""
