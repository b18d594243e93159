"""Mail that a paired host will not take, or that no link was ever handed: back to its sender, once.

The refusal is a signed record of the refusing host's; what the sender reads is this host's own
mail, with the reason in our words: a code of a closed list, never text of the other host's.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from mbx.core.delivery import Stage
from mbx.core.limits import UNOFFERED_MAX_MS
from mbx.core.names import OWNER
from mbx.core.peer import Nack, nack_payload
from mbx.daemon import forwarding, hostmail
from mbx.daemon.context import Answer, Context
from mbx.daemon.effects import Effect, HandBack, Unwelcome
from mbx.daemon.posting import Place
from mbx.store import identities, messages, outbox, peers
from mbx.store.database import Tx
from mbx.store.identities import IdentityRow
from mbx.store.outbox import QueuedMessage
from mbx.store.peers import PeerRow

EXPIRED: Final = "expired"
"""Why a message came back that no link was handed within its time."""
UNPAIRED: Final = "not-paired"
"""Why a message came back that waited for a host when its pairing ended."""

PIECE_ROWS: Final = 100
"""Messages that one transaction returns; what is left follows in the next."""

_REASONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        EXPIRED: "the host could not be reached for three days",
        UNPAIRED: "the host is not paired with this one any more",
        "unknown-recipient": "no mailbox of that host is meant by it",
        "retired": "the mailbox is retired, and nobody has its mail",
        "malformed": "that host could not read it",
        "too-large": "it is larger than that host takes",
        "unsupported": "that host does not know records of this kind or version",
        "conflict": "that host has something else of this name",
        "wrong-signature": "that host could not verify it",
        "wrong-issuer": "that host could not verify it",
        "wrong-audience": "it was meant for another host",
        "too-many": "that host knows as many identities of this host as one may have",
    }
)


def refuse(
    context: Context,
    tx: Tx,
    peer: PeerRow,
    message_id: str,
    recipient: str | None,
    code: str,
) -> None:
    """Tell a paired host, by a signed record, that a message of its will never be taken.

    `recipient`: the id of the one mailbox that is meant, None for all of this host.
    """
    payload = nack_payload(
        Nack(message_id, recipient, code, ""),
        {
            "iat": context.moment.now_ms,
            "nonce": context.moment.nonce(f"nack {message_id} {recipient}"),
            "aud": peer.key_id,
        },
    )
    signed = context.host.sign("nack", payload)
    outbox.queue_record(tx, peer.no, signed.record(context.host.key_id), context.moment.now_ms)


def refused(context: Context, tx: Tx, peer: PeerRow, nack: Nack) -> tuple[Effect, ...]:
    """A paired host will not take a message of ours; what the commit lets out.

    Only copies on that host come back, and none of which it had said already that it has it.
    """
    message_no = messages.by_id(tx, nack.message)
    if message_no is None:
        return (Unwelcome(peer.label, nack.code),)
    if message_no > outbox.last_offered(tx, peer.no):
        return ()
    return _back(context, tx, peer, message_no, nack.recipient, nack.code)


def give_up(context: Context, tx: Tx, peer: PeerRow, after_seq: int = 0) -> tuple[Effect, ...]:
    """Return a piece of what no link was handed for too long; the last effect is for the rest."""
    before_ms = context.moment.now_ms - UNOFFERED_MAX_MS
    piece = outbox.never_offered(tx, peer.no, before_ms, PIECE_ROWS, after_seq)
    return _all_back(context, tx, peer, piece, EXPIRED)


def unfit(context: Context, tx: Tx, peer: PeerRow, seq: int) -> tuple[Effect, ...]:
    """Give up the one record at a place that no frame can carry."""
    one = outbox.message_at(tx, peer.no, seq)
    if one is None:
        return ()
    outbox.withdraw(tx, peer.no, one, context.moment.now_ms)
    return _back(context, tx, peer, one.message_no, None, "too-large")


def empty(context: Context, tx: Tx, peer: PeerRow, after_seq: int = 0) -> tuple[Effect, ...]:
    """Return a piece of what waits for a host whose pairing has ended; as `give_up`.

    What was handed to a link and never acknowledged may have arrived; its sender is told so.
    """
    piece = outbox.waiting(tx, peer.no, PIECE_ROWS, after_seq)
    return _all_back(context, tx, peer, piece, UNPAIRED)


def continued(context: Context, tx: Tx, left: HandBack) -> Answer:
    """The next piece of what is to be returned."""
    peer = peers.by_no(tx, left.peer_no)
    back = give_up if peer.ended_ms is None else empty
    return Answer({}, back(context, tx, peer, left.after_seq))


def _all_back(
    context: Context, tx: Tx, peer: PeerRow, piece: Sequence[QueuedMessage], code: str
) -> tuple[Effect, ...]:
    effects: list[Effect] = []
    offered_seq = outbox.stream(tx, peer.no).offered_seq
    for one in piece:
        outbox.withdraw(tx, peer.no, one, context.moment.now_ms)
        was_offered = one.seq <= offered_seq
        effects += _back(context, tx, peer, one.message_no, None, code, was_offered=was_offered)
    if len(piece) == PIECE_ROWS:
        effects.append(HandBack(peer.no, piece[-1].seq))
    return tuple(effects)


def _back(
    context: Context,
    tx: Tx,
    peer: PeerRow,
    message_no: int,
    recipient: str | None,
    code: str,
    *,
    was_offered: bool = False,
) -> tuple[Effect, ...]:
    lost = [
        copy
        for copy in messages.copies(tx, message_no)
        if copy.peer_no == peer.no
        and copy.error is None
        and copy.stage < Stage.DELIVERED
        and recipient in (None, copy.identity)
    ]
    for copy in lost:
        messages.returned(tx, message_no, copy.recipient_no, code, context.moment.now_ms)
    if not lost:
        return ()
    origin = messages.origin(tx, message_no)
    names = [peer.address(copy.name) for copy in lost]
    may_have = was_offered or any(copy.stage == Stage.HANDED_OVER for copy in lost)
    return hostmail.write(
        context,
        tx,
        _reader(tx, origin.sender_no),
        f"Returned: your message to {', '.join(names[:3])}{' and others' if names[3:] else ''}",
        _body(origin.id, names, code, may_have_arrived=may_have),
        Place(origin.thread, origin.id, message_no),
    )


def _body(message_id: str, names: Sequence[str], code: str, *, may_have_arrived: bool) -> str:
    reason = _REASONS.get(code, "that host will not take it")
    lines = [
        f"Message {message_id} did not reach {', '.join(names)}: {reason} (code {code}).",
        f"Its text, and what became of each of its copies: mbx sent {message_id}",
    ]
    if may_have_arrived:
        lines.append("It was handed to that host before, which may have delivered it.")
    return "\n".join(lines)


def _reader(tx: Tx, sender_no: int) -> IdentityRow:
    """Who will see it: the sender, or who has its mail now, else the owner."""
    sender = identities.by_no(tx, sender_no)
    if sender.retired_ms is None:
        return sender
    owner = identities.by_name(tx, OWNER)
    assert owner is not None
    return forwarding.end_of(tx, sender) or owner
