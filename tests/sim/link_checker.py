"""The invariants of a link between two hosts, as pure functions of a history and of what is left.

Each returns sentences about what is wrong; `violations` asks them all. `test_link_checker.py` shows
each of them bad histories before any is run.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from mbx.core.limits import (
    FRAME_MAX_BYTES,
    REFUSAL_RETRY_MIN_MS,
    WINDOW_MAX_BYTES,
    WINDOW_RECORDS_MAX,
)
from mbx.core.streams import COPIED, EMPTY_HEAD, extended
from tests.sim.link_history import (
    Acked,
    Asked,
    Ended,
    Heard,
    Held,
    LinkCase,
    Restored,
    Said,
    Spoilt,
    Stood,
    Stopped,
    Took,
    Withdrew,
    Written,
)

KEPT_MAX_BYTES: Final = 2 * WINDOW_MAX_BYTES
"""Texts that a machine may keep: what one look into the outbox gives, escaped."""


class Streams:
    """What the stores hold while the history goes on: places by host, and how many were taken."""

    def __init__(self) -> None:
        self.written: tuple[list[bytes], list[bytes]] = ([], [])
        self.withdrawn: list[set[int]] = [set(), set()]
        self.taken = [0, 0]
        self.torn = False

    def follow(self, event: object) -> None:
        """Take one event in."""
        match event:
            case Written(host, _, digest):
                self.written[host].append(digest)
            case Withdrew(host, seq):
                self.withdrawn[host].add(seq)
            case Took(host, _, seq):
                self.taken[host] = max(seq, self.taken[host])
            case Restored(host, sent, received, withdrawn, sound):
                self.written[host][:] = sent
                self.withdrawn[host] = set(withdrawn)
                self.taken[host] = received
                self.torn = not sound


def _followed(case: LinkCase) -> Iterator[tuple[object, Streams]]:
    """Each event with what the stores held before it."""
    streams = Streams()
    for event in case.events:
        yield event, streams
        streams.follow(event)


def _is_torn(case: LinkCase) -> bool:
    streams = Streams()
    for event in case.events:
        streams.follow(event)
    return streams.torn


class Turns:
    """What a host has seen of its peer's stores: a stop, a link, and a stop that it found itself.

    Another store of its own has forgotten it.
    """

    def __init__(self) -> None:
        self._seen = ["", ""]
        self.restored = [0, 0]

    def follow(self, event: object) -> None:
        """Take one event in."""
        match event:
            case Stopped(host, _, kind, by_peer):
                is_turn = self._seen[host] in ("stood", "turned") and not by_peer
                about_us = kind.endswith("-of-us")
                self._seen[host] = "" if about_us else "turned" if is_turn else "stopped"
            case Stood(host) if self._seen[host] == "stopped":
                self._seen[host] = "stood"
            case Restored(host):
                self._seen[host] = ""
                self.restored[host] += 1

    def were_seen(self, host: int) -> bool:
        """Whether the peer's stores provably took turns."""
        return self._seen[host] == "turned"


def _is_held(case: LinkCase) -> bool:
    """Whether a host waits for its owner at the end."""
    held = [False, False]
    for event in case.events:
        match event:
            case Stopped(host, _, kind):
                held[host] |= kind == COPIED
            case Restored(host):
                held[host] = False
    return any(held)


# --- I1, I2, I3, I5: the mail --------------------------------------------------------------------


def lost(case: LinkCase) -> Iterator[str]:
    """I1: at the end everything that was written is with the other host, and is known to be."""
    if _is_torn(case) or _is_held(case) or not case.healed:
        return
    for host, left in enumerate(case.left):
        there = len(case.left[1 - host].received)
        if there != len(left.sent):
            yield f"host {host} wrote {len(left.sent)} places, {there} are there"
        if left.acked != there:
            yield f"host {host} knows of {left.acked} places that {there} are there"


def doubled(case: LinkCase) -> Iterator[str]:
    """I2: no place is committed twice, nor asked for twice on one link unless it was refused."""
    asked: dict[tuple[int, int], int] = {}
    for event, streams in _followed(case):
        match event:
            case Took(host, _, seq) if seq <= streams.taken[host]:
                yield f"host {host} took place {seq} again"
            case Asked(host, link, first, last):
                if first <= asked.get((host, link), 0):
                    yield f"host {host} was asked for place {first} again on link {link}"
                asked[host, link] = last
            case Said(host, link, "no", seq):
                asked[host, link] = seq - 1


def invented(case: LinkCase) -> Iterator[str]:
    """I3: what is committed was written in that place; what came back to its sender is not."""
    for event, streams in _followed(case):
        if not isinstance(event, Took):
            continue
        written, place = streams.written[1 - event.host], f"place {event.seq}"
        if event.seq > len(written):
            yield f"host {event.host} took {place}, which was never written"
        elif written[event.seq - 1] != event.digest:
            yield f"host {event.host} took another record in {place}"
        elif (event.seq in streams.withdrawn[1 - event.host]) == event.is_record:
            yield f"host {event.host} took {place} {'' if event.is_record else 'not '}as a record"
    for host, left in enumerate(case.left):
        there = case.left[1 - host].received
        if not _is_torn(case) and left.sent[: len(there)] != there:
            yield f"what host {1 - host} has is not what host {host} wrote"


def disordered(case: LinkCase) -> Iterator[str]:
    """I5: places are committed one after the other, and asked for so on each link."""
    asked: dict[tuple[int, int], int] = {}
    for event, streams in _followed(case):
        match event:
            case Took(host, _, seq) if seq > streams.taken[host] + 1:
                yield f"host {host} took place {seq} after {streams.taken[host]}"
            case Asked(host, link, first, last):
                if first > asked.get((host, link), first) + 1:
                    yield f"host {host} was asked for place {first} after a gap on link {link}"
                asked[host, link] = last
            case Said(host, link, "no", seq):
                asked[host, link] = seq - 1


# --- I16: streams --------------------------------------------------------------------------------


def untrue(case: LinkCase) -> Iterator[str]:
    """I16: an ok and an acknowledgement say what is committed, and heads what is in the stream."""
    for event, streams in _followed(case):
        match event:
            case Said(host, link, "ok", _, upto) if upto > streams.taken[host]:
                yield f"host {host} said ok to {upto} on link {link} before it was committed"
            case Acked(host, upto) if upto > streams.taken[1 - host] and not streams.torn:
                yield f"host {host} dropped up to {upto} before the other had committed it"
    for host, left in enumerate(case.left):
        for places, head in ((left.sent, left.sent_head), (left.received, left.received_head)):
            if _head(places) != head:
                yield f"a head of host {host} is not that of its {len(places)} places"


def _head(places: tuple[bytes, ...]) -> bytes:
    head = EMPTY_HEAD
    for digest in places:
        head = extended(head, digest)
    return head


def rash(case: LinkCase) -> Iterator[str]:
    """I16: nothing of value before both compared, and nothing at all where streams do not fit."""
    heard: dict[tuple[int, int], set[str]] = defaultdict(set)
    said: dict[tuple[int, int], set[str]] = defaultdict(set)
    for event, streams in _followed(case):
        match event:
            case Heard(host, link, sort):
                heard[host, link].add(sort)
            case Said(host, link, sort):
                if sort == "put" and not {"hello", "ok"} <= heard[host, link]:
                    yield f"host {host} offered on link {link} before the other went on"
                if sort == "put" and "ok" not in said[host, link]:
                    yield f"host {host} offered on link {link} before it went on itself"
                said[host, link].add(sort)
            case Took(host, link, seq):
                if "ok" not in said[host, link]:
                    yield f"host {host} took place {seq} from link {link} before it went on"
                if streams.torn:
                    yield f"host {host} took place {seq} though the streams do not fit"
            case Acked(host, upto) if streams.torn:
                yield f"host {host} dropped up to {upto} though the streams do not fit"


def disagreed(case: LinkCase) -> Iterator[str]:
    """I16: streams that do not fit are told by both hosts, of streams that fit nobody says so."""
    told: set[int] = set()
    for event, streams in _followed(case):
        if isinstance(event, Restored):
            told.clear()
        elif isinstance(event, Stopped):
            told.add(event.host)
            if not streams.torn and not event.kind.startswith("copies"):
                yield f"host {event.host} stopped link {event.link} ({event.kind}) without cause"
    if _is_torn(case) and case.healed and told != {0, 1}:
        yield f"the streams do not fit, and only {sorted(told)} of the hosts said so"


def duped(case: LinkCase) -> Iterator[str]:
    """I16: of stores that take turns none is let in, and of less nobody says that there are two."""
    turns = Turns()
    for event in case.events:
        match event:
            case Stood(host, link) if turns.were_seen(host):
                yield f"host {host} let one of two copies in on link {link}"
            case Stopped(host, link, kind) if kind == COPIED and turns.restored[1 - host] < 2:
                yield f"host {host} took one store for two on link {link}"
        turns.follow(event)


# --- I20, I21 ------------------------------------------------------------------------------------

_ACCUSATIONS: Final = frozenset({"malformed", "protocol", "wrong-host", "version-mismatch"})


def accused(case: LinkCase) -> Iterator[str]:
    """I20: who keeps the rules is never told that it broke them."""
    spoilt = {event.link for event in case.events if isinstance(event, Spoilt)}
    for event in case.events:
        if isinstance(event, Ended) and event.code in _ACCUSATIONS and event.link not in spoilt:
            yield f"host {event.host} ended link {event.link} with {event.code}"


def unbounded(case: LinkCase) -> Iterator[str]:
    """I21: the window holds at both ends, and what is refused for now is not offered at once."""
    refused: dict[tuple[int, int], int] = {}
    for event in case.events:
        match event:
            case Held(host, link, offered, offered_bytes, uncommitted, uncommitted_bytes, kept):
                for what, places, size in (
                    ("offered", offered, offered_bytes),
                    ("uncommitted", uncommitted, uncommitted_bytes),
                ):
                    # One frame may be larger than what is left of the window only if it is alone.
                    most = (
                        WINDOW_MAX_BYTES if places > 1 else max(WINDOW_MAX_BYTES, FRAME_MAX_BYTES)
                    )
                    if places > WINDOW_RECORDS_MAX or size > most:
                        yield f"host {host} has {places} places ({size} bytes) {what} on {link}"
                if kept > KEPT_MAX_BYTES:
                    yield f"the machine of host {host} keeps {kept} bytes of texts"
            case Heard(host, link, "no", _, _, at_ms):
                refused[host, link] = at_ms
            case Said(host, link, "put", first, _, at_ms):
                since_ms = refused.pop((host, link), None)
                if since_ms is not None and at_ms < since_ms + REFUSAL_RETRY_MIN_MS:
                    yield f"host {host} offered {first} again {at_ms - since_ms} ms after a no"


LINK_INVARIANTS: Final[Mapping[str, tuple[Callable[[LinkCase], Iterator[str]], ...]]] = {
    "I1": (lost,),
    "I2": (doubled,),
    "I3": (invented,),
    "I5": (disordered,),
    "I16": (untrue, rash, disagreed, duped),
    "I20": (accused,),
    "I21": (unbounded,),
}


def violations(case: LinkCase) -> dict[str, list[str]]:
    """What is wrong, by invariant; only those that do not hold."""
    found = {
        name: [line for check in checks for line in check(case)]
        for name, checks in LINK_INVARIANTS.items()
    }
    return {name: lines for name, lines in found.items() if lines}
