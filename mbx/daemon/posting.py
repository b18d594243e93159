"""Putting one signed message into mailboxes: what send and reply share."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from mbx.core import frames, message
from mbx.core.errors import MbxError
from mbx.core.exposure import external_since, relay
from mbx.core.lease import LeaseState, is_renewal_due
from mbx.core.limits import (
    EXPOSURE_MS,
    FRAME_MAX_BYTES,
    ID_CHARS,
    QUEUE_MAX_BYTES,
    QUEUE_MESSAGES_MAX,
)
from mbx.core.message import Draft, Envelope, Party
from mbx.core.names import OWNER
from mbx.core.waking import wakes
from mbx.daemon import granting, kinship, listing
from mbx.daemon.context import Context, Result
from mbx.daemon.effects import Arrived, Effect, Queued
from mbx.daemon.gate import Holder
from mbx.daemon.times import rfc3339
from mbx.store import leases, messages, outbox
from mbx.store.database import Tx
from mbx.store.identities import IdentityRow
from mbx.store.leases import LeaseRow
from mbx.store.messages import NewMessage
from mbx.store.peers import PeerRow


class Recipient(NamedTuple):
    """A mailbox that a message reaches, the lease on it, and whether the copy is quiet.

    One of a paired host has no lease here, and its `peer`.

    `forwarded`: the names of retired identities whose mail goes there, by which it was reached;
    `is_named`: it was reached in its own right too.
    """

    identity: IdentityRow
    row: LeaseRow | None
    quiet: bool = False
    forwarded: tuple[str, ...] = ()
    is_named: bool = True
    peer: PeerRow | None = None

    def joined(self, other: "Recipient") -> "Recipient":
        """One copy for the same mailbox reached in two ways."""
        return self._replace(
            quiet=self.quiet and other.quiet,
            forwarded=tuple(dict.fromkeys((*self.forwarded, *other.forwarded))),
            is_named=self.is_named or other.is_named,
        )


class Place(NamedTuple):
    """Where in a conversation a message stands; all None: it starts a thread."""

    thread: str | None = None
    reply_to: str | None = None
    reply_no: int | None = None
    hop: int = 0
    root_ms: int | None = None
    """When what is answered first came from outside (ms UTC), None when it did not."""


class Posted(NamedTuple):
    """The record id of a message, what its commit lets out, and what its sender should know.

    `waking`: the mailboxes here (keys) whose copy wakes.
    """

    id: str
    effects: tuple[Effect, ...]
    warnings: tuple[str, ...] = ()
    waking: frozenset[int] = frozenset()


def post(
    context: Context,
    tx: Tx,
    holder: Holder,
    draft: Draft,
    body_bytes: int,
    recipients: Sequence[Recipient],
    place: Place,
) -> Posted:
    """Sign, store, deliver here, and queue for paired hosts.

    Raises MbxError policy-denied for a relay beyond its limit, queue-full.
    """
    host, now_ms, own = context.host, context.moment.now_ms, holder.binding
    past = _past(context, tx, holder, draft, recipients, place)
    if past.over_limit is not None:  # it is delivered, and sets nobody to work
        draft = draft._replace(quiet=True)
    envelope = Envelope(
        sender=host.party(own.identity, own.name),
        lease_epoch=holder.epoch,
        lease_id=_lease_record(context, tx, holder),
        to=parties(context, recipients),
        thread=place.thread,
        reply_to=place.reply_to,
        hop=past.hop,
        external_since=past.external_since,
        sent_at_ms=now_ms,
        project=own.project,
        audience=audience(context, recipients),
        nonce=context.moment.nonce("message"),
        quiet=quiet(draft, recipients),
    )
    record = host.sign("message", message.payload(draft, envelope))
    new = NewMessage(
        record=record,
        sender_no=holder.identity_no,
        accepted_ms=now_ms,
        kind=draft.kind,
        needs_reply=draft.needs_reply,
        subject=draft.subject,
        body=draft.body,
        body_bytes=body_bytes,
        thread=place.thread or record.id,
        reply_no=place.reply_no,
        hop=past.hop,
        external=past.external_since is not None,
        root_ms=None if draft.origin else past.external_since,
    )
    woken = waking(draft, recipients, holder.identity_no)
    effects = deliver(context, tx, new, recipients, woken)
    return Posted(record.id, effects, past.warnings, woken)


def parties(context: Context, recipients: Sequence[Recipient]) -> list[Party]:
    """The mailboxes as the record names them."""
    return [
        Party(
            to.identity.identity, to.identity.name, to.peer.label if to.peer else context.host.label
        )
        for to in recipients
    ]


def quiet(draft: Draft, recipients: Sequence[Recipient]) -> list[str]:
    """The ids of recipients on other hosts whose copy is to wake nobody."""
    return [
        to.identity.identity
        for to in recipients
        if to.peer is not None and (to.quiet or draft.quiet)
    ]


def audience(context: Context, recipients: Sequence[Recipient]) -> list[str]:
    """The sorted key ids of all recipients' hosts."""
    return sorted({to.peer.key_id if to.peer else context.host.key_id for to in recipients})


def deliver(
    context: Context,
    tx: Tx,
    new: NewMessage,
    recipients: Sequence[Recipient],
    woken: Collection[int],
) -> tuple[Effect, ...]:
    """Store a signed message, with a copy for each recipient; `woken` as of `waking`.

    One record and one id, however many hosts: it gets a place in the stream to each of them. Raises
    MbxError queue-full.
    """
    here = [(to.identity.no, to.identity.no in woken) for to in recipients if to.peer is None]
    no = messages.add(tx, new, here)
    arrived = Arrived(tuple(recipient_no for recipient_no, _ in here))
    if len(here) == len(recipients):
        return (arrived,)
    messages.queue(
        tx, no, [to.identity.no for to in recipients if to.peer is not None], new.accepted_ms
    )
    hosts = {to.peer.no: to.peer for to in recipients if to.peer is not None}
    for peer in hosts.values():
        _queue(tx, new, no, peer)
        offer(context, tx, peer.no)
    return arrived, Queued(tuple(hosts))


def offer(context: Context, tx: Tx, peer_no: int) -> None:
    """What a link that stands is about to take counts as offered with this transaction.

    So the link needs none of its own before it sends. Should it end first, nothing is lost: as of
    all that was offered, the next hello tells what became of it.
    """
    link = context.link(peer_no)
    if link is not None and link.stands and link.refused is None:
        outbox.offered_at_once(tx, peer_no)


def _fits(new: NewMessage) -> bool:
    """Whether a frame can carry it; only what may be too large is tried, since that costs."""
    # A character has four bytes at most, and being quoted once more doubles them at most.
    if 8 * len(new.record.payload) < FRAME_MAX_BYTES - frames.PUT_OVERHEAD_BYTES - 1_024:
        return True
    return frames.fits(new.record.record("0" * ID_CHARS))


def _queue(tx: Tx, new: NewMessage, no: int, peer: PeerRow) -> None:
    size_bytes, state = len(new.record.payload), outbox.stream(tx, peer.no)
    if not _fits(new):
        raise MbxError(
            "body-too-large",
            f"with its references and recipients this fits into no frame to {peer.label}"
            " (nothing was sent)",
            "shorten the body or the references, or send to fewer at a time",
        )
    if (
        state.queued_messages >= QUEUE_MESSAGES_MAX
        or state.queued_bytes + size_bytes > QUEUE_MAX_BYTES
    ):
        raise MbxError(
            "queue-full",
            f"{state.queued_messages:,} messages ({state.queued_bytes:,} bytes) wait for"
            f" {peer.label} already (nothing was sent)",
            f"mbx peers show {peer.label}",
            peer=peer.label,
        )
    outbox.queue_message(
        tx, peer.no, no, new.record.kind, new.record.digest, size_bytes, new.accepted_ms
    )


class _Past(NamedTuple):
    """What a message inherits of what its writer read."""

    hop: int
    external_since: int | None
    over_limit: int | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the sender should know of it."""
        if self.over_limit is None:
            return ()
        told = (
            f"what was read here within the hour had been passed on {self.over_limit} times"
            " already: this wakes nobody, and no policy that has a limit covers it"
        )
        return (told,)


def _past(
    context: Context,
    tx: Tx,
    holder: Holder,
    draft: Draft,
    recipients: Sequence[Recipient],
    place: Place,
) -> _Past:
    """What was passed on too often is refused where it is answered to others.

    In a letter of its own nobody can tell whether it passes anything on: that one is delivered, and
    its depth says what it is worth. Raises MbxError policy-denied.
    """
    now_ms, office = context.moment.now_ms, context.authority
    read = kinship.read_by(tx, office, holder.binding)
    overheard = kinship.read_by_kin(tx, office, holder.binding, now_ms)
    everything = (*read, *overheard)
    root_ms = now_ms if draft.origin else external_since(everything, place.root_ms, now_ms)
    if not everything:
        return _Past(place.hop, root_ms)
    others = {to.identity.no for to in recipients if to.identity.name != OWNER}
    passed = relay(
        read,
        others,
        holder.identity_no,
        place.hop,
        now_ms,
        lambda source_no: messages.reached(tx, source_no, now_ms - EXPOSURE_MS),
        overheard,
    )
    if passed.over_limit is not None and place.reply_no is not None:
        raise MbxError(
            "policy-denied",
            f"what was read here has been passed on {passed.over_limit} times already, and no"
            " policy of the owner's lets it go further (nothing was sent)",
            "tell the owner: mbx send --to owner; or wait an hour",
            hop=passed.hop,
            limit=passed.over_limit,
        )
    return _Past(passed.hop, root_ms, passed.over_limit)


def waking(draft: Draft, recipients: Sequence[Recipient], sender_no: int) -> frozenset[int]:
    """The mailboxes here (keys) whose copy wakes; mail to oneself wakes nobody."""
    return frozenset(
        to.identity.no
        for to in recipients
        if to.peer is None and to.identity.no != sender_no and _wakes(draft, to)
    )


def _wakes(draft: Draft, to: Recipient) -> bool:
    """A mention of a name whose mail is forwarded is one of whoever gets it."""
    return any(
        wakes(
            draft.kind,
            draft.body,
            name,
            needs_reply=draft.needs_reply,
            quiet=to.quiet or draft.quiet,
        )
        for name in (to.identity.name, *to.forwarded)
    )


def posted(
    context: Context,
    message_id: str,
    thread: str | None,
    recipients: Sequence[Recipient],
    body_bytes: int,
    woken: Collection[int],
    warnings: Sequence[str] = (),
) -> Result:
    """The answer to a send: for each recipient, who will see it when; `woken` as of `waking`."""
    return {
        "id": message_id,
        "thread": thread or message_id,
        "recipients": [_reach(context, to, thread, to.identity.no in woken) for to in recipients],
        "duplicate": False,
        "warnings": [*warnings, *_warnings(body_bytes), *_shared(recipients)],
    }


def _lease_record(context: Context, tx: Tx, holder: Holder) -> str:
    """The id of the lease record that is current now, signed again when half its time is over."""
    own = holder.binding
    if is_renewal_due(own.expires_ms, context.moment.now_ms):
        row = leases.find(tx, own.identity_no)
        return granting.renew(tx, context.host, context.moment, row) or own.record_id
    return own.record_id


def _reach(context: Context, to: Recipient, thread: str | None, wakes_it: bool) -> Result:
    recipient, row = to.identity, to.row
    if to.peer is not None:
        return _reach_elsewhere(to, to.peer)
    assert row is not None
    seen = context.observe(row) if row.lease.state is LeaseState.HELD else None
    live = seen is not None and seen.evidence == "live"
    since = rfc3339(row.lease.since_ms)
    state, detail = "offline", f"nobody holds it since {since}"
    if live:
        reach = context.reach(row, thread)
        state = listing.reached(live, reach) if wakes_it else "live-next-prompt"
        why = reach.detail if wakes_it else "this mail wakes nobody"
        detail = f"held by a live session; {why}"
    if row.lease.state is LeaseState.HELD and not live:
        detail = "its holder cannot be seen"
    if recipient.name == OWNER:
        detail = "the human reads it at a terminal: mbx inbox --owner"
    address = recipient.name
    if not to.is_named:
        address, state = to.forwarded[0], "forwarded"
        detail = f"forwarded to {recipient.name}: {detail}"
    return {
        "address": context.host.address(address),
        "identity": recipient.identity,
        "state": state,
        "detail": detail,
    }


def _reach_elsewhere(to: Recipient, peer: PeerRow) -> Result:
    address, state = to.identity.name, "remote"
    detail = f"queued for {peer.label}; receipts tell what becomes of it: mbx sent"
    if not to.is_named:
        address, state = to.forwarded[0], "forwarded"
        detail = f"forwarded to {peer.address(to.identity.name)}: {detail}"
    return {
        "address": peer.address(address),
        "identity": to.identity.identity,
        "state": state,
        "detail": detail,
    }


def _shared(recipients: Sequence[Recipient]) -> list[str]:
    """Of each name whose copy is another's as well: one copy answers to all of them."""
    told = []
    for to in recipients:
        others = to.forwarded if to.is_named else to.forwarded[1:]
        told += [f"{name} is forwarded to {to.identity.name}: one copy for both" for name in others]
    return told


def _warnings(body_bytes: int) -> list[str]:
    if body_bytes <= message.SOFT_BODY_BYTES:
        return []
    return [f"the body has {body_bytes:,} bytes; every byte is the reader's context"]
