"""Streams between paired hosts: where each one stands, and whether a link may go on from there.

Each direction of a pairing is a stream: an id (new for each pairing and after a restore), places
numbered from 1 without gaps, and a running head over the digests of their records. Its sender keeps
an `Outgoing`, its receiver an `Incoming`. At each connect both say both (the frame ``hello``) and
each compares for itself, stream by stream::

    the receiver has            the sender says    the receiver says
    nothing, nothing acked      go on              go on
    nothing, something acked    rollback of peer   rollback of us
    another stream              unknown stream     unknown stream
    less than it acknowledged   rollback of peer   rollback of us
    more than was ever written  rollback of us     rollback of peer
    as much, another head       fork               fork
    less, head of another past  fork               (go on: only the sender knows its past)
    less, or as much            go on              go on

What says that the peer's store runs twice comes before all of that (`mbx.core.copies`).

The last fork is seen by one end alone. Therefore a link goes on only after each end has told the
other that it does (`mbx.core.link`), and whoever stops says why.
"""

import hashlib
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

HEAD_BYTES: Final = 32
"""SHA-256."""

EMPTY_HEAD: Final = bytes(HEAD_BYTES)
"""Head of a stream without places."""

Kind = Literal[
    "go-on",
    "copies-of-peer",
    "copies-of-us",
    "another-store",
    "unknown-stream",
    "fork",
    "rollback-of-us",
    "rollback-of-peer",
]

COPIED: Final = "copies-of-peer"
"""The peer's store is known to run twice: nothing goes on until our owner has acted."""

STOPS: Final[Mapping[Kind, Kind]] = {
    COPIED: "copies-of-us",
    "another-store": "another-store",
    "unknown-stream": "unknown-stream",
    "fork": "fork",
    "rollback-of-us": "rollback-of-peer",
    "rollback-of-peer": "rollback-of-us",
}
"""Verdicts that stop a link, the gravest first -> the same as the other end must call it."""


class Outgoing(NamedTuple):
    """What a sender knows of its stream: its last place, the head there, what was acknowledged."""

    id: str
    seq: int
    head: bytes
    acked: int


class Incoming(NamedTuple):
    """What a receiver has committed of a stream; `id` is None before it knows of one."""

    id: str | None
    seq: int
    head: bytes


class StreamState(NamedTuple):
    """Both streams of a pairing as one host has them: what it sends, and what it receives."""

    out: Outgoing
    into: Incoming


class Verdict(NamedTuple):
    """What a comparison says.

    `next_seq` is the first place to be offered when the link goes on, else 0; `words` is a sentence
    for the owner when it stops.
    """

    kind: Kind
    next_seq: int
    words: str

    @property
    def goes_on(self) -> bool:
        """Whether records may travel."""
        return self.kind == "go-on"


def extended(head: bytes, digest: bytes) -> bytes:
    """The head after one more place, whose record has this digest (32 bytes)."""
    return hashlib.sha256(head + digest).digest()


def flaw(state: StreamState) -> str | None:
    """What no honest host says of its streams, or None: numbers and heads must fit."""
    out, into = state
    if out.acked > out.seq:
        return "more acknowledged than sent"
    if into.id is None and into.seq:
        return "places of a stream without id"
    if any((one.seq == 0) != (one.head == EMPTY_HEAD) for one in (out, into)):
        return "a head that does not fit its place"
    return None


def place_to_recall(ours: Outgoing, theirs: Incoming) -> int | None:
    """The place of our stream whose head decides, where it is not known without looking.

    It is never one before the last acknowledged place: a peer that has less has lost something.
    """
    if theirs.id == ours.id and max(ours.acked, 1) <= theirs.seq < ours.seq:
        return theirs.seq
    return None


def compare(
    ours: StreamState,
    theirs: StreamState,
    recalled: bytes | None,
    *,
    known_store: str | None,
    store: str,
    is_copied: bool = False,
) -> Verdict:
    """Whether a link goes on between `ours` and what the peer's hello says, and from where.

    `recalled` is our own head at `place_to_recall`, None if it is not known any more: then nothing
    proves that both have the same past, and the link stops. `known_store` is the id of the peer's
    store when it was last met (None: never), `store` the one that it names now. `is_copied`: it is
    known to run twice, and no owner has acted since.
    """
    kinds = {_of_outgoing(ours.out, theirs.into, recalled), _of_incoming(ours.into, theirs.out)}
    if known_store is not None and store != known_store:
        kinds.add("another-store")
    if is_copied:
        kinds.add(COPIED)
    for kind in STOPS:
        if kind in kinds:
            return Verdict(kind, 0, _words(kind, ours, theirs))
    return Verdict("go-on", theirs.into.seq + 1, "")


def stopped_by_peer(code: str) -> Verdict | None:
    """Our verdict when the other end stops a link with this one of its own; None: it is none."""
    for kind, ours in STOPS.items():
        if kind == code:
            return Verdict(ours, 0, f"the peer compared its streams with ours and found: {code}")
    return None


def _of_outgoing(ours: Outgoing, theirs: Incoming, recalled: bytes | None) -> Kind:
    """The verdict on the stream that we send."""
    if theirs.id is None:
        return "go-on" if ours.acked == 0 else "rollback-of-peer"
    if theirs.id != ours.id:
        return "unknown-stream"
    if theirs.seq > ours.seq:
        return "rollback-of-us"
    if theirs.seq < ours.acked:
        return "rollback-of-peer"
    heads = {0: EMPTY_HEAD, ours.seq: ours.head}
    return "go-on" if heads.get(theirs.seq, recalled) == theirs.head else "fork"


def _of_incoming(ours: Incoming, theirs: Outgoing) -> Kind:
    """The verdict on the stream that we receive; the peer's past before its end is not ours."""
    if ours.id is None:
        return "go-on" if theirs.acked == 0 else "rollback-of-us"
    if ours.id != theirs.id:
        return "unknown-stream"
    if ours.seq > theirs.seq:
        return "rollback-of-peer"
    if ours.seq < theirs.acked:
        return "rollback-of-us"
    return "fork" if ours.seq == theirs.seq and ours.head != theirs.head else "go-on"


def _words(kind: Kind, ours: StreamState, theirs: StreamState) -> str:
    """The sentence for the owner: numbers only, nothing that the peer could word."""
    sent = f"we wrote {ours.out.seq} and know of {ours.out.acked} acknowledged"
    sent = f"of our stream {sent}, the peer has {theirs.into.seq}"
    received = f"the peer wrote {theirs.out.seq} and knows of {theirs.out.acked} acknowledged"
    received = f"of its stream {received}, we have {ours.into.seq}"
    return f"{_MEANINGS[kind]} ({sent}; {received})"


_MEANINGS: Final[Mapping[Kind, str]] = {
    COPIED: "two copies of the peer run, or are used in turns",
    "another-store": "the peer's store is another one than before: it was restored or replaced",
    "unknown-stream": "the two hosts do not speak of the same streams: one of them was restored or"
    " paired anew without the other",
    "fork": "the same places hold different records on the two hosts: one of them was copied, or"
    " went on from an older copy of its store",
    "rollback-of-us": "our own store is older than what the peer knows of it",
    "rollback-of-peer": "the peer's store is older than what we know of it",
}
