"""Where a record of the owner's counts besides here: the paired hosts that have the same owner.

Policies, revocations and changes of the key are drafted for all of them, and go to each in the
transaction that accepts the record here. A host of another owner is never among them: our owner has
no power there, and need not tell it whom it trusts.
"""

from collections.abc import Mapping
from typing import Final

from mbx.core.canonical import JsonValue
from mbx.core.errors import MbxError
from mbx.core.record import Record
from mbx.daemon.authority import DRAFT_AGAIN
from mbx.daemon.context import Context
from mbx.daemon.effects import Effect, Queued
from mbx.store import outbox, owners, peers
from mbx.store.database import Tx
from mbx.store.peers import PeerRow


def is_same_owner(tx: Tx, peer: PeerRow) -> bool:
    """Whether the owner of a paired host is, or was by a former key, that of this one."""
    return peer.owner_key in [key.key_id for key in owners.keys(tx)]


def hosts(tx: Tx) -> list[PeerRow]:
    """The hosts that have the same owner, of pairings that stand."""
    return [peer for peer in peers.present(tx) if is_same_owner(tx, peer)]


def audience(context: Context, tx: Tx) -> JsonValue:
    """Whom a record that counts everywhere is meant for: this host, and those of the same owner."""
    reached: list[JsonValue] = [peer.key_id for peer in hosts(tx)]
    if not reached:
        return context.host.key_id
    return sorted([context.host.key_id, *reached], key=str)


def lines(tx: Tx) -> tuple[str, ...]:
    """What the owner should know of where such a record goes."""
    found = hosts(tx)
    told = [
        f"it goes to {peer.label} too ({peer.key_id}), at once or when that host is met next"
        for peer in found[:_LINES_MAX]
    ]
    left = len(found) - _LINES_MAX
    return (*told, *([f"and to {left} more: mbx peers list"] if left > 0 else []))


_LINES_MAX: Final = 8


def refuse_others(context: Context, tx: Tx, payload: Mapping[str, JsonValue]) -> None:
    """Refuse (`conflict`) a record that was drafted for other hosts than there are now."""
    if payload.get("aud") != audience(context, tx):
        raise MbxError(
            "conflict", "the hosts that have your key are others since the draft", DRAFT_AGAIN
        )


def spread(
    context: Context, tx: Tx, record: Record, aud: JsonValue, but: tuple[str, ...] = ()
) -> tuple[Effect, ...]:
    """Queue a record for each host of the same owner that it is meant for.

    Gives what the commit lets out. `but`: hosts (key ids) that have it already.
    """
    wanted = aud if isinstance(aud, list) else []
    told = [peer for peer in hosts(tx) if peer.key_id in wanted and peer.key_id not in but]
    for peer in told:
        outbox.queue_record(tx, peer.no, record, context.moment.now_ms)
    return (Queued(tuple(peer.no for peer in told)),) if told else ()
