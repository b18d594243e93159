"""Identities end, by the owner's word: they are held, claimed and written to no more.

Nothing of their mail goes, their names stay taken, and a holder that lives, or of which nobody
knows whether it lives, is never touched.
"""

from typing import Final, NamedTuple

from mbx.core import directive, limits
from mbx.core.canonical import JsonValue
from mbx.core.directive import PRUNE, RETIRE, Retirement, Seen
from mbx.core.errors import MbxError
from mbx.core.lease import LeaseState, transition
from mbx.core.names import OWNER
from mbx.core.record import Record
from mbx.daemon import granting
from mbx.daemon.authority import DRAFT_AGAIN
from mbx.daemon.context import Context, Result
from mbx.daemon.drafting import Draft, envelope, named, owner_id
from mbx.daemon.effects import Effect, Retired
from mbx.daemon.times import rfc3339
from mbx.store import audit, health, identities, leases, sessions
from mbx.store.database import Tx
from mbx.store.identities import IdentityRow
from mbx.store.leases import LeaseRow
from mbx.store.sessions import SessionRow

_DAY_MS: Final = 86_400_000
_DEAD: Final = "its process has ended"


class Mailbox(NamedTuple):
    """An identity and its lease, as of one transaction."""

    identity: IdentityRow
    row: LeaseRow

    def seen(self) -> Seen:
        """As a directive names it."""
        return Seen(self.identity.identity, self.identity.name, self.row.lease.epoch)


# -- drafts ---------------------------------------------------------------------------------------


def draft(context: Context, tx: Tx, name: str) -> Draft:
    """The end of one identity. Raises MbxError unknown-identity, closed, in-use."""
    mailbox = _living(tx, named(tx, name))
    refuse_holder(context, tx, mailbox)
    open_count = health.open_count(tx, mailbox.identity.no)
    lines = [
        *about(context, tx, mailbox),
        f"its mail stays; nobody will read the {counted(open_count)} in it"
        if open_count
        else "its mail stays; all of it is acked",
        "who writes to it is told that it is closed; its name stays taken",
    ]
    content = directive.payload(Retirement((mailbox.seen(),)), _envelope(context, tx))
    return Draft("directive", content, name, tuple(lines))


def prune_draft(context: Context, tx: Tx, days: int) -> Draft:
    """The end of those that nobody has used for so long. Raises MbxError not-found for none."""
    unseen_since_ms = context.moment.now_ms - days * _DAY_MS
    fit = [one for one in survey(context, tx, unseen_since_ms) if not one.why]
    if not fit:
        raise MbxError(
            "not-found",
            f"no identity can be retired that nobody has used for {days} days",
            f"mbx identity prune --days {days} lists why each one stays",
        )
    chosen = fit[: limits.DIRECTIVE_IDENTITIES_MAX]
    content = directive.payload(
        Retirement(tuple(one.mailbox.seen() for one in chosen), unseen_since_ms),
        _envelope(context, tx),
    )
    lines = [f"{len(chosen)} of {len(fit)} that nobody has used for {days} days, without open mail"]
    lines += [
        f"{one.mailbox.identity.name}: role {one.mailbox.identity.role}, last used"
        f" {rfc3339(one.used_ms)}"
        for one in chosen
    ]
    confirm = chosen[0].mailbox.identity.name if len(chosen) == 1 else ""
    return Draft("directive", content, confirm, tuple(lines))


def about(context: Context, tx: Tx, mailbox: Mailbox) -> list[str]:
    """What the owner should know of an identity before it ends."""
    identity, row = mailbox
    state = row.lease.state.name.lower()
    since, used = rfc3339(row.lease.since_ms), rfc3339(used_ms(context, mailbox))
    lines = [f"{identity.name}: role {identity.role}, {state} since {since}, last used {used}"]
    if identity.description:
        lines.append(f"it says of itself: {identity.description}")
    return lines


def _envelope(context: Context, tx: Tx) -> dict[str, JsonValue]:
    return envelope(context, owner_id(tx))


def _living(tx: Tx, identity: IdentityRow) -> Mailbox:
    if identity.retired_ms is not None:
        raise MbxError("closed", f"{identity.name} is retired already", "mbx identity list --all")
    return Mailbox(identity, leases.find(tx, identity.no))


# -- what nobody uses -----------------------------------------------------------------------------


class Candidate(NamedTuple):
    """An identity, when it was last used (ms UTC), and `why` it stays, '' if nobody needs it."""

    mailbox: Mailbox
    used_ms: int
    why: str


def survey(context: Context, tx: Tx, unseen_since_ms: int) -> list[Candidate]:
    """Every identity that is not retired, the longest unused first."""
    rows = {row.identity_no: row for row in leases.everything(tx)}
    found = []
    for identity in identities.everyone(tx):
        if identity.retired_ms is None:
            mailbox = Mailbox(identity, rows[identity.no])
            why = why_kept(context, tx, mailbox, unseen_since_ms)
            found.append(Candidate(mailbox, used_ms(context, mailbox), why))
    return sorted(found, key=lambda one: (one.used_ms, one.mailbox.identity.name))


def preview(context: Context, tx: Tx, days: int) -> Result:
    """What a prune would retire, the longest unused first, and why the others stay; bounded."""
    found = survey(context, tx, context.moment.now_ms - days * _DAY_MS)
    fit, kept = [one for one in found if not one.why], [one for one in found if one.why]
    return {
        "days": days,
        "prunable": [_shown(one) for one in fit[: limits.LIST_MAX_ROWS]],
        "prunable_total": len(fit),
        "at_once": limits.DIRECTIVE_IDENTITIES_MAX,
        "staying": [_shown(one) for one in kept[: limits.LIST_MAX_ROWS]],
        "staying_total": len(kept),
    }


def _shown(candidate: Candidate) -> Result:
    identity, row = candidate.mailbox
    return {
        "name": identity.name,
        "identity": identity.identity,
        "role": identity.role,
        "state": row.lease.state.name.lower(),
        "last_used": rfc3339(candidate.used_ms),
        "reason": candidate.why or None,
    }


def why_kept(context: Context, tx: Tx, mailbox: Mailbox, unseen_since_ms: int) -> str:
    """Why an identity is none of those that nobody needs; '' if it is one."""
    holder = _holder_in_the_way(context, tx, mailbox)
    if holder is not None:
        return f"held by {holder.cli} {holder.session_id}"
    at_ms = used_ms(context, mailbox)
    if at_ms >= unseen_since_ms:
        return f"used at {rfc3339(at_ms)}"
    open_count = health.open_count(tx, mailbox.identity.no)
    return f"has {counted(open_count)}" if open_count else ""


def used_ms(context: Context, mailbox: Mailbox) -> int:
    """When an identity was last held or heard of (ms UTC)."""
    identity, row = mailbox
    heard_ms = context.last_seen_ms(identity.no) or identity.last_seen_ms or 0
    return min(max(heard_ms, row.lease.since_ms), context.moment.now_ms)


def counted(messages: int) -> str:
    """So many unacked messages, in words; counted up to a bound."""
    more = "or more " if messages >= health.COUNTED_MAX else ""
    return f"{messages:,} {more}unacked message{'' if messages == 1 else 's'}"


# -- applying -------------------------------------------------------------------------------------


def retire(
    context: Context, tx: Tx, record: Record, wanted: Retirement
) -> tuple[Result, tuple[Effect, ...]]:
    """End all of the identities that the owner named, or raise MbxError and change nothing.

    `conflict` when one is not as the owner saw it, `in-use` when one is held, `closed` when one is
    retired already.
    """
    found = [_living(tx, find(tx, seen)) for seen in wanted.identities]
    for mailbox, seen in zip(found, wanted.identities, strict=True):
        refuse_change(mailbox, seen)
        if wanted.unseen_since_ms is not None:
            _refuse_needed(context, tx, mailbox, wanted.unseen_since_ms)
    before = [told(tx, mailbox) for mailbox in found]
    effects = [end(context, tx, mailbox) for mailbox in found]
    act = RETIRE if wanted.unseen_since_ms is None else PRUNE
    for mailbox in found:
        audit.append(
            tx,
            at_ms=context.moment.now_ms,
            act=act,
            identity=mailbox.identity.identity,
            name=mailbox.identity.name,
            epoch=mailbox.row.lease.epoch,
            record=record.id,
        )
    names = [mailbox.identity.name for mailbox in found]
    after = [{**one, "state": "retired"} for one in before]
    return {"act": act, "retired": names, "before": before, "after": after}, tuple(effects)


def find(tx: Tx, seen: Seen) -> IdentityRow:
    """The identity that a directive names. Raises MbxError unknown-identity, closed."""
    identity = identities.by_identity(tx, seen.identity)
    if identity is None:
        raise MbxError(
            "unknown-identity", f"the identity {seen.name} is not known here", DRAFT_AGAIN
        )
    if identity.name == OWNER:
        raise MbxError("closed", "the owner's own mailbox never ends", "mbx inbox --owner")
    return identity


def refuse_change(mailbox: Mailbox, seen: Seen) -> None:
    """Refuse (`conflict`) what is not any more as the owner saw it."""
    if mailbox.seen() != seen:
        now = f"{mailbox.identity.name} at epoch {mailbox.row.lease.epoch}"
        raise MbxError(
            "conflict",
            f"the directive was signed for {seen.name} at epoch {seen.epoch}; it is {now} now",
            DRAFT_AGAIN,
            name=mailbox.identity.name,
            epoch=mailbox.row.lease.epoch,
        )


def refuse_holder(context: Context, tx: Tx, mailbox: Mailbox) -> None:
    """Refuse (`in-use`) what somebody holds who is not proved dead."""
    holder = _holder_in_the_way(context, tx, mailbox)
    if holder is None:
        return
    live = context.look(holder.process) == "live"
    raise MbxError(
        "in-use",
        f"{mailbox.identity.name} is held by {holder.cli} {holder.session_id}"
        + ("" if live else ", of which nobody can tell whether it lives"),
        "release it there first: mbx identity release; or end that session",
        holder={"cli": holder.cli, "session": holder.session_id},
    )


def end(context: Context, tx: Tx, mailbox: Mailbox) -> Effect:
    """End one identity: no lease, nobody who waits for it or resumes it. Raises MbxError in-use.

    The token of the last epoch stays and answers lease-lost: a child of a dead holder may go on.
    """
    refuse_holder(context, tx, mailbox)
    identity, row = mailbox
    if row.lease.state is LeaseState.HELD:
        holder = _holder(tx, row)
        assert holder is not None
        granting.lapse(tx, context.moment, row, holder, _DEAD)
        row = leases.find(tx, identity.no)
    lease = transition(row.lease, "release", now_ms=context.moment.now_ms, epoch=row.lease.epoch)
    leases.save(tx, identity.no, row.lease, lease)
    leases.drop_tokens(tx, identity.no, lease.epoch)
    identities.retire(tx, identity.no, context.moment.now_ms)
    return Retired(identity.no)


def _refuse_needed(context: Context, tx: Tx, mailbox: Mailbox, unseen_since_ms: int) -> None:
    refuse_holder(context, tx, mailbox)
    why = why_kept(context, tx, mailbox, unseen_since_ms)
    if why:
        raise MbxError("conflict", f"{mailbox.identity.name} is needed: {why}", DRAFT_AGAIN)


def _holder_in_the_way(context: Context, tx: Tx, mailbox: Mailbox) -> SessionRow | None:
    """Who holds the identity and is not proved dead; also who lapsed and is seen to live."""
    row = mailbox.row
    holder = _holder(tx, row)
    if holder is None:
        return None
    evidence = context.look(holder.process)
    if row.lease.state is LeaseState.HELD:
        return None if evidence == "dead" else holder
    may_go_on = (holder.identity_no, holder.epoch) == (row.identity_no, row.lease.epoch)
    return holder if may_go_on and evidence == "live" else None


def _holder(tx: Tx, row: LeaseRow) -> SessionRow | None:
    """The session of a lease that was not given back."""
    if row.lease.state is LeaseState.FREE or row.lease.session_no is None:
        return None
    return sessions.by_no(tx, row.lease.session_no)


def told(tx: Tx, mailbox: Mailbox) -> Result:
    """An identity before a directive acts on it."""
    identity, row = mailbox
    return {
        "name": identity.name,
        "state": "retired" if identity.retired_ms is not None else row.lease.state.name.lower(),
        "epoch": row.lease.epoch,
        "unacked": health.open_count(tx, identity.no),
    }
