"""What paired hosts send: believed or not, applied, and answered, in one transaction.

A host speaks for its own names only: every record must be signed by the key at the other end of
the link and meant for this host. What will never be taken is answered by a signed refusal in the
stream back, and its place counts as received, so that nothing poisonous blocks a link.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

from mbx.core import copies, message, names, receipt
from mbx.core.canonical import JsonValue
from mbx.core.commands import Fetch
from mbx.core.delivery import Stage
from mbx.core.errors import MbxError
from mbx.core.exposure import FIRST_HAND
from mbx.core.frames import Place, Withdrawal
from mbx.core.limits import ANSWERS_WAITING_MAX
from mbx.core.message import OWNER_MAIL, Party, Relayed
from mbx.core.peer import read_addresses, read_directory, read_forwards, read_nack
from mbx.core.receipt import Fact
from mbx.core.record import Record, RecordError, Sealed, verify
from mbx.core.streams import COPIED, Kind, extended
from mbx.daemon import (
    addressing,
    bouncing,
    codec,
    directory,
    following,
    hostmail,
    posting,
    receipting,
)
from mbx.daemon.context import Answer, Context
from mbx.daemon.effects import Arrived, Effect, Met, Paired, Queued
from mbx.daemon.posting import Recipient
from mbx.store import audit, identities, messages, outbox, owners, peers
from mbx.store.database import Tx
from mbx.store.identities import IdentityRow
from mbx.store.messages import NewMessage
from mbx.store.peers import PeerRow


class _Done(NamedTuple):
    """What one record adds to its transaction's, once all of it is done."""

    recipients: tuple[int, ...] = ()
    delivered: tuple[Fact, ...] = ()
    effects: tuple[Effect, ...] = ()
    answers: int = 0


@dataclass(slots=True)
class _Taken:
    """One transaction's records of a peer, and what they add up to."""

    context: Context
    tx: Tx
    peer: PeerRow
    recipients: list[int] = field(default_factory=list)
    delivered: list[Fact] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    senders: dict[str, int] = field(default_factory=dict)
    """Rows of the peer's identities that were looked up, by id: they stay."""
    mailboxes: dict[str, "_Mailbox"] = field(default_factory=dict)
    """Of recipients here that were looked up: no word of a peer's changes them, our owner's may."""
    threads: dict[str, bool] = field(default_factory=dict)
    """Threads that are somebody's here -> whether the peer is in them."""
    answers: int = 0
    """Records that were queued for the stream back."""
    signed_ms: int | None = None
    """When the last record that is believed was signed, by the clock of its host."""

    def add(self, done: _Done, signed_ms: int | None) -> None:
        """What one record added; nothing of one that was refused ever comes here."""
        self.recipients += done.recipients
        self.delivered += done.delivered
        self.effects += done.effects
        self.answers += done.answers
        self.signed_ms = self.signed_ms if signed_ms is None else signed_ms


_Mailbox = tuple[str, Recipient | None] | None
"""Id and mailbox of a recipient, None for one of another host; no mailbox for a closed one."""


class Unacceptable(Exception):
    """A record that will never be taken; `code` is one of `mbx.core.peer.NACK_CODES`."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


def accept(
    context: Context, tx: Tx, peer_no: int, stream: str, first_seq: int, places: Sequence[Place]
) -> Answer:
    """Take the places of a `stream` from `first_seq` on; those that are here are passed over.

    Raises MbxError peer-refused when the pairing has ended or this is another stream, conflict for
    a gap. The result's `upto` is the last place that is committed with this transaction.
    """
    peer, state = peers.by_no(tx, peer_no), outbox.stream(tx, peer_no)
    if peer.ended_ms is not None:
        raise MbxError("peer-refused", f"nothing is taken from {peer.label}", "mbx peers list")
    if state.in_stream is None:
        outbox.name_incoming(tx, peer_no, stream)
    elif state.in_stream != stream:
        raise MbxError("peer-refused", f"{peer.label} speaks of another stream than before")
    if first_seq > state.in_seq + 1:
        raise MbxError("conflict", f"place {state.in_seq + 1} of the stream is missing")
    fresh = places[state.in_seq + 1 - first_seq :]
    seq, head = state.in_seq + len(fresh), state.in_head
    if not fresh:
        return Answer({"upto": seq})
    for place in fresh:
        head = extended(head, place.digest)
    records = [place for place in fresh if isinstance(place, Record)]
    taken = _taken(context, tx, peer, records)
    signed_ms = taken.signed_ms
    lag_ms = None if signed_ms is None else context.moment.now_ms - signed_ms
    outbox.received(tx, peer_no, seq, head, lag_ms)
    if taken.recipients:  # first: whoever waits for mail is told before any receipt leaves
        taken.effects.append(Arrived(tuple(dict.fromkeys(taken.recipients))))
    facts = [(peer_no, fact) for fact in taken.delivered]
    taken.effects += receipting.state_all(
        tx, context.host, context.moment, facts, receipting.NOBODY
    )
    if taken.answers:
        taken.effects.append(Queued((peer_no,)))
    if facts or taken.answers:
        posting.offer(context, tx, peer_no)
    return Answer({"upto": seq}, tuple(taken.effects))


def _taken(context: Context, tx: Tx, peer: PeerRow, records: Sequence[Record]) -> _Taken:
    """Apply records: together, and each by itself where one of them is refused.

    To be able to take back each by itself costs about as much as writing its rows.
    """
    taken = _Taken(context, tx, peer)
    with suppress(RecordError, MbxError, Unacceptable, following.Foreign), tx.whole():
        for record in records:
            taken.add(*_applied(taken, record))
        return taken
    taken = _Taken(context, tx, peer)
    for record in records:
        _take(taken, record)
    return taken


def _take(taken: _Taken, record: Record) -> None:
    """Apply one record, all of it, or queue the refusal of it."""
    try:
        with taken.tx.whole():
            done, signed_ms = _applied(taken, record)
    except RecordError as error:
        _refuse(taken, record, _CODE_OF_STEP[error.step])
    except MbxError as error:
        _refuse(taken, record, _CODE_OF_ERROR.get(error.code, "malformed"))
    except (Unacceptable, following.Foreign) as refusal:
        _refuse(taken, record, refusal.code)
    else:
        taken.add(done, signed_ms)


def _applied(taken: _Taken, record: Record) -> tuple[_Done, int | None]:
    """What a record does here, and when it was signed, as far as that tells of a clock.

    Raises RecordError, MbxError, Unacceptable or Foreign for what will never be taken.
    """
    if record.kind in following.KINDS:
        effects = following.take(taken.context, taken.tx, taken.peer, record)
        taken.mailboxes.clear()
        return _Done(effects=effects), None
    act = _ACTS.get(record.kind)
    if act is None:
        raise Unacceptable("unsupported")
    signers = _signers(taken, record)
    payload = verify(
        record,
        kind=record.kind,
        signers=signers,
        audience=taken.context.host.key_id,
        quick=codec.decode_signed,
    )
    signed_ms = payload["iat"]
    assert isinstance(signed_ms, int)
    return act(taken, record, payload), signed_ms


def _refuse(taken: _Taken, record: Record, code: str) -> None:
    """A refusal is never refused in turn, and nobody waits for one of a receipt.

    Raises MbxError queue-full where a peer does not take what it is answered: then its records
    wait.
    """
    if record.kind in _UNANSWERED:
        return
    if outbox.stream(taken.tx, taken.peer.no).waiting_answers >= ANSWERS_WAITING_MAX:
        raise MbxError("queue-full", f"{taken.peer.label} does not take what it is answered")
    bouncing.refuse(taken.context, taken.tx, taken.peer, record.id, None, code)
    taken.answers += 1


def _signers(taken: _Taken, record: Record) -> dict[str, bytes]:
    """Whose signature it takes: the peer's; for the owner's own mail that of our own owner.

    Another owner has no power here, and no mail of its own either. Raises Unacceptable.
    """
    if record.kind != OWNER_MAIL:
        return {taken.peer.key_id: taken.peer.public_key}
    known = owners.keys(taken.tx)
    if not known or known[0].key_id not in record.signatures:
        raise Unacceptable("wrong-issuer")
    return {known[0].key_id: known[0].public}


# -- messages --------------------------------------------------------------------------------------


def _message(taken: _Taken, record: Record, payload: Mapping[str, JsonValue]) -> _Done:
    context, tx, peer = taken.context, taken.tx, taken.peer
    if messages.is_known(tx, record.digest):
        return _Done()  # it came by another way, or again after a restore: once is for ever
    is_letter = record.kind == OWNER_MAIL
    relayed = (message.read_relayed_letter if is_letter else message.read_relayed)(payload)
    sender_no = _sender(taken, relayed.sender)
    wanted = [_mailbox(taken, party) for party in relayed.to]
    here = [found for found in wanted if found is not None]
    if not here:
        raise Unacceptable("unknown-recipient")
    open_ones = [(identity_id, to) for identity_id, to in here if to is not None]
    closed = [identity_id for identity_id, to in here if to is None]
    for identity_id in closed:
        bouncing.refuse(context, tx, peer, record.id, identity_id, "retired")
    if not open_ones:
        return _Done(answers=len(closed))
    quiet = relayed.quiet
    delivered = [to._replace(quiet=True) if one in quiet else to for one, to in open_ones]
    _deliver(taken, record, relayed, sender_no, addressing.each_once(delivered))
    now_ms = context.moment.now_ms
    facts = [Fact(record.id, one, Stage.DELIVERED, now_ms) for one, _ in open_ones]
    return _Done(tuple(to.identity.no for to in delivered), tuple(facts), answers=len(closed))


def _sender(taken: _Taken, party: Party) -> int:
    """The row of the sender, which its own host may not have told of yet."""
    known_no = taken.senders.get(party.identity)
    if known_no is not None:
        return known_no
    tx, peer = taken.tx, taken.peer
    known = peers.identity_of(tx, peer.no, party.identity)
    if known is not None:
        taken.senders[party.identity] = known.no
        return known.no
    if party.name != names.OWNER:
        names.check_name(party.name)
    sender_no = peers.save_identity(
        tx,
        peer.no,
        party.identity,
        name=party.name,
        role="",
        description="",
        retired=False,
        now_ms=taken.context.moment.now_ms,
    )
    directory.check_room(tx, peer)
    return sender_no


def _mailbox(taken: _Taken, party: Party) -> _Mailbox:
    """Where mail for a recipient goes; each is looked up once."""
    if party.identity not in taken.mailboxes:
        taken.mailboxes[party.identity] = _looked_up(taken.tx, party)
    return taken.mailboxes[party.identity]


def _looked_up(tx: Tx, party: Party) -> _Mailbox:
    identity = identities.by_identity(tx, party.identity)
    if identity is None:
        return None
    try:
        return party.identity, addressing.mailbox_of(tx, identity)
    except MbxError:
        return party.identity, None


def _place(taken: _Taken, record: Record, relayed: Relayed) -> tuple[str, int | None]:
    """Thread of a message, and what it answers: what its host says, as far as it may.

    Who was in a conversation goes on in it, whatever that is called elsewhere; a thread that nobody
    here is in is nobody's here. Into any other one no host brings mail: it begins one of its own.
    """
    tx, peer = taken.tx, taken.peer
    if record.kind == OWNER_MAIL:  # it is our own owner's word, wherever it stands
        reply_no = messages.by_id(tx, relayed.reply_to) if relayed.reply_to else None
        return relayed.thread or record.id, reply_no
    if relayed.reply_to is not None:
        answered = messages.shared(tx, relayed.reply_to, peer.key_id)
        if answered is not None:
            no, thread = answered
            return thread, no
    if relayed.thread is None:
        return record.id, None
    first = messages.shared(tx, relayed.thread, peer.key_id)
    if first is not None:
        return first[1], None
    if relayed.thread not in taken.threads:
        if not messages.is_thread(tx, relayed.thread):
            return relayed.thread, None
        taken.threads[relayed.thread] = messages.has_part(tx, relayed.thread, peer.key_id)
    return relayed.thread if taken.threads[relayed.thread] else record.id, None


def _deliver(
    taken: _Taken,
    record: Record,
    relayed: Relayed,
    sender_no: int,
    recipients: Sequence[Recipient],
) -> None:
    (signer,) = record.signatures
    since, now_ms = relayed.external_since, taken.context.moment.now_ms
    thread, reply_no = _place(taken, record, relayed)
    new = NewMessage(
        record=Sealed.of(record),
        sender_no=sender_no,
        accepted_ms=now_ms,
        kind=relayed.draft.kind,
        needs_reply=relayed.draft.needs_reply,
        subject=relayed.draft.subject,
        body=relayed.draft.body,
        body_bytes=relayed.body_bytes,
        thread=thread,
        reply_no=reply_no,
        hop=relayed.hop,
        external=since is not None or relayed.draft.origin == FIRST_HAND,
        # One that lies in the future says nothing: it counts as of its reading.
        root_ms=None if relayed.draft.origin or (since or 0) > now_ms else since,
        owner_key=signer if record.kind == OWNER_MAIL else None,
    )
    woken = posting.waking(relayed.draft, recipients, sender_no)
    posting.deliver(taken.context, taken.tx, new, recipients, woken)


# -- receipts --------------------------------------------------------------------------------------


def _receipt(taken: _Taken, record: Record, payload: Mapping[str, JsonValue]) -> _Done:
    """Only the host that has a mailbox may state what became of mail in it; never backwards.

    And only of what it was sent: another host may have told it of a message that waits here. What
    it was sent under a former pairing is in the same mailbox.
    """
    tx, key_id = taken.tx, taken.peer.key_id
    facts = receipt.read(payload)
    theirs = {fact.recipient for fact in facts}
    recipients = {one: peers.identities_of_host(tx, key_id, one) for one in theirs}
    pairings = {to.peer_no or 0 for several in recipients.values() for to in several}
    last_offered = {no: outbox.last_offered(tx, no) for no in pairings}
    for fact in facts:
        for recipient in recipients[fact.recipient]:
            _report(tx, recipient, fact, last_offered)
    return _Done()


def _report(tx: Tx, recipient: IdentityRow, fact: Fact, last_offered: Mapping[int, int]) -> None:
    """`last_offered`: of each pairing, the key of the last message that a link was handed."""
    copy = messages.copy_to(tx, fact.message, recipient.no)
    if copy is None:
        return
    message_no, stage = copy
    was_sent = stage > Stage.QUEUED or message_no <= last_offered[recipient.peer_no or 0]
    if fact.stage > stage and was_sent:
        messages.reported(tx, message_no, recipient.no, fact)


# -- directories and refusals ----------------------------------------------------------------------


def _directory(taken: _Taken, record: Record, payload: Mapping[str, JsonValue]) -> _Done:
    context, tx, peer = taken.context, taken.tx, taken.peer
    directory.learn(context, tx, peer, read_directory(payload))
    addresses = read_addresses(payload)
    moved = addresses is not None and directory.learn_addresses(tx, peer, addresses)
    return _Done(effects=(Paired(),) if moved else ())


def _forwards(taken: _Taken, record: Record, payload: Mapping[str, JsonValue]) -> _Done:
    directory.learn_forwards(taken.tx, taken.peer, read_forwards(payload))
    return _Done()


def _nack(taken: _Taken, record: Record, payload: Mapping[str, JsonValue]) -> _Done:
    nack = read_nack(payload)
    context, tx, peer = taken.context, taken.tx, taken.peer
    effects = following.refused(context, tx, peer, nack)
    return _Done(effects=bouncing.refused(context, tx, peer, nack) if effects is None else effects)


_Act = Callable[[_Taken, Record, Mapping[str, JsonValue]], _Done]
_ACTS: Final[Mapping[str, _Act]] = {
    "message": _message,
    OWNER_MAIL: _message,
    "receipt": _receipt,
    "directory": _directory,
    "forwards": _forwards,
    "nack": _nack,
}
"""Kind of record -> what it does here; it is verified, and meant for us."""

_UNANSWERED: Final = frozenset({"receipt", "nack"})
"""Kinds of records that are never answered."""

_CODE_OF_ERROR: Final[Mapping[str, str]] = MappingProxyType(
    {"body-too-large": "too-large", "too-many": "too-many"}
)
"""Code of an error here -> the code that the peer is told, if that is not `malformed`."""

_CODE_OF_STEP: Final[Mapping[int, str]] = MappingProxyType(
    {
        1: "too-large",
        2: "wrong-issuer",
        3: "wrong-signature",
        4: "malformed",
        5: "malformed",
        6: "malformed",
        7: "wrong-audience",
    }
)
"""Step of `mbx.core.record.verify` that refused -> the code that the peer is told."""


# -- what is recorded of a link -------------------------------------------------------------------


def stood(context: Context, tx: Tx, peer_no: int, store: str, stream: str) -> Answer:
    """A link stands: the peer's stream and store are known by name from now on."""
    outbox.name_incoming(tx, peer_no, stream)
    outbox.name_store(tx, peer_no, store)
    outbox.go_on(tx, peer_no)
    peers.seen(tx, peer_no, context.moment.now_ms)
    return Answer({}, (Met(peer_no),))


def left(context: Context, tx: Tx, peer_no: int) -> Answer:
    """A link that stood has ended: until now the peer was seen."""
    peers.seen(tx, peer_no, context.moment.now_ms)
    return Answer({})


def offered(tx: Tx, peer_no: int, own_key: str, wanted: Fetch) -> list[Place]:
    """The places that a link asks for, which count as offered from now on."""
    found = _wanted(tx, peer_no, own_key, wanted, wanted.places_max)
    outbox.offered(tx, peer_no, wanted.after_seq + len(found))
    return found


def offered_before(
    tx: Tx, peer_no: int, own_key: str, wanted: Fetch, offered_seq: int
) -> list[Place]:
    """As `offered`, of those up to `offered_seq` alone, which count as offered already."""
    most = min(wanted.places_max, offered_seq - wanted.after_seq)
    return _wanted(tx, peer_no, own_key, wanted, most)


def _wanted(tx: Tx, peer_no: int, own_key: str, wanted: Fetch, most: int) -> list[Place]:
    found: list[Place] = []
    left_bytes = wanted.bytes_max
    for one in outbox.places(tx, peer_no, own_key, wanted.after_seq, most):
        left_bytes -= one.size_bytes
        if found and left_bytes < 0:
            break
        found.append(one.record or Withdrawal(one.digest))
    return found


def acknowledged(context: Context, tx: Tx, peer_no: int, upto: int) -> Answer:
    """The peer has committed our stream up to a place: its messages there are handed over."""
    now_ms = context.moment.now_ms
    messages.handed_over(tx, peer_no, *outbox.acknowledged(tx, peer_no, upto, now_ms), now_ms)
    return Answer({})


def unfit(context: Context, tx: Tx, peer_no: int, seq: int) -> Answer:
    """No frame can carry the record of a place: it is given up, a message returns to its sender."""
    peer = peers.by_no(tx, peer_no)
    return Answer({}, (*bouncing.unfit(context, tx, peer, seq), Queued((peer_no,))))


def stopped(
    context: Context,
    tx: Tx,
    peer_no: int,
    kind: Kind,
    *,
    is_ours: bool = True,
    is_told: bool = False,
) -> Answer:
    """The two streams do not belong to one history: nothing goes on, and the owner is told.

    `is_ours`: we have found it, and not the peer alone. `is_told`: it was told lately, so that
    nobody fills a mailbox by changing between verdicts.
    """
    peer, owner = peers.by_no(tx, peer_no), identities.by_name(tx, names.OWNER)
    was, now_ms = outbox.stream(tx, peer_no), context.moment.now_ms
    last = None
    if was.parted is not None:
        last = copies.Parting(was.parted, was.parted_ms or 0, stood_since=was.stopped is None)
    kind = copies.finding(kind, last, now_ms, is_ours=is_ours)
    outbox.stop(tx, peer_no, kind, now_ms)  # each connect compares anew
    if was.stopped == kind or (is_told and kind != COPIED) or owner is None:
        return Answer({})
    audit.append(
        tx,
        at_ms=now_ms,
        act="link-stopped",
        identity=None,
        peer=peer.label,
        key_id=peer.key_id,
        why=kind,
    )
    subject = f"The link to {peer.label} has stopped: {kind}"
    return Answer({}, hostmail.write(context, tx, owner, subject, _STOPPED[kind]))


_STOPPED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "copies-of-peer": "Two copies of that host run, or are used in turns. Stop the copy; then"
        " sign that host's address again, or pair anew: mbx peers list names the commands.",
        "copies-of-us": "That host has met two copies of this one. Stop the copy; then the owner"
        " there signs this host's address again: mbx peers list names the command there.",
        "another-store": "That host has another store than before.",
        "unknown-stream": "That host speaks of streams that this one does not know.",
        "fork": "Two hosts have gone on from one history: one of them is a copy.",
        "rollback-of-us": "This host has forgotten what that one has: its store is an older copy.",
        "rollback-of-peer": "That host has forgotten what it took: its store is an older copy.",
    }
)
"""Verdict of `mbx.core.streams` -> what its owner is told."""
