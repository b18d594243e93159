"""Mail that this host itself writes: what came back, and what an owner must know of a link.

Its sender is an identity of a reserved name that nobody can ever hold: retired from its first
moment, so that no listing offers it and no answer to it is accepted.
"""

from typing import Final

from mbx.core import message
from mbx.core.keys import crockford
from mbx.core.message import Draft, Envelope
from mbx.daemon.context import Context
from mbx.daemon.effects import Effect
from mbx.daemon.posting import Place, Recipient, deliver, waking
from mbx.store import identities, leases, messages
from mbx.store.database import Tx
from mbx.store.identities import IdentityRow
from mbx.store.messages import NewMessage

SENDER: Final = "mbx"
"""The name that mail of the host's own is from; reserved."""


def write(
    context: Context, tx: Tx, to: IdentityRow, subject: str, body: str, place: Place | None = None
) -> tuple[Effect, ...]:
    """Deliver an alert of the host's own to a mailbox here; what its commit lets out.

    The texts are ours, with names of the grammar and codes in them: nothing that others wrote.
    """
    host, now_ms, place = context.host, context.moment.now_ms, place or Place()
    sender = _sender(context, tx)
    draft = Draft(subject, body, "alert", needs_reply=False)
    envelope = Envelope(
        sender=host.party(sender.identity, sender.name),
        lease_epoch=0,
        lease_id="",
        to=[host.party(to.identity, to.name)],
        thread=place.thread,
        reply_to=place.reply_to,
        hop=0,
        sent_at_ms=now_ms,
        project=None,
        audience=(host.key_id,),
        nonce=context.moment.nonce(f"host mail {to.no} {place.reply_to} {subject}"),
    )
    record = host.sign("message", message.payload(draft, envelope))
    new = NewMessage(
        record=record,
        sender_no=sender.no,
        accepted_ms=now_ms,
        kind=draft.kind,
        needs_reply=False,
        subject=subject,
        body=body,
        body_bytes=len(body.encode()),
        thread=place.thread or record.id,
        reply_no=place.reply_no,
    )
    recipients = [Recipient(to, leases.find(tx, to.no))]
    return deliver(context, tx, new, recipients, waking(draft, recipients, sender.no))


def has_said(tx: Tx, subject: str, word: str) -> bool:
    """Whether the host has written that lately, with this word in it: nobody need hear it twice."""
    sender = identities.by_name(tx, SENDER)
    return sender is not None and messages.says(tx, sender.no, subject, word)


def _sender(context: Context, tx: Tx) -> IdentityRow:
    known = identities.by_name(tx, SENDER)
    if known is not None:
        return known
    moment = context.moment
    made = identities.create(
        tx,
        identity=crockford(moment.draw("host mail sender")),
        name=SENDER,
        role=SENDER,
        description="",
        project=None,
        now_ms=moment.now_ms,
    )
    leases.create(tx, made.no, moment.now_ms)
    identities.retire(tx, made.no, moment.now_ms)
    return identities.by_no(tx, made.no)
