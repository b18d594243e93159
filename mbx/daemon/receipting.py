"""Signed receipts: kept in the transaction that makes their facts true, for the sender's host."""

from collections.abc import Sequence
from typing import Final

from mbx.core import receipt
from mbx.core.receipt import FACTS_MAX, Fact
from mbx.daemon.effects import Effect, Queued
from mbx.daemon.host import Host
from mbx.daemon.world import Moment
from mbx.store import outbox, peers, receipts
from mbx.store.database import Tx

NOBODY: Final = 0
"""The epoch of a fact that no holder made: mail arrived, or the owner's word closed it."""


def state_all(
    tx: Tx,
    host: Host,
    moment: Moment,
    facts: Sequence[tuple[int | None, Fact]],
    epoch: int,
) -> tuple[Effect, ...]:
    """Keep the receipts of these facts, each for its sender's host (None: this one).

    Those for paired hosts get a place in the streams to them; what the commit lets out says so.
    Whoever sent mail under a former pairing is told under the one that stands with the same host.
    """
    senders = {peer_no: _host_of(tx, peer_no) for peer_no, _ in facts}
    told = [(senders[peer_no], fact) for peer_no, fact in facts]
    hosts = tuple(dict.fromkeys(peer_no for peer_no, _ in told))
    for peer_no in hosts:
        _state(tx, host, moment, peer_no, [fact for no, fact in told if no == peer_no], epoch)
    away = tuple(peer_no for peer_no in hosts if peer_no is not None)
    return (Queued(away),) if away else ()


def _host_of(tx: Tx, peer_no: int | None) -> int | None:
    """The pairing that stands with the host of this one; this one itself where none does."""
    if peer_no is None or (peer := peers.by_no(tx, peer_no)).ended_ms is None:
        return peer_no
    standing = peers.by_key(tx, peer.key_id)
    return peer_no if standing is None else standing.no


def _state(
    tx: Tx, host: Host, moment: Moment, peer_no: int | None, facts: Sequence[Fact], epoch: int
) -> None:
    peer = None if peer_no is None else peers.by_no(tx, peer_no)
    for first in range(0, len(facts), FACTS_MAX):
        # One unit may close the mail of several mailboxes: each record has a nonce of its own.
        one = facts[first]
        payload = receipt.payload(
            facts[first : first + FACTS_MAX],
            epoch=epoch,
            sequence=tx.commit_seq,
            now_ms=moment.now_ms,
            nonce=moment.nonce(f"receipt {one.stage} {one.recipient} {peer_no} {first}"),
            audience=peer.key_id if peer else host.key_id,
        )
        signed = host.sign("receipt", payload)
        no = receipts.add(tx, signed, moment.now_ms)
        if peer is not None and peer.ended_ms is None:
            outbox.queue_receipt(tx, peer.no, no, signed, moment.now_ms)
