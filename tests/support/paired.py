"""Hosts that are paired without a network: what one has queued is carried to the other by hand."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from mbx.core.frames import Withdrawal
from mbx.core.keys import SigningKey, crockford, key_id
from mbx.core.peer import Peer, Pin, peer_payload
from mbx.core.record import Record, sign
from mbx.daemon import applying, directory, relaying
from mbx.daemon.applying import Applied
from mbx.store import outbox, peers
from mbx.store.database import Tx
from mbx.store.outbox import Place, StreamRow
from mbx.store.peers import NewPeer, PeerRow
from tests.support.office import HandWorld, OfficeDesk
from tests.support.owner import Owner

ROWS = 256


@dataclass
class PairedDesk(OfficeDesk):
    """One host that can be paired with others; `label` names it, and its key is made of that."""

    peer_nos: dict[str, int] = field(default_factory=dict)
    """Label of another host -> the key of its row here."""

    def peer(self, label: str) -> PeerRow:
        """The row of another host."""
        return self.do(lambda tx: peers.by_no(tx, self.peer_nos[label]))

    def stream(self, label: str) -> StreamRow:
        """The streams to and from another host."""
        return self.do(lambda tx: outbox.stream(tx, self.peer_nos[label]))

    def places(self, label: str, after_seq: int = 0) -> list[Place]:
        """What is queued for another host."""
        no = self.peer_nos[label]
        return self.do(lambda tx: outbox.places(tx, no, self.host.key_id, after_seq, ROWS))

    def tell(self) -> None:
        """Queue what the others do not know of the identities here."""
        context = self.dispatcher.context()
        self.do(lambda tx: directory.tell(context, tx))

    def take(self, label: str, first_seq: int, arrivals: list[Any]) -> int:
        """What came from another host; up to where it is committed."""
        context, no = self.dispatcher.context(), self.peer_nos[label]
        stream = stream_name(label, self.label)
        answer = self.do(lambda tx: relaying.accept(context, tx, no, stream, first_seq, arrivals))
        self.effects.extend(answer.effects)
        return int(answer.result["upto"])

    def acknowledged(self, label: str, upto: int) -> None:
        """Another host has everything up to a place."""
        context, no = self.dispatcher.context(), self.peer_nos[label]
        self.do(lambda tx: relaying.acknowledged(context, tx, no, upto))


def desk(label: str) -> PairedDesk:
    """A host of that label with a key of its own, and the owner's mailbox."""
    # No two hosts draw the same ids.
    world = HandWorld(drawn=int.from_bytes(label.encode()) << 32)
    key = SigningKey.from_seed(label.encode().ljust(32, b"!"))
    made = PairedDesk(world=world, label=label, key=key)
    made.add_owner()
    return made


def pair(one: PairedDesk, other: PairedDesk, owner: str | None = None) -> None:
    """As after a pairing: each knows the other, and both streams are empty.

    `owner`: the key id of the owner of both, None where they have two.
    """
    for here, there in ((one, other), (other, one)):
        here.peer_nos[there.label] = plant(here, there.key, there.label, owner)
        here.tell()


def plant(here: OfficeDesk, key: SigningKey, label: str, owner: str | None = None) -> int:
    """A pairing with the host of this key, without a record of the owner's; the key of its row."""
    peer = NewPeer(
        key_id("host", key.public),
        key.public,
        bytes(32),
        label,
        label,
        ("192.0.2.1:47100",),
        owner,
        crockford(b"record".ljust(32)),
        1,
    )
    return here.do(partial(_recorded, peer=peer, here=here))


def _recorded(tx: Tx, peer: NewPeer, here: OfficeDesk) -> int:
    no = peers.add(tx, peer, here.world.now_ms())
    outbox.begin(tx, no, stream_name(here.label, peer.label))
    return no


def stream_name(sender: str, receiver: str) -> str:
    """The id of the stream between the hosts with these labels."""
    return crockford(f"{sender} to {receiver}".encode().ljust(32))


def peer_record(peer: PeerRow, owner: SigningKey, host: str, now_ms: int) -> Record:
    """The `peer` record of a pairing, for the host with this key id, signed by its owner's key."""
    pin = Pin(peer.key_id, peer.public_key, bytes(32), peer.told_label, None, b"\5" * 32)
    signer = key_id("owner", owner.public)
    payload = peer_payload(
        Peer(1, pin, peer.label, peer.addresses),
        {"iat": now_ms, "nonce": "0" * 32, "aud": host, "owner": signer},
    )
    return sign("peer", payload, owner, signer)


def signed_by(owner: Owner, peer_no: int) -> Record:
    """The `peer` record of a pairing, kept as a pairing keeps it."""
    here = owner.desk
    peer = here.do(lambda tx: peers.by_no(tx, peer_no))
    record = peer_record(peer, owner.key, here.host.key_id, here.world.now_ms())
    context = here.dispatcher.context()

    def unit(tx: Tx) -> None:
        applying.kept(context, tx, record, Applied({}))
        peers.change(
            tx,
            peer.no,
            label=peer.label,
            addresses=peer.addresses,
            record_id=record.id,
            version=1,
        )

    here.do(unit)
    return record


def carry(one: PairedDesk, other: PairedDesk) -> int:
    """All that `one` has queued goes to `other`, which acknowledges it; how many places."""
    here = one.stream(other.label)
    no = one.peer_nos[other.label]
    places = one.places(other.label, here.acked_seq)
    if not places:
        return 0
    one.do(lambda tx: outbox.offered(tx, no, places[-1].seq))
    arrivals = [place.record or Withdrawal(place.digest) for place in places]
    upto = other.take(one.label, places[0].seq, arrivals)
    one.acknowledged(other.label, upto)
    return len(places)


def settle(one: PairedDesk, other: PairedDesk) -> None:
    """Both send until neither has anything left."""
    while carry(one, other) + carry(other, one):
        pass


def sent(desk: PairedDesk, caller: Any, message_id: str) -> dict[str, Any]:
    """The copies of a sent message by address, as its sender sees them."""
    message = desk.call(caller, "mail.sent", id=message_id)["messages"][0]
    return {copy["address"]: copy for copy in message["recipients"]}
