"""The owner's own mail: drafted at the owner's terminal, signed elsewhere, delivered like any.

Nobody holds the owner's mailbox by a lease, so its mail is not signed by the host in anybody's
name: the record is the owner's own, and readers see `authority: OWNER` only as long as it verifies.
"""

from collections.abc import Mapping, Sequence

from mbx.core import message
from mbx.core.canonical import JsonValue
from mbx.core.errors import MbxError
from mbx.core.exposure import FIRST_HAND
from mbx.core.ids import parse_prefix
from mbx.core.message import OWNER_MAIL, Envelope, Party
from mbx.core.names import OWNER, Address
from mbx.core.record import Record, RecordError, Sealed
from mbx.daemon import addressing, mailboxes, posting
from mbx.daemon.authority import DRAFT_AGAIN
from mbx.daemon.context import Context, Result
from mbx.daemon.drafting import Draft, owner_id
from mbx.daemon.effects import Effect
from mbx.daemon.gate import OwnerTerminal
from mbx.daemon.posting import Place, Recipient
from mbx.store import audit, identities, messages, peers
from mbx.store.database import Tx
from mbx.store.messages import NewMessage


def draft(
    context: Context,
    tx: Tx,
    own: OwnerTerminal,
    written: message.Draft,
    to: Sequence[Address],
    place: Place,
) -> Draft:
    """A letter for the owner to sign. Raises MbxError unknown-recipient, closed, too-many."""
    recipients = addressing.resolve(context, tx, own.identity_no, to)
    return _draft(context, tx, own, written, recipients, place)


def answer(
    context: Context, tx: Tx, own: OwnerTerminal, written: message.Draft, prefix: str
) -> Draft:
    """An answer to a letter that the owner got or wrote.

    Raises MbxError not-found, ambiguous, closed.
    """
    answered = mailboxes.answered(tx, own, parse_prefix(prefix))
    recipients = mailboxes.answer_reaches(tx, answered)
    written = written._replace(subject=answered.subject)
    return _draft(context, tx, own, written, recipients, answered.place)


def _draft(
    context: Context,
    tx: Tx,
    own: OwnerTerminal,
    written: message.Draft,
    recipients: Sequence[Recipient],
    place: Place,
) -> Draft:
    host, now_ms = context.host, context.moment.now_ms
    envelope = Envelope(
        sender=host.party(own.identity, OWNER),
        lease_epoch=0,
        lease_id="",
        to=posting.parties(context, recipients),
        thread=place.thread,
        reply_to=place.reply_to,
        hop=0,
        sent_at_ms=now_ms,
        project=None,
        audience=sorted({host.key_id, *posting.audience(context, recipients)}),
        nonce=context.moment.nonce("owner record"),
        external_since=now_ms if written.origin == FIRST_HAND else place.root_ms,
        quiet=posting.quiet(written, recipients),
    )
    return Draft(OWNER_MAIL, message.owner_payload(written, envelope, owner_id(tx)))


def deliver(
    context: Context, tx: Tx, record: Record, payload: Mapping[str, JsonValue]
) -> tuple[Result, tuple[Effect, ...]]:
    """Put a letter that the owner signed into the mailboxes that it names, also of paired hosts.

    Raises MbxError owner-required for a record that is no letter of ours, closed or
    unknown-recipient when a mailbox is gone since it was drafted, conflict for names that are not
    those of the ids beside them.
    """
    try:
        letter = message.read_letter(payload)
    except RecordError as error:
        raise MbxError("owner-required", f"the record is not to be believed: {error}") from error
    owner = identities.by_name(tx, OWNER)
    if owner is None:
        raise LookupError("the owner has no mailbox")
    _check_sender(context, payload, owner.identity)
    recipients = addressing.each_once(_recipient(context, tx, party) for party in letter.to)
    answered = messages.by_id(tx, letter.reply_to) if letter.reply_to else None
    (key_id,) = record.signatures
    new = NewMessage(
        record=Sealed.of(record),
        sender_no=owner.no,
        accepted_ms=context.moment.now_ms,
        kind=letter.draft.kind,
        needs_reply=letter.draft.needs_reply,
        subject=letter.draft.subject,
        body=letter.draft.body,
        body_bytes=letter.body_bytes,
        thread=letter.thread or record.id,
        reply_no=answered,
        external=letter.is_external,
        root_ms=letter.root_ms,
        owner_key=key_id,
    )
    woken = posting.waking(letter.draft, recipients, new.sender_no)
    effects = posting.deliver(context, tx, new, recipients, woken)
    audit.append(
        tx,
        at_ms=context.moment.now_ms,
        act=OWNER_MAIL,
        identity=owner.identity,
        record=record.id,
        to=[to.identity.name for to in recipients],
    )
    told = posting.posted(context, record.id, letter.thread, recipients, letter.body_bytes, woken)
    return told, effects


def _check_sender(context: Context, payload: Mapping[str, JsonValue], identity: str) -> None:
    sender = context.host.party(identity, OWNER).as_object()
    if payload["from"] != sender or payload["hop"] != 0 or payload["attachments"] != []:
        raise MbxError("owner-required", "the record is not to be believed: another sender")


def _recipient(context: Context, tx: Tx, party: Party) -> Recipient:
    if party.host == context.host.label:
        row = identities.by_identity(tx, party.identity)
    else:
        peer = peers.by_label(tx, party.host)
        row = peers.identity_of(tx, peer.no, party.identity) if peer else None
    if row is None:
        raise MbxError("unknown-recipient", "a mailbox of the letter is not known here")
    if row.name != party.name:
        words = f"the record names {party.name}; that identity is called {row.name}"
        raise MbxError("conflict", words, DRAFT_AGAIN)
    return addressing.mailbox_of(tx, row)
