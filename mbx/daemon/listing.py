"""Messages and copies as listings show them, with the receiver's own words on trust and policy."""

from collections.abc import Mapping
from typing import Any, Final

from mbx.core import names
from mbx.core.delivery import RETURNED, STAGE_LABELS, Stage
from mbx.core.lease import LeaseState
from mbx.core.limits import TOLD_STATE_MS
from mbx.daemon.authority import Reader
from mbx.daemon.context import Context, Result
from mbx.daemon.drafting import unknown
from mbx.daemon.reach import Reach
from mbx.daemon.times import optional_rfc3339, rfc3339
from mbx.store import identities, leases, peers
from mbx.store.database import Tx
from mbx.store.history import OwnMessage
from mbx.store.leases import LeaseRow
from mbx.store.messages import Copy, Head
from mbx.store.peers import PeerRow, Told

LIVE_WAKE: Final = "live-wake"
"""It would be woken."""
LIVE_NEXT_PROMPT: Final = "live-next-prompt"
"""It would see mail at its next prompt."""


def reader(context: Context, tx: Tx, recipient: str) -> Reader:
    """What the identity `recipient` may be made to do, as of this transaction."""
    host, now_ms = context.host, context.moment.now_ms
    return Reader(context.authority, tx, host.key_id, recipient, now_ms)


def listed(context: Context, reader: Reader, head: Head | OwnMessage) -> Result:
    """One line of a listing; stage and progress are None for what one only sent."""
    stage = head.stage
    lines = reader.lines(head)
    return {
        "id": head.id,
        "from": address(context, reader, head.sender, head.peer_no),
        "subject": head.subject,
        "kind": head.kind,
        "at": rfc3339(head.accepted_ms),
        "thread": head.thread,
        "needs_reply": bool(head.needs_reply),
        "stage": None if stage is None else STAGE_LABELS[stage],
        "progress": None if stage is None else "closed" if stage == Stage.ACKED else "open",
        "trust": lines.trust,
        "policy": lines.policy,
        "bytes": head.body_bytes,
        "attachments": 0,
    }


def address(context: Context, reader: Reader, name: str, peer_no: int | None) -> str:
    """``name@host``, with the label by which this host knows the host."""
    return (context.host if peer_no is None else reader.peer(peer_no)).address(name)


def recipients(
    context: Context, tx: Tx, reader: Reader, head: Head, content: Mapping[str, Any]
) -> list[str]:
    """Everybody that a message is for. A paired host knows hosts by labels of its own.

    What it calls this host, and itself, is told by the labels of here, and who lives here by the
    name that it has; a third host, which its record does not name otherwise, by its.
    """
    if head.peer_no is None:
        return [f"{party['name']}@{party['host']}" for party in content["to"]]
    peer = reader.peer(head.peer_no)
    return [_told_by(context, tx, peer.label, content["from"], one) for one in content["to"]]


def _told_by(
    context: Context, tx: Tx, label: str, sender: Mapping[str, str], party: Mapping[str, str]
) -> str:
    here = identities.by_identity(tx, party["identity"])
    if here is not None:
        return context.host.address(here.name)
    if party["host"] == sender["host"]:
        return f"{party['name']}@{label}"
    said = f"{party['name']}@{party['host']}"
    # Nobody is made one of ours by another host's word.
    return f"{said} (so {label} says)" if party["host"] == context.host.label else said


def copy_of(context: Context, tx: Tx, reader: Reader, copy: Copy) -> Result:
    """What the sender may see of one recipient's copy: a paired host's words are its own."""
    told = None if copy.peer_no is None else peers.told(tx, copy.recipient_no)
    if copy.peer_no is None:
        seen = liveness(context, leases.find(tx, copy.recipient_no))
    else:
        seen = told_state(context, reader.peer(copy.peer_no), told) if told else "remote"
    return {
        "address": address(context, reader, copy.name, copy.peer_no),
        "stage": RETURNED if copy.error else STAGE_LABELS[copy.stage],
        "at": rfc3339(copy.stage_ms),
        "did": copy.did,
        "note": copy.note,
        "outcome": copy.outcome,
        "liveness": seen,
        "error": copy.error,
    }


def liveness(context: Context, row: LeaseRow) -> str:
    """live: a process that exists holds it; unknown: it cannot be seen; offline: nobody does."""
    if row.lease.state is not LeaseState.HELD:
        return "offline"
    seen = context.observe(row)
    if seen is None or seen.evidence == "unknown":
        return "unknown"
    return "live" if seen.evidence == "live" else "offline"


def told_state(context: Context, peer: PeerRow, told: Told) -> str:
    """What a paired host said of one of its identities, while it can be true: else unknown.

    It tells each change, but only over a link; a link that just ended may be back in a moment.
    """
    link = context.link(peer.no)
    if link is not None and link.stands:
        return told.state
    since_ms = context.moment.now_ms - (peer.seen_ms or 0)
    is_fresh = peer.ended_ms is None and 0 <= since_ms < TOLD_STATE_MS
    return told.state if is_fresh else "unknown"


def told_reach(state: str, told: Told | None) -> str:
    """How a paired host says that one of its identities is reached, while `state` can be true."""
    if state == "offline":
        return "offline"
    return told.reach if told and told.reach and state in ("live", "idle") else "unknown"


def reached(is_live: bool, reach: Reach) -> str:
    """As a send would call it: who would see mail that wakes, if it were sent now, when."""
    if not is_live:
        return "offline"
    return LIVE_WAKE if reach.is_open else LIVE_NEXT_PROMPT


def last_seen(context: Context, identity_no: int, saved_ms: int | None) -> str | None:
    """When a holder was last heard of, in this daemon's life or, as the store says, before.

    Never later than now, whatever was done to the clock since.
    """
    heard_ms = context.last_seen_ms(identity_no) or saved_ms
    return optional_rfc3339(heard_ms and min(heard_ms, context.moment.now_ms))


def correspondent(context: Context, tx: Tx, address_text: str | None) -> int | None:
    """The key of the identity that a filter names, None without one. Raises unknown-identity."""
    if address_text is None:
        return None
    address = names.parse_address(address_text)
    identity = None
    if address.kind in ("name", "owner"):
        name = address.name or names.OWNER
        if address.host in (None, context.host.label):
            identity = identities.by_name(tx, name)
        if identity is None and address.host != context.host.label:
            identity = next(iter(peers.named(tx, name, address.host)), None)
    if identity is None:
        raise unknown(tx, address.name)
    return identity.no
