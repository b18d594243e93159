"""Grants and their ends: the writes that every claim, release and death share."""

import hashlib
from dataclasses import replace
from typing import Final

from mbx.core.canonical import JsonValue
from mbx.core.lease import Lease, LeaseState, transition
from mbx.core.limits import LEASE_TIMEOUT_MS
from mbx.core.record import Sealed
from mbx.daemon import kinship
from mbx.daemon.context import Context
from mbx.daemon.effects import Ended, Granted, Relabelled
from mbx.daemon.gate import Session
from mbx.daemon.host import Host
from mbx.daemon.world import Moment
from mbx.store import audit, exposures, identities, kin, leases, sessions, waiting
from mbx.store.database import Tx
from mbx.store.identities import IdentityRow
from mbx.store.leases import LeaseRow
from mbx.store.sessions import SessionRow

_TOKENS_KEPT_EPOCHS: Final = 2
"""Tokens of the epoch before are kept, so that they answer lease-lost rather than nothing."""


def sign_lease(
    host: Host, moment: Moment, identity: tuple[str, str], session: SessionRow, lease: Lease
) -> tuple[Sealed, int]:
    """The signed record of a lease and its expiry (ms UTC); `identity` is (id, name)."""
    expires_ms = moment.now_ms + LEASE_TIMEOUT_MS
    process = session.process
    record = host.sign(
        "lease",
        {
            "v": 1,
            "type": "lease",
            "iat": moment.now_ms,
            "nonce": moment.nonce("lease"),
            "aud": host.key_id,
            "exp": expires_ms,
            "identity": identity[0],
            "name": identity[1],
            "epoch": lease.epoch,
            "session": {"cli": session.cli, "id": session.session_id},
            "process": {
                "pid": process.pid,
                "start": process.start_ticks,
                "boot": process.boot_id,
            },
            "granted": lease.since_ms,
        },
    )
    return record, expires_ms


def meet(context: Context, tx: Tx, caller: Session) -> SessionRow:
    """The row of a session that is about to hold something, or to wait for it.

    It goes by what it calls itself now, and has read what it read by another label. Raises MbxError
    no-lease when too many processes are above it.
    """
    lineage, now_ms = caller.caller.lineage, context.moment.now_ms
    known = sessions.find(tx, caller.process, caller.conversation)
    if known is not None:
        session = _by_label(tx, known, lineage.session_id)
    else:
        session = sessions.create(
            tx,
            cli=lineage.cli,
            session_id=lineage.session_id,
            conversation=caller.conversation,
            process=caller.process,
            now_ms=now_ms,
        )
    kinship.settle(tx, context.see, session, now_ms)
    return session


def grant(
    host: Host,
    moment: Moment,
    tx: Tx,
    identity: IdentityRow,
    row: LeaseRow,
    session: SessionRow,
) -> Granted:
    """Give the identity to the session in a new epoch. Raises MbxError in-use."""
    session = _own_label(tx, session)
    lease = transition(row.lease, "claim", now_ms=moment.now_ms, session_no=session.no)
    granted, record_id = _granted(host, moment, tx, identity, row, session, lease)
    _tell(tx, moment, "claim", identity, session, epoch=lease.epoch, record=record_id)
    return granted


def take_over(
    host: Host,
    moment: Moment,
    tx: Tx,
    identity: IdentityRow,
    row: LeaseRow,
    session: SessionRow,
) -> Granted:
    """As `grant`, by the owner's word: whoever holds the identity now holds it no longer.

    The caller has checked the record and tells of it in the audit log.
    """
    session = _own_label(tx, session)
    lease = transition(
        row.lease,
        "takeover",
        now_ms=moment.now_ms,
        epoch=row.lease.epoch,
        session_no=session.no,
    )
    return _granted(host, moment, tx, identity, row, session, lease)[0]


def _own_label(tx: Tx, session: SessionRow) -> SessionRow:
    """The session by a label that no other holder has: two credentials would be one file.

    That is what it calls itself, so that its conversation is remembered; while another process
    holds something by that name, its own id.
    """
    label, own = session.session_id, session.own_id
    is_taken = sessions.is_label_taken(tx, session.cli, label, besides_no=session.no)
    exposures.share(tx, session.cli, own, label)
    return _by_label(tx, session, own if is_taken else label)


def _by_label(tx: Tx, session: SessionRow, label: str) -> SessionRow:
    if session.session_id == label:
        return session
    exposures.share(tx, session.cli, session.session_id, label)
    sessions.relabel(tx, session.no, label)
    return replace(session, session_id=label)


def _granted(
    host: Host,
    moment: Moment,
    tx: Tx,
    identity: IdentityRow,
    row: LeaseRow,
    session: SessionRow,
    lease: Lease,
) -> tuple[Granted, str]:
    """The writes of every grant; the effect, and the id of the lease record."""
    record, expires_ms = sign_lease(
        host, moment, (identity.identity, identity.name), session, lease
    )
    leases.save_grant(tx, identity.no, row.lease, lease, record, expires_ms)
    token = moment.draw("token").hex()
    leases.drop_tokens(tx, identity.no, lease.epoch - _TOKENS_KEPT_EPOCHS + 1)
    leases.add_token(tx, identity.no, lease.epoch, hashlib.sha256(token.encode()).digest())
    sessions.bind(tx, session.no, identity.no, lease.epoch)
    kin.called(tx, session, moment.now_ms)
    waiting.leave(tx, session.no)
    if not _goes_by_process(session):  # such an id never comes back
        waiting.remember(tx, session.cli, session.session_id, identity.no, moment.now_ms)
    granted = Granted(
        session.no,
        session.process,
        session.conversation,
        session.cli,
        session.session_id,
        identity.no,
        identity.identity,
        identity.name,
        lease.epoch,
        token,
    )
    return granted, record.id


def recall(context: Context, tx: Tx, session: SessionRow, called: str) -> Relabelled | None:
    """Its client calls a session's conversation so from now on; None where that is known.

    Only in a process of one conversation, with which its lease goes on. What that conversation held
    before, if it is one that came back, is not taken from it for others.
    """
    is_taken = sessions.is_label_taken(tx, session.cli, called, besides_no=session.no)
    label = session.own_id if is_taken else called
    if label == session.session_id:
        return None
    renamed = _by_label(tx, session, label)
    kinship.settle(tx, context.see, renamed, context.moment.now_ms)
    holds = session.identity_no
    if holds is not None and not is_taken and waiting.remembered(tx, session.cli, label) is None:
        waiting.remember(tx, session.cli, label, holds, context.moment.now_ms)
    return Relabelled(session.process, session.cli, session.session_id, label, called)


def hand_back(tx: Tx, moment: Moment, identity: IdentityRow, session: SessionRow) -> Ended:
    """The end of a session: its lease is free, and its conversation may come back to it.

    Raises MbxError lease-lost.
    """
    ended = _give_up(tx, moment, identity, session)
    _tell(tx, moment, "end", identity, session, epoch=session.epoch)
    return ended


def _give_up(tx: Tx, moment: Moment, identity: IdentityRow, session: SessionRow) -> Ended:
    row = leases.find(tx, identity.no)
    lease = transition(row.lease, "release", now_ms=moment.now_ms, epoch=session.epoch)
    leases.save(tx, identity.no, row.lease, lease)
    leases.drop_tokens(tx, identity.no, lease.epoch + 1)
    sessions.unbind(tx, session.no)
    return _ended(identity.no, session)


def release(
    tx: Tx, moment: Moment, identity: IdentityRow, session: SessionRow, called: str
) -> Ended:
    """The session's own end of its lease; `called` is what it calls itself now.

    Raises MbxError lease-lost.
    """
    ended = _give_up(tx, moment, identity, session)
    for name in dict.fromkeys((session.session_id, called)):
        waiting.forget(tx, session.cli, name, identity.no)
    waiting.leave_beside(tx, session.no, identity.no)  # they had the same launch, and its wishes
    _tell(tx, moment, "release", identity, session, epoch=session.epoch)
    return ended


def forget(tx: Tx, session: SessionRow, identity_no: int) -> None:
    """The conversation of a session that lost an identity never waits for it by itself again.

    One that goes by its process is called otherwise too. In a process of one conversation nobody
    knows how: then no conversation of its agent CLI does.
    """
    name = session.conversation or None if _goes_by_process(session) else session.session_id
    waiting.forget(tx, session.cli, name, identity_no)


def _goes_by_process(session: SessionRow) -> bool:
    return session.session_id == session.own_id


def lapse(tx: Tx, moment: Moment, row: LeaseRow, session: SessionRow, why: str) -> None:
    """A held lease is held no longer: `session` is dead, or silent and not to be seen.

    Its binding stays, so that a session which was only silent is told what it lost.
    """
    lease = transition(row.lease, "lapse", now_ms=moment.now_ms, epoch=row.lease.epoch)
    leases.save(tx, row.identity_no, row.lease, lease)
    identity = identities.by_no(tx, row.identity_no)
    _tell(tx, moment, "lapse", identity, session, epoch=row.lease.epoch, why=why)


def bury(tx: Tx, moment: Moment, session: SessionRow, why: str) -> Ended | None:
    """The end of a session whose process is dead; None when it had nothing any more."""
    if session.identity_no is None or session.epoch is None:
        return None
    row = leases.find(tx, session.identity_no)
    if row.lease.epoch == session.epoch and row.lease.state is LeaseState.HELD:
        lapse(tx, moment, row, session, why)
    sessions.unbind(tx, session.no)
    return _ended(session.identity_no, session)


def revive(tx: Tx, moment: Moment, identity_no: int, epoch: int) -> None:
    """A lapsed lease is held again by the session it was granted to: sleep is not death.

    Not after the proved death of the holder (its session is no longer bound): a child that goes on
    with its token uses the lease until somebody claims it, but nobody would see that child end.
    """
    row = leases.find(tx, identity_no)
    session = sessions.by_no(tx, row.lease.session_no) if row.lease.session_no else None
    if session is None or (session.identity_no, session.epoch) != (identity_no, epoch):
        return
    if row.lease.epoch == epoch and row.lease.state is LeaseState.LAPSED:
        lease = transition(row.lease, "renew", now_ms=moment.now_ms, epoch=epoch)
        leases.save(tx, identity_no, row.lease, lease)
        identity = identities.by_no(tx, identity_no)
        audit.append(tx, at_ms=moment.now_ms, act="revive", identity=identity.identity, epoch=epoch)


def renew(tx: Tx, host: Host, moment: Moment, row: LeaseRow) -> str | None:
    """Sign a held lease again (same epoch, later expiry); the new record's id."""
    session = sessions.by_no(tx, row.lease.session_no) if row.lease.session_no else None
    if session is None or row.lease.state is not LeaseState.HELD:
        return None
    identity = identities.by_no(tx, row.identity_no)
    record, expires_ms = sign_lease(
        host, moment, (identity.identity, identity.name), session, row.lease
    )
    leases.save_renewal(tx, row.identity_no, row.lease.epoch, record, expires_ms)
    return record.id


def _tell(
    tx: Tx,
    moment: Moment,
    act: str,
    identity: IdentityRow,
    session: SessionRow,
    **detail: JsonValue,
) -> None:
    """One row of the audit log about an identity and a session."""
    audit.append(
        tx,
        at_ms=moment.now_ms,
        act=act,
        identity=identity.identity,
        name=identity.name,
        cli=session.cli,
        session=session.session_id,
        **detail,
    )


def _ended(identity_no: int, session: SessionRow) -> Ended:
    assert session.epoch is not None
    return Ended(
        session.no,
        session.process,
        session.conversation,
        session.cli,
        session.session_id,
        identity_no,
        session.epoch,
    )
