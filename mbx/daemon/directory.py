"""What paired hosts tell each other: names and roles of their identities, who is there; addresses.

Streams lose nothing and keep their order, so that only what changed is told: a host remembers what
it told each peer of each identity. What a peer says is shown as its own words, and counts for its
own names only.
"""

import hashlib
from collections.abc import Sequence

from mbx.core import names
from mbx.core.endpoints import is_of_a_network
from mbx.core.errors import MbxError
from mbx.core.lease import LeaseState
from mbx.core.limits import DIRECTORY_ENTRIES_MAX, PEER_IDENTITIES_MAX
from mbx.core.peer import Entry, directory_payload
from mbx.daemon import codec, listing
from mbx.daemon.context import Context
from mbx.store import identities, leases, outbox, peers, sessions
from mbx.store.database import Tx
from mbx.store.identities import IdentityRow
from mbx.store.peers import PeerRow, Told


def tell(context: Context, tx: Tx) -> tuple[int, ...]:
    """Queue what each peer does not know yet of the identities and addresses here; who is told.

    Compares every identity with what was told: called when something has changed, and at a start.
    """
    present = peers.present(tx)
    if not present:
        return ()
    entries = [(row, _entry(context, tx, row)) for row in _everybody(tx)]
    digests = [
        hashlib.sha256(codec.canonical(entry._asdict())).digest()[:16] for _, entry in entries
    ]
    reachable = context.network().reachable
    told = []
    for peer in present:
        fresh_addresses = reachable if reachable != peer.own_addresses else None
        known = peers.was_told(tx, peer.no)
        fresh = [
            (row, entry, digest)
            for (row, entry), digest in zip(entries, digests, strict=True)
            if known.get(row.no) != digest and (row.no in known or not entry.retired)
        ]
        if fresh_addresses is not None:
            _queue(context, tx, peer, (), "addresses", fresh_addresses)
            peers.save_own_addresses(tx, peer.no, fresh_addresses)
        for first in range(0, len(fresh), DIRECTORY_ENTRIES_MAX):
            piece = fresh[first : first + DIRECTORY_ENTRIES_MAX]
            _queue(context, tx, peer, [entry for _, entry, _ in piece], str(first))
        for row, _, digest in fresh:
            peers.save_was_told(tx, peer.no, row.no, digest)
        if fresh or fresh_addresses is not None:
            told.append(peer.no)
    return tuple(told)


def learn(context: Context, tx: Tx, peer: PeerRow, entries: Sequence[Entry]) -> None:
    """Record what a peer says of its identities.

    Raises MbxError too-many where it has told of more than it may; then nothing of this may stay.
    """
    now_ms = context.moment.now_ms
    for entry in entries:
        no = peers.save_identity(
            tx,
            peer.no,
            entry.identity,
            name=entry.name,
            role=entry.role,
            description=entry.description,
            retired=entry.retired,
            now_ms=now_ms,
        )
        peers.save_told(tx, no, Told(entry.state, entry.cli, now_ms))
    check_room(tx, peer)


def check_room(tx: Tx, peer: PeerRow) -> None:
    """Refuse (too-many) what has given a peer more identities than it may have.

    Retired ones count: mail may be from them, so that they stay.
    """
    if peers.count_of(tx, peer.no) > PEER_IDENTITIES_MAX:
        raise MbxError(
            "too-many",
            f"{peer.label} has told of {PEER_IDENTITIES_MAX:,} identities already",
            limit=PEER_IDENTITIES_MAX,
        )


def learn_addresses(tx: Tx, peer: PeerRow, addresses: Sequence[str]) -> bool:
    """Record where a peer says that it can be dialled; whether that is new.

    Only what every machine means alike counts: nobody is to make us speak to our own machine.
    """
    usable = tuple(text for text in addresses if is_of_a_network(text))
    if usable == peer.told_addresses:
        return False
    peers.save_told_addresses(tx, peer.no, usable)
    return True


def _everybody(tx: Tx) -> list[IdentityRow]:
    """Every identity here and the owner's mailbox, retired ones too: they were told once."""
    owner = identities.by_name(tx, names.OWNER)
    return [*([owner] if owner else []), *identities.everyone(tx)]


def _entry(context: Context, tx: Tx, identity: IdentityRow) -> Entry:
    row = leases.find(tx, identity.no)
    held = row.lease.state is LeaseState.HELD and row.lease.session_no is not None
    session = sessions.by_no(tx, row.lease.session_no or 0) if held else None
    return Entry(
        identity=identity.identity,
        name=identity.name,
        role=identity.role,
        description=identity.description,
        state=listing.liveness(context, row),
        cli=session.cli if session else None,
        retired=identity.retired_ms is not None,
    )


def _queue(
    context: Context,
    tx: Tx,
    peer: PeerRow,
    entries: Sequence[Entry],
    piece: str,
    addresses: Sequence[str] | None = None,
) -> None:
    payload = directory_payload(
        entries,
        {
            "iat": context.moment.now_ms,
            "nonce": context.moment.nonce(f"directory {peer.no} {piece}"),
            "aud": peer.key_id,
        },
        addresses,
    )
    signed = context.host.sign("directory", payload)
    outbox.queue_record(tx, peer.no, signed.record(context.host.key_id), context.moment.now_ms)
