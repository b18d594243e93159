"""Sessions that come back, sessions that wait, and identities named at launch.

A conversation (cli and session id) that comes back in another process gets the identity it held by
itself when nobody else holds it; else it waits, in a stored row that is gone with its process, and
the one who waits longest is served when the holder dies. Who gave an identity back by itself, or
learnt that it lost it, never waits for it until it has claimed it again. An identity named at
launch is claimed when the session first speaks (and as long as it waits for it), registered only
together with a role, and never taken from anybody.
"""

from typing import NamedTuple

from mbx.core import names
from mbx.core.errors import MbxError
from mbx.core.lease import LeaseState, claimable
from mbx.daemon import granting
from mbx.daemon.context import Answer, Context
from mbx.daemon.effects import Effect, Granted, Waiting
from mbx.daemon.gate import Session
from mbx.daemon.host import Host
from mbx.daemon.methods import identity as identity_methods
from mbx.daemon.world import Moment
from mbx.store import exposures, identities, kin, leases, sessions, waiting
from mbx.store.database import Tx
from mbx.store.identities import IdentityRow
from mbx.store.sessions import SessionRow


class Wish(NamedTuple):
    """The identity and role that the owner set for a session at its launch."""

    agent: str | None = None
    role: str | None = None


def arrive(context: Context, tx: Tx, caller: Session, wish: Wish) -> Answer:
    """What a session without identity gets when it first speaks: its own again, or a place."""
    session = sessions.find(tx, caller.process, caller.conversation)
    if caller.binding is not None or (session is not None and session.identity_no is not None):
        return Answer({})
    wanted = _wanted(context, tx, caller, wish, session)
    if wanted is None or wanted.retired_ms is not None:
        _remember_what_it_read(context, tx, caller)
        return Answer({})
    session = granting.meet(context, tx, caller)
    row = leases.find(tx, wanted.no)
    if row.lease.state is LeaseState.HELD:
        verdict = claimable(row.lease, context.observe(row))
        holder = sessions.by_no(tx, row.lease.session_no) if row.lease.session_no else None
        if not verdict.ok or holder is None:
            waiting.join(tx, session.no, wanted.no, context.moment.now_ms)
            return Answer({}, (_waits(session),))
        row = identity_methods.displace(context, tx, caller, row, holder, verdict.reason)
    granted = granting.grant(context.host, context.moment, tx, wanted, row, session)
    return Answer({}, (granted,))


def _remember_what_it_read(context: Context, tx: Tx, caller: Session) -> None:
    """A conversation that goes on without identity may still tell those below it what it read."""
    lineage = caller.caller.lineage
    label = (lineage.cli, lineage.session_id)
    if exposures.of_session(tx, *label) and not kin.is_known(tx, caller.process, *label):
        granting.meet(context, tx, caller)


def serve(tx: Tx, host: Host, moment: Moment, identity_no: int) -> Granted | None:
    """Give an identity that nobody holds to the one who waits longest for it."""
    row = leases.find(tx, identity_no)
    next_one = waiting.oldest(tx, identity_no)
    if next_one is None or row.lease.state is LeaseState.HELD:
        return None
    session = sessions.by_no(tx, next_one.session_no)
    if session is None:
        return None
    identity = identities.by_no(tx, identity_no)
    if identity.retired_ms is not None:
        return None
    return granting.grant(host, moment, tx, identity, row, session)


def end(tx: Tx, host: Host, moment: Moment, session: SessionRow, why: str) -> list[Effect]:
    """The end of a session whose process is dead, and who follows it."""
    waiting.leave(tx, session.no)
    ended = granting.bury(tx, moment, session, why)
    if ended is None:
        return []
    follower = serve(tx, host, moment, ended.identity_no)
    return [ended] if follower is None else [ended, follower]


def _wanted(
    context: Context, tx: Tx, caller: Session, wish: Wish, session: SessionRow | None
) -> IdentityRow | None:
    lineage = caller.caller.lineage
    known = waiting.remembered(tx, lineage.cli, lineage.session_id)
    if known is not None:
        return identities.by_no(tx, known)
    if wish.agent is None or wish.agent == names.OWNER:
        return None
    if session is not None and waiting.of_session(tx, session.no) is None:
        return None  # it held something since its launch, and gave that back
    existing = identities.by_name(tx, wish.agent)
    if existing is not None or wish.role is None:
        return existing
    try:
        return identity_methods.create(context, tx, wish.agent, wish.role)
    except MbxError:  # no name, or one that looks like another: the session finds out by itself
        return None


def _waits(session: SessionRow) -> Waiting:
    return Waiting(
        session.no, session.process, session.conversation, session.cli, session.session_id
    )
