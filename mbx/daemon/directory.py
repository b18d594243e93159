"""What paired hosts tell each other: names and roles of their identities, who is there; addresses.

Streams lose nothing and keep their order, so that only what changed is told: a host remembers what
it told each peer of each identity. Whether a session rests, and how it is reached, is told when it
has lasted (`Reach.lasting`). What a peer says is shown as its own words, and counts for its own
names only.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from mbx.core import names
from mbx.core.canonical import JsonValue
from mbx.core.endpoints import is_of_a_network
from mbx.core.errors import MbxError
from mbx.core.lease import LeaseState
from mbx.core.limits import DIRECTORY_ENTRIES_MAX, PEER_IDENTITIES_MAX
from mbx.core.peer import Entry, Onward, directory_payload, forwards_payload
from mbx.daemon import codec, forwarding, listing
from mbx.daemon.context import Context
from mbx.store import forwards, identities, leases, outbox, peers, sessions
from mbx.store.database import Tx
from mbx.store.identities import IdentityRow
from mbx.store.peers import PeerRow, Told

T = TypeVar("T")


class _Told(NamedTuple):
    """An identity here and what paired hosts are told of it.

    `plain`: digest of the entry without `reach`, as who is told no more remembers it; `full`: of
    all.
    """

    no: int
    entry: Entry
    onward: Onward | None
    plain: bytes
    full: bytes

    def is_fresh(self, known: bytes | None, *, with_all: bool) -> bool:
        """Whether a peer has to hear of it that knows `known` of it."""
        if known is None and self.entry.retired:
            return False
        return known != self.full and (with_all or known != self.plain)


def tell(context: Context, tx: Tx) -> tuple[int, ...]:
    """Queue what each peer does not know yet of the identities and addresses here; who is told.

    Compares every identity with what was told: called when something has changed, at a start, and
    when a link stands. Forwards, and how sessions are reached, are told over a link, to whom they
    are no unknown kind or field.
    """
    present = peers.present(tx)
    if not present:
        return ()
    everybody = _told_of_all(context, tx)
    reachable = context.network().reachable
    told = []
    for peer in present:
        fresh_addresses = reachable if reachable != peer.own_addresses else None
        known, link = peers.was_told(tx, peer.no), context.link(peer.no)
        with_all = link is not None and link.stands and link.names_run
        fresh = [one for one in everybody if one.is_fresh(known.get(one.no), with_all=with_all)]
        if fresh_addresses is not None:
            _queue(context, tx, peer, _directory((), fresh_addresses), "addresses")
            peers.save_own_addresses(tx, peer.no, fresh_addresses)
        for first, entries in _pieces([one.entry for one in fresh]):
            _queue(context, tx, peer, _directory(entries, with_reach=with_all), str(first))
        onward = [one.onward for one in fresh if one.onward is not None and with_all]
        for first, piece in _pieces(onward):
            _queue(context, tx, peer, partial(forwards_payload, piece), f"forwards {first}")
        for one in fresh:
            peers.save_was_told(tx, peer.no, one.no, one.full if with_all else one.plain)
        if fresh or fresh_addresses is not None:
            told.append(peer.no)
    return tuple(told)


def _told_of_all(context: Context, tx: Tx) -> list[_Told]:
    """Every identity here, with where its mail goes if it is retired and was forwarded."""
    forwarded = set(forwards.here(tx))
    found = []
    for row in _everybody(tx):
        entry, onward = _entry(context, tx, row), None
        if row.no in forwarded and row.retired_ms is not None:
            end = forwarding.end_of(tx, row)
            onward = Onward(row.identity, end.identity if end is not None else None)
        plain, full = _digest(entry.told(with_reach=False)), _full(entry, onward)
        found.append(_Told(row.no, entry, onward, plain, full))
    return found


def _full(entry: Entry, onward: Onward | None) -> bytes:
    """The digest of all that is told; the plain one where there is no more than that."""
    told: list[JsonValue] = [entry.told(with_reach=entry.reach is not None)]
    if onward is not None:
        told.append(onward._asdict())
    return _digest(told[0] if len(told) == 1 else told)


def _digest(value: JsonValue) -> bytes:
    return hashlib.sha256(codec.canonical(value)).digest()[:16]


def _pieces(listed: Sequence[T]) -> Iterator[tuple[int, Sequence[T]]]:
    """What one record holds at a time, and where it begins."""
    for first in range(0, len(listed), DIRECTORY_ENTRIES_MAX):
        yield first, listed[first : first + DIRECTORY_ENTRIES_MAX]


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
        peers.save_told(tx, no, Told(entry.state, entry.cli, now_ms, entry.reach))
    check_room(tx, peer)


def learn_forwards(tx: Tx, peer: PeerRow, told: Sequence[Onward]) -> None:
    """Record who has the mail of a peer's retired identities now; unknown ones are passed over."""
    for one in told:
        source = peers.identity_of(tx, peer.no, one.identity)
        target = peers.identity_of(tx, peer.no, one.to) if one.to is not None else None
        if source is not None:
            forwards.set_forward(tx, source.no, target.no if target is not None else None)


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
    state, reach = listing.liveness(context, row), None
    lasting = context.reach(row, None).lasting if state == "live" else None
    if lasting is not None:
        state = "idle" if lasting.is_idle else state
        reach = listing.LIVE_WAKE if lasting.is_woken else listing.LIVE_NEXT_PROMPT
    return Entry(
        identity=identity.identity,
        name=identity.name,
        role=identity.role,
        description=identity.description,
        state=state,
        cli=session.cli if session else None,
        retired=identity.retired_ms is not None,
        reach=reach,
    )


_Payload = Callable[[Mapping[str, JsonValue]], dict[str, JsonValue]]
"""What to sign, from its envelope."""


def _directory(
    entries: Sequence[Entry], addresses: Sequence[str] | None = None, *, with_reach: bool = False
) -> _Payload:
    return lambda envelope: directory_payload(entries, envelope, addresses, with_reach=with_reach)


def _queue(context: Context, tx: Tx, peer: PeerRow, payload: _Payload, piece: str) -> None:
    content = payload(
        {
            "iat": context.moment.now_ms,
            "nonce": context.moment.nonce(f"directory {peer.no} {piece}"),
            "aud": peer.key_id,
        }
    )
    signed = context.host.sign(str(content["type"]), content)
    outbox.queue_record(tx, peer.no, signed.record(context.host.key_id), context.moment.now_ms)
