"""The end of a pairing: by our owner's word, or by the word of the other host.

Either way its link ends, nothing of it is taken any more, its identities have no address, and what
waited for it returns to its senders in pieces. The row stays: an end is remembered, and no record
that was signed before it can ever bring the pairing back. Where the other host has ended it, our
owner is told, and the row is listed until the owner has removed it as well.
"""

from collections.abc import Mapping
from typing import Final

from mbx.core import names
from mbx.core.canonical import JsonValue
from mbx.core.errors import MbxError
from mbx.core.limits import NOTE_MAX_CHARS
from mbx.core.peer import Unpairing, read_unpair, unpair_payload
from mbx.core.record import Record, RecordError
from mbx.core.text import check_text
from mbx.daemon import bouncing, hostmail
from mbx.daemon.authority import DRAFT_AGAIN
from mbx.daemon.context import Answer, Context, Result
from mbx.daemon.drafting import Draft, envelope, owner_id
from mbx.daemon.effects import Effect, Paired
from mbx.daemon.peerlabels import is_listed, unknown
from mbx.store import audit, followed, identities, outbox, peers
from mbx.store.database import Tx
from mbx.store.peers import PeerRow

UNPAIR: Final = "unpair"
"""The record, and the act, by which our owner ends a pairing."""


def draft(context: Context, tx: Tx, label: str, reason: str) -> Draft:
    """The end of the pairing with the host called `label`. Raises MbxError not-paired."""
    check_text("reason", reason, NOTE_MAX_CHARS)
    owner, peer = owner_id(tx), removable(tx, label)
    wanted = Unpairing(peers.last_version(tx, peer.key_id) + 1, peer.key_id, label, reason)
    content = unpair_payload(wanted, envelope(context, owner))
    read_unpair(content)
    return Draft(UNPAIR, content, label, tuple(_consequences(tx, peer)))


def removable(tx: Tx, label: str) -> PeerRow:
    """The pairing that stands, or that the other host has ended. Raises MbxError not-paired."""
    peer = peers.called(tx, label)
    if peer is None or not is_listed(tx, peer):
        raise unknown(tx, label)
    return peer


def _consequences(tx: Tx, peer: PeerRow) -> list[str]:
    """What the owner should know before the end of a pairing."""
    waits = outbox.stream(tx, peer.no).queued_messages
    if peer.ended_ms is not None:
        return [f"{peer.label} has removed this host itself; it is not listed any more after this"]
    return [
        f"{peer.label} calls itself {peer.told_label}; its key id is {peer.key_id}",
        f"messages that wait for it, and return to their senders: {waits:,}",
        "its link ends at once, and nobody can write to its agents; mail that is here stays",
        *_voided(tx, peer),
        "to pair again takes mbx pair and mbx join, on both hosts",
    ]


def _voided(tx: Tx, peer: PeerRow) -> list[str]:
    """What ends with the pairing of what the owner signed."""
    if followed.find(tx, peer.key_id) is None:
        return []
    return [f"policies that you signed on {peer.label} hold here no more, also after a new pairing"]


# -- by our owner's word --------------------------------------------------------------------------


def end(
    context: Context, tx: Tx, record: Record, payload: Mapping[str, JsonValue]
) -> tuple[Result, tuple[Effect, ...]]:
    """End the pairing that the owner named, or raise MbxError and change nothing.

    `not-paired` when it has ended, `conflict` when something was signed about it since the draft.
    """
    try:
        wanted = read_unpair(payload)
    except RecordError as error:
        raise MbxError("owner-required", f"the record is not to be believed: {error}") from error
    peer = peers.latest(tx, wanted.peer)
    if peer is None or not is_listed(tx, peer):
        raise unknown(tx, wanted.label)
    if peer.label != wanted.label:
        raise MbxError("conflict", f"{wanted.label} is called {peer.label} now", DRAFT_AGAIN)
    refuse_stale(tx, peer, wanted.version)
    stood, waiting = peer.ended_ms is None, outbox.stream(tx, peer.no).queued_messages
    peers.remove(tx, peer.no, record.id, wanted.version, context.moment.now_ms)
    followed.end(tx, peer.key_id)
    audit.append(
        tx,
        at_ms=context.moment.now_ms,
        act=UNPAIR,
        identity=None,
        peer=peer.label,
        key_id=peer.key_id,
        version=wanted.version,
        record=record.id,
    )
    told: Result = {
        "act": UNPAIR,
        "peer": peer.label,
        "host": peer.key_id,
        "returning": waiting,
        "before": {"peer": peer.label, "paired": stood},
        "after": {"peer": peer.label, "paired": False},
    }
    return told, (Paired(), *bouncing.empty(context, tx, peer))


def refuse_stale(tx: Tx, peer: PeerRow, version: int) -> None:
    """Refuse (`conflict`) a record about a host that is not the next of its sequence."""
    following = peers.last_version(tx, peer.key_id) + 1
    if version != following:
        raise MbxError(
            "conflict",
            f"the records about {peer.label} go on with version {following}; this one is {version}",
            DRAFT_AGAIN,
        )


# -- by the peer's word ---------------------------------------------------------------------------


def dismissed(context: Context, tx: Tx, peer_no: int) -> Answer:
    """The host at the other end of a link said that it is not paired with us any more."""
    peer, now_ms = peers.by_no(tx, peer_no), context.moment.now_ms
    if peer.ended_ms is not None:
        return Answer({})
    peers.end(tx, peer.no, "peer", now_ms)
    followed.end(tx, peer.key_id)
    audit.append(
        tx, at_ms=now_ms, act="unpaired", identity=None, peer=peer.label, key_id=peer.key_id
    )
    owner = identities.by_name(tx, names.OWNER)
    assert owner is not None
    told = hostmail.write(context, tx, owner, f"{peer.label} has removed this host", _told(peer))
    return Answer({}, (Paired(), *told, *bouncing.empty(context, tx, peer)))


def turned_away(context: Context, tx: Tx, peer_no: int) -> Answer:
    """A host that we dialled, which has shown the pinned certificate, says that it is not paired.

    Where a link has stood since this pairing, its owner has ended it since. Before the first link
    its owner has perhaps not signed yet.
    """
    if peers.by_no(tx, peer_no).seen_ms is None:
        return Answer({})
    return dismissed(context, tx, peer_no)


def _told(peer: PeerRow) -> str:
    return "\n".join(
        (
            f"The host {peer.label} (key id {peer.key_id}) says that it is not paired with this",
            "one any more.",
            "Mail that waited for it returns to its senders, and nobody here can write to it.",
            f"Your own side still lists it: mbx peers remove {peer.label}",
            "To pair again: mbx pair on the one host, mbx join on the other.",
        )
    )
