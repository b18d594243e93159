"""Pairings by the owner's word: the records `peer`, drafted for a run that was proved, and applied.

What a pairing has proved (a host's key, its certificate, the transcript) is in the memory of the
daemon that ran it, for as long as its people may agree: a record about any other run is refused.
Versions of the records about one host only grow, also over the end of a pairing and a new one.
"""

from typing import Final

from mbx.core import adoption, keys, pairing
from mbx.core.canonical import JsonValue
from mbx.core.errors import MbxError
from mbx.core.limits import PEER_ADDRESSES_MAX
from mbx.core.pairing import Match
from mbx.core.peer import Peer, Pin, peer_payload
from mbx.core.record import Record, RecordError
from mbx.daemon import directory, peerlabels
from mbx.daemon.context import Context, Result
from mbx.daemon.drafting import Draft, envelope, owner_id
from mbx.daemon.effects import Agreed, Effect, Paired, Queued
from mbx.daemon.proven import Proven
from mbx.daemon.readdressing import check_label, free_label, labels_but
from mbx.daemon.times import rfc3339
from mbx.store import audit, hosts, outbox, owners, peers
from mbx.store.database import Tx
from mbx.store.peers import NewPeer, PeerRow

PAIR_AGAIN: Final = "mbx pair on one host, then mbx join on the other"


# -- drafts ---------------------------------------------------------------------------------------


def draft(context: Context, tx: Tx, pairing_id: str, label: str | None) -> Draft:
    """The record of this host's owner that pairs it with the other one, called `label`.

    None: as it calls itself, or the like where that is taken. Raises MbxError closed (no such
    pairing waits), conflict (that host is paired already), name-taken, name-invalid.
    """
    proven = find(context, pairing_id)
    match = proven.match
    owner = owner_id(tx)
    _refuse_present(tx, match.pin.host)
    host = match.pin.host
    if label is not None:
        check_label(context, tx, label, host)
    wanted = Peer(
        peers.last_version(tx, host) + 1,
        match.pin,
        label or free_label(match.pin.label, labels_but(context, tx, host)),
        _addresses(proven),
    )
    lines = (*_about(match), *_same_label(tx, match))
    return Draft("peer", peer_payload(wanted, envelope(context, owner)), wanted.label, lines)


def enrolment_draft(context: Context, tx: Tx, pairing_id: str) -> Draft:
    """The record of the owner here that makes it the owner of the host that joins."""
    proven = _adopting(context, pairing_id)
    owner = owners.keys(tx)[0]
    content = adoption.enrolment_payload(owner.public, _envelope_there(context, proven, "owner"))
    told = proven.match.pin.label
    lines = (
        f"this makes you the owner of {told} too: what you sign counts there",
        *_skew(proven.match),
    )
    return Draft(adoption.ENROLMENT, content, "", lines)


def adopted_draft(context: Context, tx: Tx, pairing_id: str) -> Draft:
    """The record of the owner here that pairs the host that joins with this one."""
    proven = _adopting(context, pairing_id)
    told, own = proven.match.pin.label, context.host.label
    wanted = Peer(
        adoption.FIRST_VERSION,
        proven.own_pin(context.host),
        free_label(own, [told]),
        proven.addresses,
    )
    sent = {**_envelope_there(context, proven, "peer"), "owner": owner_id(tx)}
    lines = (
        f"this is for {told}: there, this host will be called {wanted.label}",
        *_skew(proven.match),
    )
    return Draft(adoption.PEERING, peer_payload(wanted, sent), wanted.label, lines)


def find(context: Context, pairing_id: str) -> Proven:
    """The pairing that waits for its people. Raises MbxError closed."""
    proven = context.proven(pairing_id)
    if proven is None:
        raise MbxError(
            "closed",
            "that pairing is over: it was declined or too long ago, or the daemon was started again"
            " since",
            PAIR_AGAIN,
        )
    return proven


def _adopting(context: Context, pairing_id: str) -> Proven:
    """One in which the other host takes our owner. Raises MbxError closed, usage."""
    proven = find(context, pairing_id)
    if not proven.match.adopts or proven.match.role != pairing.INVITER:
        raise MbxError("usage", "nobody adopts the owner of this host in that pairing")
    return proven


def _envelope_there(context: Context, proven: Proven, what: str) -> dict[str, JsonValue]:
    """iat, nonce and audience of a record for the other host, by the clock of that host."""
    now_ms = max(0, context.moment.now_ms + proven.match.skew_ms)
    nonce = context.moment.nonce(f"adoption {what}")
    return {"iat": now_ms, "nonce": nonce, "aud": proven.match.pin.host}


def _addresses(proven: Proven) -> tuple[str, ...]:
    """Where the other host is dialled: first where it answered."""
    known = dict.fromkeys(filter(None, (proven.dialled, *proven.match.peer.addresses)))
    return tuple(known)[:PEER_ADDRESSES_MAX]


def _refuse_present(tx: Tx, host: str) -> None:
    known = peers.by_key(tx, host)
    if known is not None:
        raise MbxError(
            "conflict",
            f"that host is paired already: it is {known.label}, since {rfc3339(known.paired_ms)}",
            f"mbx peers addr {known.label} changes its addresses; if only one of the two knows of"
            f" the pairing: mbx peers remove {known.label}, then pair again",
            peer=known.label,
        )


def _about(match: Match) -> tuple[str, ...]:
    told = match.pin.label
    if match.adopts and match.role == pairing.INVITER:
        whose = f"{told} has no owner: it takes you for its own, by two more records"
    elif match.pin.owner is not None:
        whose = f"the owner of {told} is yours"
    else:
        other = match.peer.owner
        key = keys.key_id("owner", other) if other is not None else "nobody"
        whose = f"the owner of {told} is {key}, who has no power here"
    return (f"{told} is what the other host calls itself", whose, *_skew(match))


def _skew(match: Match) -> tuple[str, ...]:
    words = pairing.skew_words(match.skew_ms)
    return (words,) if words else ()


def _same_label(tx: Tx, match: Match) -> tuple[str, ...]:
    """What the owner must know where another key goes by that label: it may be one machine."""
    known = peers.by_label(tx, match.pin.label)
    if known is not None:
        words = (
            f"you have a paired host called {known.label} with another key ({known.key_id}); if"
            " this is that machine, installed again, it cannot use the old pairing any more:"
            f" mbx peers remove {known.label}, then pair again"
        )
        return (words,)
    former = [row for row in peers.everything(tx) if row.label == match.pin.label]
    if former and former[-1].key_id != match.pin.host:
        return (f"a former paired host called {former[-1].label} had another key",)
    return ()


# -- applying -------------------------------------------------------------------------------------


def pair(
    context: Context, tx: Tx, record: Record, wanted: Peer
) -> tuple[Result, tuple[Effect, ...]]:
    """Record a pairing: the peer, its streams, what it is told first; or raise MbxError.

    `closed` when no such run waits here (`not-paired` for a former peer), `conflict` for what it
    has not proved, for a host that is paired, and for another version than the next; `name-taken`.
    Then nothing has changed.
    """
    pin, pairing_id = wanted.pin, keys.crockford(wanted.pin.transcript)
    if context.proven(pairing_id) is None and peers.latest(tx, pin.host) is not None:
        raise peerlabels.unknown(tx, wanted.label)
    proven = find(context, pairing_id)
    if proven.match.pin != pin:
        raise MbxError("conflict", "the record is about another host than was proved", PAIR_AGAIN)
    _refuse_present(tx, pin.host)
    version = peers.last_version(tx, pin.host) + 1
    if wanted.version != version:
        raise MbxError(
            "conflict",
            f"records about that host go on with version {version}; this is {wanted.version}",
            PAIR_AGAIN,
        )
    check_label(context, tx, wanted.label, pin.host)
    if proven.match.adopts and proven.match.role == pairing.INVITER and not proven.enclosed:
        raise MbxError("conflict", "the records for the other host were not signed", PAIR_AGAIN)
    no = peers.add(tx, _row(record, wanted, proven), context.moment.now_ms)
    if proven.dialled is not None and proven.dialled not in wanted.addresses:
        known = (proven.dialled, *wanted.addresses)[:PEER_ADDRESSES_MAX]
        peers.learn_address(tx, no, known)
    outbox.begin(tx, no, keys.crockford(context.moment.draw("stream")))
    if proven.listening:
        hosts.set_listen(tx, proven.listening)
    audit.append(
        tx,
        at_ms=context.moment.now_ms,
        act="pair",
        identity=None,
        record=record.id,
        peer=wanted.label,
        key_id=pin.host,
        version=version,
    )
    told = directory.tell(context, tx)
    effects: tuple[Effect, ...] = (Paired(), Agreed(proven.id), *([Queued(told)] if told else []))
    return {"before": None, "after": _told(peers.by_no(tx, no))}, effects


def _row(record: Record, wanted: Peer, proven: Proven) -> NewPeer:
    pin = wanted.pin
    return NewPeer(
        key_id=pin.host,
        public_key=pin.public,
        certificate=proven.match.peer.certificate,
        label=wanted.label,
        told_label=pin.label,
        addresses=wanted.addresses,
        owner_key=pin.owner,
        record_id=record.id,
        version=wanted.version,
    )


def _told(row: PeerRow) -> Result:
    return {
        "peer": row.label,
        "key_id": row.key_id,
        "calls_itself": row.told_label,
        "addresses": list(row.addresses),
        "owner": row.owner_key,
        "version": row.version,
    }


# -- adoption -------------------------------------------------------------------------------------


def check_enclosed(context: Context, tx: Tx, pairing_id: str, records: tuple[Record, ...]) -> None:
    """Refuse records for the other host that it would refuse. Raises MbxError."""
    proven = _adopting(context, pairing_id)
    owner_id(tx)
    owner, pin = owners.keys(tx)[0].public, proven.own_pin(context.host)
    _read_adoption(records, owner, proven.match.pin.host, pin)


def adopted(context: Context, pairing_id: str) -> adoption.Adoption:
    """What the inviter's owner signed for this host. Raises MbxError closed, conflict."""
    proven = find(context, pairing_id)
    if not proven.match.adopts or proven.match.role != pairing.JOINER:
        raise MbxError("usage", "this host adopts nobody in that pairing")
    if proven.received is None or proven.match.peer.owner is None:
        raise MbxError("conflict", "the other host has sent no records yet", "wait for it")
    host, pin = context.host.key_id, proven.match.pin
    return _read_adoption(proven.received, proven.match.peer.owner, host, pin)


def _read_adoption(
    records: tuple[Record, ...], owner: bytes, host: str, pin: Pin
) -> adoption.Adoption:
    try:
        return adoption.read(records, owner, host, pin)
    except RecordError as error:
        raise MbxError(
            "owner-required", f"the records are not to be believed: {error}", PAIR_AGAIN
        ) from error
