"""Finding and moving deliveries of the caller's own mailbox: what several methods share."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from mbx.core.delivery import ACTED_OUTCOME, DEFAULT_OUTCOME, Stage
from mbx.core.errors import MbxError
from mbx.core.exposure import FIRST_HAND, Exposure, root_at_reading
from mbx.core.ids import IdPrefix
from mbx.core.limits import NOTE_MAX_CHARS
from mbx.core.lines import AUTHORITY_OWNER
from mbx.core.receipt import Fact
from mbx.core.text import check_text, cut_did
from mbx.daemon import addressing, receipting
from mbx.daemon.authority import Reader
from mbx.daemon.context import Context
from mbx.daemon.effects import Effect, Glimpsed, Handled
from mbx.daemon.gate import Holder, Mailbox, OwnerTerminal
from mbx.daemon.posting import Place, Recipient
from mbx.store import audit, exposures, identities, messages
from mbx.store.database import Tx
from mbx.store.history import OwnMessage
from mbx.store.messages import Head, SentHead

M = TypeVar("M", bound=Head | SentHead)


@dataclass(frozen=True, slots=True)
class AckWords:
    """What an ack says; `did_cut` when a longer `did` was cut (it never fails an ack)."""

    outcome: str
    did: str | None
    did_cut: bool
    note: str | None


def ack_words(outcome: str | None, did: str | None, note: str | None) -> AckWords:
    """Check an ack's words. Without an outcome: acted where something was done, else noted."""
    kept, was_cut = cut_did(did) if did else (None, False)
    if note is not None:
        check_text("note", note, NOTE_MAX_CHARS)
    chosen = outcome or (ACTED_OUTCOME if kept else DEFAULT_OUTCOME)
    return AckWords(chosen, kept, was_cut, note or None)


def find_received(tx: Tx, own: Mailbox, prefix: IdPrefix) -> Head:
    """The one received message that `prefix` names. Raises MbxError not-found, ambiguous.

    A message of somebody else's and one that does not exist give the same answer.
    """
    return _only(messages.received(tx, own.identity_no, prefix), prefix, _listing(own))


def find_sent(tx: Tx, holder: Holder, prefix: IdPrefix) -> SentHead:
    """The one sent message that `prefix` names. Raises MbxError not-found, ambiguous."""
    return _only(messages.sent_one(tx, holder.identity_no, prefix), prefix, "mbx sent")


def _only(found: Sequence[M], prefix: IdPrefix, listing: str) -> M:
    if not found:
        raise MbxError("not-found", f"no message with id {prefix.text}", listing)
    if len(found) > 1:
        raise MbxError(
            "ambiguous",
            f"{prefix.text} fits {len(found)} messages",
            "give more characters of the id",
            candidates=[head.id for head in found],
        )
    return found[0]


def _root_of(head: Head | SentHead) -> int | None:
    """When what a message says first came from outside; None when it is its writer's own."""
    if not head.external:
        return None
    return head.accepted_ms if head.root_ms is None else head.root_ms


class Answered(NamedTuple):
    """A message that is answered, its payload, and where the answer stands in its conversation.

    `received` is None for a message of one's own: one adds to what one said.
    """

    no: int
    subject: str
    place: Place
    received: Head | None
    content: dict[str, Any]


def answered(tx: Tx, own: Mailbox, prefix: IdPrefix) -> Answered:
    """The message that `prefix` names: received, or else sent.

    Raises MbxError not-found, ambiguous.
    """
    received = messages.received(tx, own.identity_no, prefix)
    sent = [] if received else messages.sent_one(tx, own.identity_no, prefix)
    head: Head | SentHead
    head = _only(sent, prefix, "") if sent else _only(received, prefix, _listing(own))
    said = content(tx, head.no)
    # What another host says of the thread counts as far as it was accepted, when it came.
    thread = head.thread if isinstance(head, Head) else said["thread"] or head.id
    place = Place(thread, head.id, head.no, head.hop, _root_of(head))
    return Answered(head.no, head.subject, place, head if isinstance(head, Head) else None, said)


def answer_reaches(tx: Tx, what: Answered) -> list[Recipient]:
    """Whom an answer goes to: the sender; for a message of one's own, everybody who got that.

    Raises MbxError closed when one of them is retired and nobody has its mail.
    """
    if what.received is not None:
        return [addressing.mailbox_of(tx, identities.by_no(tx, what.received.sender_no))]
    return addressing.each_once(
        addressing.mailbox_of(tx, identities.by_no(tx, copy.recipient_no))
        for copy in messages.copies(tx, what.no)
    )


def _listing(own: Mailbox) -> str:
    return "mbx inbox --all" + (" --owner" if isinstance(own, OwnerTerminal) else "")


def content(tx: Tx, no: int) -> dict[str, Any]:
    """The payload of a stored message; it was verified when it was stored."""
    payload: dict[str, Any] = json.loads(messages.payload(tx, no))
    return payload


def mark_read(context: Context, tx: Tx, own: Mailbox, heads: Sequence[Head]) -> tuple[Effect, ...]:
    """Bring deliveries to *read* and keep the receipts; what their commit lets out."""
    fresh = [head for head in heads if head.stage < Stage.READ]
    for head in fresh:
        messages.advance(
            tx,
            own.identity_no,
            head,
            Stage.READ,
            now_ms=context.moment.now_ms,
            epoch=own.epoch,
        )
    facts = [(head.peer_no, _fact(context, own, head, Stage.READ)) for head in fresh]
    stated = receipting.state_all(tx, context.host, context.moment, facts, own.epoch)
    return (*stated, Handled(own.identity_no)) if fresh else stated


def expose(tx: Tx, holder: Holder, read: Iterable[Exposure | None]) -> None:
    """Remember what the conversation read now, as long as it may shape what it writes."""
    found = [one for one in read if one is not None]
    exposures.expose(tx, holder.binding.cli, holder.binding.session_id, found)


def exposure(
    context: Context,
    holder: Holder,
    reader: Reader,
    head: Head | OwnMessage,
    content: dict[str, Any],
) -> Exposure | None:
    """What the conversation is exposed to by reading this; None for nothing.

    The owner's own words are no relay; what comes from outside is, whoever passes it on.
    """
    if head.sender_no == holder.identity_no:
        return own_exposure(context, holder, content)
    root_ms = root_at_reading(content["origin"], content["external_since"], context.moment.now_ms)
    return _exposure(context, reader, head, root_ms)


def _exposure(
    context: Context, reader: Reader, head: Head | OwnMessage, root_ms: int | None
) -> Exposure | None:
    is_owners = reader.lines(head).trust == AUTHORITY_OWNER
    if root_ms is None and is_owners:
        return None
    limit = None if is_owners else reader.grant(head).hop_limit
    hop = 0 if is_owners else head.hop
    return Exposure(head.sender_no, root_ms, hop, limit, context.moment.now_ms)


def own_exposure(context: Context, holder: Holder, content: dict[str, Any]) -> Exposure | None:
    """What is read in a message of one's own, which another conversation may have written.

    In it stands what was read before, under the limit of those who wrote that.
    """
    root_ms = root_at_reading(content["origin"], content["external_since"], context.moment.now_ms)
    return _own_exposure(context, holder.identity_no, content["hop"], root_ms)


def _own_exposure(context: Context, own_no: int, hop: int, root_ms: int | None) -> Exposure | None:
    if root_ms is None and not hop:
        return None
    return Exposure(own_no, root_ms, hop, None, context.moment.now_ms)


def glimpsed(
    context: Context, own: Mailbox, reader: Reader, heads: Iterable[Head | OwnMessage | SentHead]
) -> tuple[Glimpsed, ...]:
    """What a listing shows is read, too: subjects are foreign text.

    A listing writes nothing, so that the daemon remembers it.
    """
    if not isinstance(own, Holder):
        return ()
    worst = {
        (head.sender_no, head.hop, head.external, head.root_ms, head.owner_key and head.no): head
        for head in heads
    }
    found = [_listed_exposure(context, own, reader, head) for head in worst.values()]
    read = tuple(one for one in found if one is not None)
    return (Glimpsed(own.binding.cli, own.binding.session_id, read),) if read else ()


def _listed_exposure(
    context: Context, holder: Holder, reader: Reader, head: Head | OwnMessage | SentHead
) -> Exposure | None:
    origin = FIRST_HAND if head.external and head.root_ms is None else None
    root_ms = root_at_reading(origin, head.root_ms, context.moment.now_ms)
    if isinstance(head, SentHead) or head.sender_no == holder.identity_no:
        return _own_exposure(context, holder.identity_no, head.hop, root_ms)
    return _exposure(context, reader, head, root_ms)


def ack(
    context: Context, tx: Tx, own: Mailbox, heads: Sequence[Head], words: AckWords
) -> tuple[Effect, ...]:
    """Bring deliveries to *acked*, but for those that are; what the commit lets out."""
    fresh = [head for head in heads if head.stage < Stage.ACKED]
    for head in fresh:
        messages.ack(
            tx,
            own.identity_no,
            head,
            now_ms=context.moment.now_ms,
            epoch=own.epoch,
            outcome=words.outcome,
            did=words.did,
            note=words.note,
        )
    if words.outcome == ACTED_OUTCOME and isinstance(own, Holder):
        _tell_acted(context, tx, own, fresh, words)
    facts = [(head.peer_no, _fact(context, own, head, Stage.ACKED, words)) for head in fresh]
    stated = receipting.state_all(tx, context.host, context.moment, facts, own.epoch)
    return (*stated, Handled(own.identity_no)) if fresh else stated


def _tell_acted(
    context: Context, tx: Tx, holder: Holder, heads: Sequence[Head], words: AckWords
) -> None:
    """One audit row for each request that was acted on: on whose, what, under which policy."""
    reader = Reader(
        context.authority, tx, context.host.key_id, holder.identity, context.moment.now_ms
    )
    for head in heads:
        lines = reader.lines(head)
        grant = reader.grant(head)
        audit.append(
            tx,
            at_ms=context.moment.now_ms,
            act="acted",
            identity=holder.identity,
            epoch=holder.epoch,
            message=head.id,
            sender=head.sender,
            did=words.did,
            trust=lines.trust,
            policy=lines.policy,
            record=grant.record,
        )


def _fact(
    context: Context, own: Mailbox, head: Head, stage: Stage, words: AckWords | None = None
) -> Fact:
    return Fact(
        message=head.id,
        recipient=own.identity,
        stage=stage,
        at_ms=context.moment.now_ms,
        outcome=words.outcome if words else None,
        did=words.did if words else None,
        note=words.note if words else None,
    )
