"""Mail of a retired identity goes on to another, by the owner's word.

New mail is put into the mailbox at the end of the forwards. Mail that was unacked in the old one is
handed on: the other gets a copy, and the old copy ends as superseded with a receipt, so that its
sender sees the truth. That is done in pieces, since everybody waits while one runs; a mailbox that
is forwarded and still has unacked mail is by itself the note that there is more to do.
"""

from typing import Final, NamedTuple

from mbx.core import directive
from mbx.core.delivery import SUPERSEDED_OUTCOME, Stage
from mbx.core.directive import FORWARD, Forwarding
from mbx.core.errors import MbxError
from mbx.core.limits import FORWARD_PIECE_ROWS
from mbx.core.names import OWNER
from mbx.core.receipt import Fact
from mbx.core.record import Record
from mbx.daemon import receipting, retiring
from mbx.daemon.authority import DRAFT_AGAIN
from mbx.daemon.context import Answer, Context, Result
from mbx.daemon.drafting import Draft, envelope, named, owner_id
from mbx.daemon.effects import Arrived, Described, Effect, HandOn
from mbx.daemon.host import Host
from mbx.daemon.retiring import Mailbox
from mbx.daemon.world import Moment
from mbx.store import audit, forwards, health, identities, leases, owners
from mbx.store.database import Tx
from mbx.store.identities import IdentityRow

LEFT_MAX: Final = 1_000
"""So many forwarded mailboxes with mail that is left are looked after at once."""


class Piece(NamedTuple):
    """What one transaction handed on: messages closed in the old mailbox, effects for the rest."""

    moved: int = 0
    effects: tuple[Effect, ...] = ()


# -- the owner's word -----------------------------------------------------------------------------


def draft(context: Context, tx: Tx, old: str, new: str) -> Draft:
    """The forward from one identity to another.

    Raises MbxError unknown-identity, usage (to itself), closed (the other is retired), in-use.
    """
    source, target = named(tx, old), named(tx, new)
    _refuse_target(source, target)
    mailbox = Mailbox(source, leases.find(tx, source.no))
    if source.retired_ms is None:
        retiring.refuse_holder(context, tx, mailbox)
    previous = owners.last_forward(tx, source.identity)
    wanted = Forwarding(mailbox.seen(), target.identity, target.name, previous)
    lines = (
        *retiring.about(context, tx, mailbox),
        *retiring.about(context, tx, Mailbox(target, leases.find(tx, target.no))),
        f"{old} is retired already" if source.retired_ms is not None else f"{old} is retired by it",
        f"{retiring.counted(health.open_count(tx, source.no))} of {old} will be handed to {new}",
        f"what is written to {old} from now on reaches {new}, and its sender is told so",
    )
    content = directive.payload(wanted, envelope(context, owner_id(tx)))
    return Draft("directive", content, old, lines)


def forward(
    context: Context, tx: Tx, record: Record, wanted: Forwarding
) -> tuple[Result, tuple[Effect, ...]]:
    """Let mail of one identity go to another from now on, or raise MbxError and change nothing.

    The first is retired, if it is not yet. `conflict` when one of them is not as the owner saw it,
    `in-use` when the first is held, `closed` when the other is retired.
    """
    source = retiring.find(tx, wanted.source)
    target = identities.by_identity(tx, wanted.to)
    if target is None:
        raise MbxError("unknown-identity", f"the identity {wanted.to_name} is not known here")
    _refuse_target(source, target)
    mailbox = Mailbox(source, leases.find(tx, source.no))
    retiring.refuse_change(mailbox, wanted.source)
    if target.name != wanted.to_name:
        raise MbxError("conflict", f"{wanted.to_name} is called {target.name} now", "repeat it")
    if wanted.previous != owners.last_forward(tx, source.identity):
        raise MbxError(
            "conflict",
            f"another record says by now where mail of {source.name} goes",
            DRAFT_AGAIN,
        )
    before = retiring.told(tx, mailbox)
    effects: list[Effect] = []
    ended = retiring.end(context, tx, mailbox) if source.retired_ms is None else None
    effects.append(ended or Described(source.no))  # paired hosts are told of either
    forwards.set_forward(tx, source.no, target.no)
    retired = identities.by_no(tx, source.no)
    piece = hand_on(tx, context.host, context.moment, retired)
    left = forwards.count_open(tx, source.no)
    audit.append(
        tx,
        at_ms=context.moment.now_ms,
        act=FORWARD,
        identity=source.identity,
        name=source.name,
        epoch=wanted.source.epoch,
        to=target.identity,
        to_name=target.name,
        moved=piece.moved,
        left=left,
        record=record.id,
    )
    # Mail that was left because its way ended at a retired mailbox may have one from now on.
    others = [HandOn(no) for no in forwards.left(tx, LEFT_MAX) if no != source.no]
    told: Result = {
        "act": FORWARD,
        "agent": source.name,
        "forwarded_to": context.host.address(target.name),
        "moved": piece.moved,
        "left": left,
        "before": before,
        "after": {**before, "state": "retired", "unacked": left},
    }
    return told, (*effects, *piece.effects, *others)


def _refuse_target(source: IdentityRow, target: IdentityRow) -> None:
    if target.no == source.no:
        words = f"{source.name} cannot be forwarded to itself"
        raise MbxError("usage", words, "name another identity: mbx identity list")
    if target.name == OWNER:
        raise MbxError("closed", "the owner's own mailbox takes no forwards", "choose an agent's")
    if target.retired_ms is not None:
        raise MbxError(
            "closed", f"{target.name} is retired: nobody reads its mail", "mbx identity list"
        )


# -- where mail goes ------------------------------------------------------------------------------


def end_of(tx: Tx, identity: IdentityRow) -> IdentityRow | None:
    """Who gets the mail of a retired identity; None if nobody: its way ends at a retired one."""
    end = identities.by_no(tx, forwards.end_of(tx, identity.no))
    return end if end.retired_ms is None else None


def hand_on(tx: Tx, host: Host, moment: Moment, source: IdentityRow) -> Piece:
    """Hand on a piece of the unacked mail of a retired identity."""
    target = end_of(tx, source)
    if source.retired_ms is None or target is None:
        return Piece()
    mail = forwards.open_mail(tx, source.no, FORWARD_PIECE_ROWS)
    if not mail:
        return Piece()
    note = f"forwarded to {target.name}"
    given = forwards.hand_on(
        tx, source.no, target.no, mail, moment.now_ms, SUPERSEDED_OUTCOME, note
    )
    facts = [
        (
            one.sender_peer_no,
            Fact(
                one.id, source.identity, Stage.ACKED, moment.now_ms, SUPERSEDED_OUTCOME, None, note
            ),
        )
        for one in mail
    ]
    effects = receipting.state_all(tx, host, moment, facts, receipting.NOBODY)
    if given:
        effects = (*effects, Arrived((target.no,)))
    if forwards.has_open_mail(tx, source.no):
        effects = (*effects, HandOn(source.no))
    return Piece(len(mail), effects)


def continued(tx: Tx, host: Host, moment: Moment, identity_no: int) -> Answer:
    """The next piece of what a forward left, with a row in the audit log."""
    source = identities.by_no(tx, identity_no)
    piece = hand_on(tx, host, moment, source)
    if piece.moved:
        target = end_of(tx, source)
        audit.append(
            tx,
            at_ms=moment.now_ms,
            act="hand-on",
            identity=source.identity,
            name=source.name,
            to=target.identity if target else None,
            to_name=target.name if target else None,
            moved=piece.moved,
        )
    return Answer({"moved": piece.moved}, piece.effects)
