"""The owner's takeover, applied: the holder of one epoch gives way to a session that lives."""

from collections.abc import Mapping

from mbx.core import takeover
from mbx.core.canonical import JsonValue
from mbx.core.errors import MbxError
from mbx.core.lease import LeaseState
from mbx.core.record import Record, RecordError
from mbx.core.takeover import Takeover
from mbx.daemon import granting, kinship
from mbx.daemon.authority import DRAFT_AGAIN
from mbx.daemon.context import Context, Result
from mbx.daemon.effects import Granted
from mbx.daemon.encounters import Encounter
from mbx.daemon.times import rfc3339
from mbx.store import audit, identities, leases, sessions, waiting
from mbx.store.database import Tx
from mbx.store.identities import IdentityRow
from mbx.store.leases import LeaseRow
from mbx.store.sessions import SessionRow


def take_over(
    context: Context, tx: Tx, record: Record, payload: Mapping[str, JsonValue]
) -> tuple[Result, Granted]:
    """Displace the holder of the epoch that the record names, or raise MbxError and change nothing.

    `conflict` for another epoch or a destination that holds something, `not-found` for one that is
    not known or not alive, `closed` for a retired identity.
    """
    try:
        wanted = takeover.read(payload)
    except RecordError as error:
        raise MbxError("owner-required", f"the record is not to be believed: {error}") from error
    identity = identities.by_identity(tx, wanted.identity)
    if identity is None:
        raise MbxError("unknown-identity", "the identity of the record is not known here")
    if identity.name != wanted.name:
        raise MbxError(
            "conflict",
            f"the record names {wanted.name}; that identity is called {identity.name}",
            DRAFT_AGAIN,
        )
    if identity.retired_ms is not None:
        raise MbxError("closed", f"{identity.name} is retired", "mbx identity list --all")
    row = leases.find(tx, identity.no)
    before = _told(context, tx, identity, row)
    if row.lease.epoch != wanted.epoch:
        raise MbxError(
            "conflict",
            f"{identity.name} is at epoch {row.lease.epoch}; the takeover was signed for"
            f" {wanted.epoch}",
            DRAFT_AGAIN,
            before=before,
        )
    session = _destination(context, tx, wanted)
    _refuse_holder(tx, identity, row, session)
    displaced = sessions.by_no(tx, row.lease.session_no) if row.lease.session_no else None
    granted = granting.take_over(context.host, context.moment, tx, identity, row, session)
    if displaced is not None:
        waiting.leave(tx, displaced.no)
        granting.forget(tx, displaced, identity.no)
    audit.append(
        tx,
        at_ms=context.moment.now_ms,
        act="takeover",
        identity=identity.identity,
        record=record.id,
        epoch=granted.epoch,
        to={"cli": granted.cli, "session": granted.session_id},
        before={"cli": displaced.cli, "session": displaced.session_id} if displaced else None,
        reason=wanted.reason,
    )
    after = _told(context, tx, identity, leases.find(tx, identity.no))
    return {"agent": identity.name, "before": before, "after": after}, granted


def check_destination(context: Context, tx: Tx, row: LeaseRow, cli: str, session_id: str) -> None:
    """Refuse a takeover that could not be applied now, before the owner is asked for anything.

    Raises MbxError not-found, ambiguous, conflict.
    """
    met = _living(context, tx, cli, session_id)
    known = sessions.find(tx, met.process, met.conversation)
    if known is not None:
        _refuse_holder(tx, identities.by_no(tx, row.identity_no), row, known)


def _destination(context: Context, tx: Tx, wanted: Takeover) -> SessionRow:
    """The row of the one living session of that name."""
    met, now_ms = _living(context, tx, wanted.cli, wanted.session), context.moment.now_ms
    session = sessions.find(tx, met.process, met.conversation) or sessions.create(
        tx,
        cli=met.cli,
        session_id=met.session_id,
        conversation=met.conversation,
        process=met.process,
        now_ms=now_ms,
    )
    kinship.settle(tx, context.see, session, now_ms)
    return session


def _living(context: Context, tx: Tx, cli: str, session_id: str) -> Encounter:
    """The one living session of that name, as the store or this daemon's memory knows it."""
    named = [
        Encounter(cli, row.session_id, row.process, row.conversation)
        for row in sessions.called(tx, cli, session_id)
    ]
    every = {
        (one.process, one.conversation): one
        for one in [*context.sessions_called(cli, session_id), *named]
    }
    living = [one for one in every.values() if context.look(one.process) != "dead"]
    if len(living) == 1:
        return living[0]
    if living:
        raise MbxError(
            "ambiguous",
            f"{len(living)} living processes go by {cli} {session_id}",
            "end the others, or give the id that mbx whoami says in the one that is meant",
            candidates=[one.process.pid for one in living],
        )
    raise MbxError(
        "not-found",
        f"no living session {cli} {session_id} is known here",
        "run mbx whoami in that session, then repeat the command",
    )


def _refuse_holder(tx: Tx, identity: IdentityRow, row: LeaseRow, session: SessionRow) -> None:
    if session.identity_no is None or session.epoch is None:
        return
    lease = leases.find(tx, session.identity_no).lease
    if lease.epoch != session.epoch or lease.state is LeaseState.FREE:
        return  # it lost that: nothing is in the way
    held = identities.by_no(tx, session.identity_no)
    if held.no == identity.no and lease.state is LeaseState.HELD:
        raise MbxError("conflict", f"that session already holds {held.name}", "mbx identity list")
    if held.no != identity.no:
        raise MbxError(
            "conflict",
            f"that session holds {held.name}; a session holds one identity",
            "release it there first: mbx identity release",
            holds=held.name,
        )


def _told(context: Context, tx: Tx, identity: IdentityRow, row: LeaseRow) -> Result:
    held = row.lease.state is LeaseState.HELD
    holder = sessions.by_no(tx, row.lease.session_no) if held and row.lease.session_no else None
    return {
        "name": identity.name,
        "state": row.lease.state.name.lower(),
        "epoch": row.lease.epoch,
        "since": rfc3339(row.lease.since_ms),
        "holder": {"cli": holder.cli, "session": holder.session_id} if holder else None,
    }
