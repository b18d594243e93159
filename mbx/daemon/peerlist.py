"""Paired hosts as listings, the status line and doctor show them: one line of facts each."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from mbx.core.canonical import JsonValue
from mbx.core.limits import PARTED_TOLD_MS, QUEUE_MAX_BYTES, QUEUE_MESSAGES_MAX
from mbx.core.streams import COPIED
from mbx.daemon import reaching
from mbx.daemon.context import Context, Result
from mbx.daemon.linkstate import LinkState
from mbx.daemon.times import optional_rfc3339, rfc3339
from mbx.store import outbox, owners, peers
from mbx.store.database import Tx
from mbx.store.outbox import StreamRow
from mbx.store.peers import PeerRow

REASONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "unreachable": "no address of it answers",
        "wrong-host": "another host answers at its addresses, or it was installed anew",
        "not-paired": "it says that it is not paired with this host",
        "unpaired": "it has ended the pairing",
        "closed": "it hangs up; it may not know this host (any more)",
        "busy": "it has no room for a link now, or was called too often",
        "no-mbx": "something else than mbx answers at its addresses",
        "version-mismatch": "it speaks another version of the protocol",
        "lost": "the connection ended without a word",
        "timeout": "it did not answer in time",
        "stopping": "its daemon was stopped",
        "other-link": "another link took the place of this one",
        "store": "a store could not be read",
        "refused": "what was sent was not taken",
        "malformed": "what was sent could not be read",
        "protocol": "a rule of the protocol was broken",
        "copies-of-peer": "two copies of it run, or are used in turns",
        "copies-of-us": "it has met two copies of this host",
        "another-store": "it has another store than before: restored, or replaced",
        "unknown-stream": "one of the two hosts was restored, or paired anew without the other",
        "fork": "one of the two hosts is a copy, or went on from an older copy of its store",
        "rollback-of-us": "this host's store is an older copy: it has forgotten what that one has",
        "rollback-of-peer": "its store is an older copy: it has forgotten what it took",
    }
)
"""Code of a link or of a stopped stream -> what it means, for people."""

REFUSALS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "disk-full": "it takes nothing for now: its disk is full",
        "queue-full": "it takes nothing for now: one of its queues is full",
    }
)
"""Code of a place that a host does not take for now -> what it means, for people."""

_ANEW: Final = frozenset({"wrong-host", "not-paired"})
"""Codes after which only a new pairing helps."""


def shown(context: Context, tx: Tx, peer: PeerRow) -> Result:
    """One pairing in a listing. `state`: up, down, stopped, or (over) removed, removed-us.

    `clock_ahead_ms`: when the last record of that host was signed there, less when it came: above 0
    its clock is ahead of ours, below 0 it is behind, or the record had waited. `signed_waiting`:
    policies, revocations and changes of the key that it has not acknowledged, since `signed_at`.
    `parted`: a link that is not stopped was, lately: then why, and when last.
    """
    stream, link = outbox.stream(tx, peer.no), context.link(peer.no)
    signed, signed_ms = outbox.signed_waiting(tx, peer.no)
    code = link.code if link is not None else None
    parted_ms = _parted_ms(context, peer, stream)
    return {
        "label": peer.label,
        "host": peer.key_id,
        "told_label": peer.told_label,
        "addresses": list(peer.addresses),
        "told_addresses": list(peer.told_addresses),
        "owner": _owner(tx, peer),
        "state": _state(peer, stream, link),
        "reason": _reason(peer, stream, code) or _refusal(link),
        "link": _link(context, link),
        "last_seen": optional_rfc3339(_seen_ms(context, peer, link)),
        "paired_at": rfc3339(peer.paired_ms),
        "queued": stream.queued_messages,
        "queued_bytes": stream.queued_bytes,
        "oldest_at": _oldest_at(tx, stream),
        "signed_waiting": signed,
        "signed_at": optional_rfc3339(signed_ms),
        "parted": None
        if parted_ms is None
        else {"at": rfc3339(parted_ms), "reason": REASONS.get(stream.parted or "", "")},
        "clock_ahead_ms": None if stream.lag_ms is None else -stream.lag_ms,
        "ended_at": optional_rfc3339(peer.ended_ms),
        "next": _next(tx, peer, stream, code, was_parted=parted_ms is not None),
    }


def in_full(context: Context, tx: Tx, peer: PeerRow) -> Result:
    """Everything about one pairing; heads are shortened."""
    stream = outbox.stream(tx, peer.no)
    return {
        **shown(context, tx, peer),
        "record": peer.record_id,
        "version": peer.version,
        "owner_key": _owner_key(tx, peer),
        "queue_max": QUEUE_MESSAGES_MAX,
        "queue_max_bytes": QUEUE_MAX_BYTES,
        "sending": {
            "stream": stream.out_stream,
            "seq": stream.out_seq,
            "offered": stream.offered_seq,
            "acked": stream.acked_seq,
            "head": _short(stream.out_head),
        },
        "receiving": {
            "stream": stream.in_stream,
            "seq": stream.in_seq,
            "head": _short(stream.in_head),
            "store": stream.in_store,
        },
    }


def _short(head: bytes) -> str:
    return head.hex()[:16]


def _owner(tx: Tx, peer: PeerRow) -> str:
    """Whether it has the same owner as this host, whose policies and revocations count there."""
    return "same" if reaching.is_same_owner(tx, peer) else "other"


def _owner_key(tx: Tx, peer: PeerRow) -> str | None:
    """The key of its owner: of the same owner the one of now, else the one told when pairing."""
    return owners.keys(tx)[0].key_id if reaching.is_same_owner(tx, peer) else peer.owner_key


def _state(peer: PeerRow, stream: StreamRow, link: LinkState | None) -> str:
    if peer.ended_ms is not None:
        return "removed" if peer.ended_by == "us" else "removed-us"
    if stream.stopped is not None:
        return "stopped"
    return "up" if link is not None and link.stands else "down"


def _reason(peer: PeerRow, stream: StreamRow, code: str | None) -> str | None:
    if peer.ended_ms is not None:
        return "removed here" if peer.ended_by == "us" else "that host has removed this one"
    known = stream.stopped or code
    return None if known is None else REASONS.get(known, "it said an unknown code")


def _refusal(link: LinkState | None) -> str | None:
    """Why a host with a link takes nothing for now."""
    if link is None or link.refused is None:
        return None
    return REFUSALS.get(link.refused, "it takes nothing for now")


def _parted_ms(context: Context, peer: PeerRow, stream: StreamRow) -> int | None:
    """When a link that may go on now was stopped, if that is lately.

    A store that was put right goes on by itself, and so does a copy of it that fits: only the owner
    can say which of the two it was.
    """
    at_ms = stream.parted_ms
    if at_ms is None or stream.stopped is not None or peer.ended_ms is not None:
        return None
    return at_ms if context.moment.now_ms - at_ms < PARTED_TOLD_MS else None


def _link(context: Context, link: LinkState | None) -> Mapping[str, JsonValue] | None:
    """Of a pairing that stands, while the network runs: times are ms on no clock but ours."""
    if link is None:
        return None
    return {
        "up": link.stands,
        "since": optional_rfc3339(_wall_ms(context, link.since_ms)),
        "next_try": optional_rfc3339(_wall_ms(context, link.due_ms)),
        "failures": link.failures,
        "code": link.code,
        "refused_since": optional_rfc3339(_wall_ms(context, link.refused_ms)),
        "round_trip_ms": link.round_trip.took_ms if link.round_trip is not None else None,
    }


def _wall_ms(context: Context, monotonic_ms: int | None) -> int | None:
    """A moment of the monotonic clock on the one that people read."""
    if monotonic_ms is None:
        return None
    now_ms = context.facts.started_ms + context.uptime_ms
    return context.moment.now_ms + monotonic_ms - now_ms


def _seen_ms(context: Context, peer: PeerRow, link: LinkState | None) -> int | None:
    return context.moment.now_ms if link is not None and link.stands else peer.seen_ms


def _oldest_at(tx: Tx, stream: StreamRow) -> str | None:
    if not stream.queued_messages:
        return None
    return optional_rfc3339(outbox.oldest_ms(tx, stream.peer_no))


def _next(
    tx: Tx, peer: PeerRow, stream: StreamRow, code: str | None, *, was_parted: bool
) -> str | None:
    """What helps, if anything does but waiting.

    Nothing has to be done about a pairing that ended and was followed by another one: a command
    that names its label would mean that one.
    """
    anew = f"mbx peers remove {peer.label}, then pair again: mbx pair here, mbx join there"
    if peer.ended_ms is not None:
        waits = peer.ended_by == "peer" and peers.is_latest(tx, peer)
        return f"mbx peers remove {peer.label}" if waits else None
    if stream.stopped == COPIED:
        return (
            f"stop the copy of {peer.label} for good; then mbx peers addr {peer.label}; or {anew}"
        )
    if stream.stopped == "copies-of-us":
        return "stop the copy of this host for good; then, there: mbx peers list names the command"
    if stream.stopped is not None:
        return f"look which of the two is the older copy, and put its newer store back; or {anew}"
    if code in _ANEW:
        return anew
    if was_parted:
        return f"if nobody put a store back, a copy of a host runs: stop it; then {anew}"
    if code == "version-mismatch":
        return "install the same version of mbx on both hosts"
    if code == "closed" and peer.seen_ms is None:  # else it may only have been started again
        return f"look there: mbx peers list; if this host is not in it: {anew}"
    if code == "unreachable" and peer.addresses:
        return f"mbx peers addr {peer.label} ADDRESS, if it has another address now"
    return None
