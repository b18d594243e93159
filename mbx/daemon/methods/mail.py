"""`mail.send` and `mail.reply`: accepting mail."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from mbx.core import limits, names
from mbx.core.delivery import OUTCOMES
from mbx.core.errors import MbxError
from mbx.core.ids import IdPrefix, parse_prefix
from mbx.core.message import KINDS, ORIGINS, Draft
from mbx.core.names import Address
from mbx.core.text import check_body, check_line
from mbx.daemon import addressing, listing, mailboxes, posting
from mbx.daemon.context import Answer, Context
from mbx.daemon.gate import Holder
from mbx.daemon.mailboxes import AckWords, Answered
from mbx.daemon.methods.table import lease_method
from mbx.daemon.params import Params
from mbx.daemon.posting import Place
from mbx.store.database import Tx


class SendRequest(NamedTuple):
    """A message as its sender wrote it, checked."""

    to: tuple[Address, ...]
    draft: Draft
    body_bytes: int
    reply_to: IdPrefix | None


@dataclass(frozen=True, slots=True)
class ReplyRequest:
    """An answer to a message, or an addition to one's own; `final` acks a received one too."""

    id: IdPrefix
    draft: Draft
    body_bytes: int
    final: AckWords | None


def _read_send(params: Params) -> SendRequest:
    to = params.strings("to", limits.ADDRESSES_MAX, required=True)
    draft, body_bytes = read_draft(params, params.string("subject"), KINDS[0])
    reply_to = params.optional_string("reply_to")
    return SendRequest(
        tuple(names.parse_address(text) for text in to),
        draft,
        body_bytes,
        parse_prefix(reply_to) if reply_to is not None else None,
    )


def _read_reply(params: Params) -> ReplyRequest:
    prefix = parse_prefix(params.string("id"))
    draft, body_bytes = read_draft(params, None, "reply")
    outcome = params.choice("final", OUTCOMES)
    did = params.optional_string("did")
    if did is not None and outcome is None:
        raise MbxError("usage", "did needs final: it tells what closing the request did")
    final = mailboxes.ack_words(outcome, did, None) if outcome else None
    return ReplyRequest(prefix, draft, body_bytes, final)


def read_draft(params: Params, subject: str | None, default_kind: str) -> tuple[Draft, int]:
    """What send and reply have in common, and the body's bytes.

    A reply keeps the subject, which is known later (None). Raises MbxError.
    """
    if subject is not None:
        check_line("subject", subject, limits.SUBJECT_MAX_CHARS)
    body = params.string("body")
    body_bytes = check_body(body)
    topic = params.optional_string("topic")
    if topic is not None:
        check_line("topic", topic, limits.TOPIC_MAX_CHARS)
    refs = params.strings("refs", limits.REFS_MAX)
    for ref in refs:
        check_line("ref", ref, limits.REF_MAX_CHARS)
    draft = Draft(
        subject=subject or "",
        body=body,
        kind=params.choice("kind", KINDS) or default_kind,
        needs_reply=params.boolean("needs_reply"),
        refs=refs,
        topic=topic,
        origin=params.choice("origin", ORIGINS),
        quiet=params.choice("wake", ("inbox",)) is not None,
    )
    return draft, body_bytes


def _send(context: Context, tx: Tx, holder: Holder, request: SendRequest) -> Answer:
    recipients = addressing.resolve(context, tx, holder.identity_no, request.to)
    place = Place()
    if request.reply_to is not None:
        place = _answered(context, tx, holder, request.reply_to).place
    sent = posting.post(context, tx, holder, request.draft, request.body_bytes, recipients, place)
    result = posting.posted(
        context, sent.id, place.thread, recipients, request.body_bytes, sent.waking, sent.warnings
    )
    return Answer(result, sent.effects)


def _reply(context: Context, tx: Tx, holder: Holder, request: ReplyRequest) -> Answer:
    answered = _answered(context, tx, holder, request.id)
    if request.final is not None and answered.received is None:
        raise MbxError(
            "usage",
            "final acks what was received, and this is a message of your own",
            f"mbx reply {answered.place.reply_to} without --final",
        )
    recipients = mailboxes.answer_reaches(tx, answered)
    draft, place = request.draft._replace(subject=answered.subject), answered.place
    sent = posting.post(context, tx, holder, draft, request.body_bytes, recipients, place)
    effects = sent.effects
    if request.final is not None and answered.received is not None:
        effects += mailboxes.ack(context, tx, holder, [answered.received], request.final)
    result = posting.posted(
        context, sent.id, place.thread, recipients, request.body_bytes, sent.waking, sent.warnings
    )
    return Answer(result, effects)


def _answered(context: Context, tx: Tx, holder: Holder, prefix: IdPrefix) -> Answered:
    """What is answered or passed on: its writer has it before its eyes now, whenever it read it.

    Raises MbxError not-found, ambiguous.
    """
    answered = mailboxes.answered(tx, holder, prefix)
    head, content = answered.received, answered.content
    if head is None:
        read = mailboxes.own_exposure(context, holder, content)
    else:
        reader = listing.reader(context, tx, holder.identity)
        read = mailboxes.exposure(context, holder, reader, head, content)
    mailboxes.expose(tx, holder, [read])
    return answered


METHODS: Final = (
    lease_method(
        "mail.send",
        "Send one signed message to one or several mailboxes.",
        _read_send,
        _send,
        writes=True,
    ),
    lease_method(
        "mail.reply",
        "Answer a received message in its thread (`final` acks it too), or add to one of one's own:"
        " that goes to everybody who got it.",
        _read_reply,
        _reply,
        writes=True,
    ),
)
"""What this module adds to the table of methods."""
