"""What must hold of several hosts once their network has healed: pure functions of their stores."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from mbx.core.delivery import Stage


class Copy(NamedTuple):
    """One copy of a message as a store has it; `where`: label of the host of its mailbox."""

    message: str
    identity: str
    where: str
    stage: int
    outcome: str | None
    did: str | None
    error: str | None


class Stream(NamedTuple):
    """One direction of a pairing, as its two ends have it."""

    sender: str
    receiver: str
    sent: tuple[int, bytes]
    acked: int
    received: tuple[int, bytes]
    stopped: tuple[str | None, str | None]
    sent_order: tuple[str, ...]
    """Ids of the messages at its places that were not withdrawn."""
    received_order: tuple[str, ...]
    """Ids of the messages from there, in the order in which they were stored."""


class Held(NamedTuple):
    """What one host has: ids of messages to texts, how often each is there, and the copies."""

    label: str
    texts: Mapping[str, str]
    times: Mapping[str, int]
    copies: Sequence[Copy]
    unread: Mapping[str, tuple[int, int]]
    """Identity -> the count that is kept, and the copies that are not read."""


class Glimpse(NamedTuple):
    """One host at a moment at which anything may be under way."""

    label: str
    stages: Mapping[tuple[str, str], int]
    """(message, identity) -> stage of each copy in a mailbox here."""
    told: Mapping[tuple[str, str], tuple[str, int]]
    """(message, identity) -> label of the host of its mailbox, and the stage that is told here."""
    acked: Mapping[str, int]
    """Label of another host -> the place up to which it has our stream, as far as we know."""
    committed: Mapping[str, int]
    """Label of another host -> the place up to which we have its stream."""


def overclaims(before: Sequence[Glimpse], now: Sequence[Glimpse]) -> list[str]:
    """What a host says of another that is not so now, or says less of than it did before."""
    by_label = {one.label: one for one in now}
    found = []
    for one in now:
        for other, upto in one.acked.items():
            has = by_label[other].committed[one.label]
            if upto > has:
                found.append(f"I16 {one.label} takes {other} to have {upto}, and it has {has}")
        for copy, (where, stage) in one.told.items():
            if stage >= Stage.DELIVERED and stage > by_label[where].stages.get(copy, -1):
                found.append(f"I12 {one.label} is told more of {copy} than {where} has")
    for earlier, later in zip(before, now, strict=False):
        for copy, (_, stage) in earlier.told.items():
            if later.told.get(copy, ("", -1))[1] < stage:
                found.append(f"I12 what {later.label} is told of {copy} has gone back")
    return found


def problems(
    hosts: Sequence[Held], streams: Iterable[Stream], accepted: Iterable[tuple[str, str]]
) -> list[str]:
    """What is wrong, each in a line that begins with the invariant."""
    by_label = {host.label: host for host in hosts}
    found = [*_of_streams(streams), *_of_hosts(hosts)]
    for label, message in accepted:
        if message not in by_label[label].texts:
            found.append(f"I1 {message} was accepted on {label} and is not there")
    for host in hosts:
        for copy in host.copies:
            if copy.where != host.label:
                found += _of_copy(host.label, copy, by_label[copy.where])
    return found


def _of_streams(streams: Iterable[Stream]) -> Iterable[str]:
    for one in streams:
        way = f"{one.sender} to {one.receiver}"
        if any(one.stopped):
            yield f"I20 the stream from {way} was stopped, and nothing was put back: {one.stopped}"
        elif one.sent != one.received or one.acked != one.sent[0]:
            ends = f"{one.sent[0]}, {one.acked}, {one.received[0]}"
            yield f"I16 the ends of the stream from {way} differ: {ends}"
        known = [message for message in one.sent_order if message in set(one.received_order)]
        if known != list(one.received_order):
            yield f"I5 what came from {way} is in another order, or more than was sent"


def _of_hosts(hosts: Sequence[Held]) -> Iterable[str]:
    texts: dict[str, str] = {}
    for host in hosts:
        for message, count in host.times.items():
            if count != 1:
                yield f"I2 {message} is on {host.label} {count} times"
        for message, text in host.texts.items():
            if texts.setdefault(message, text) != text:
                yield f"I3 {message} has another text on {host.label}"
        for identity, (kept, counted) in host.unread.items():
            if kept != counted:
                yield f"I4 {identity} on {host.label} has {counted} unread, and {kept} are told"


def _of_copy(sender: str, copy: Copy, there: Held) -> Iterable[str]:
    """A copy for another host, as the sender has it, against what that host has."""
    real = [
        one for one in there.copies if (one.message, one.identity) == (copy.message, copy.identity)
    ]
    name = f"{copy.message} for {copy.identity}@{copy.where}"
    if copy.error is not None:
        if real:
            yield f"I12 {name} was returned ({copy.error}) and is there all the same"
    elif not real:
        yield f"I1 {name} never arrived and was not returned"
    elif (copy.stage, copy.outcome, copy.did) != (real[0].stage, real[0].outcome, real[0].did):
        was, now = Stage(copy.stage).label, Stage(real[0].stage).label
        yield f"I12 {name} is {now}, and {sender} is told {was}"
