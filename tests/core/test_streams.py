"""Streams of paired hosts: the running head, and the comparison that both ends make at a connect.

The comparison is first held against each row of its table, from both ends; then against what a
model of two hosts knows, through random histories of lost acknowledgements, restored copies, forks
and new pairings.
"""

import hashlib
import random
import sys
from collections import Counter
from dataclasses import dataclass, field

import pytest

from mbx.core.streams import (
    COPIED,
    EMPTY_HEAD,
    STOPS,
    Incoming,
    Kind,
    Outgoing,
    StreamState,
    Verdict,
    compare,
    extended,
    flaw,
    place_to_recall,
    stopped_by_peer,
)
from tests.support.rules import ROOT

S, T = "s" * 26, "t" * 26
STORE = "d" * 26


def digests(*words: str) -> list[bytes]:
    return [hashlib.sha256(word.encode()).digest() for word in words]


def heads_of(places: list[bytes]) -> list[bytes]:
    """The head after no place, after one, and so on."""
    heads = [EMPTY_HEAD]
    for digest in places:
        heads.append(extended(heads[-1], digest))
    return heads


@dataclass
class Sender:
    """One direction as its sender keeps it."""

    id: str
    places: list[bytes] = field(default_factory=list)
    acked: int = 0

    def state(self) -> Outgoing:
        return Outgoing(self.id, len(self.places), heads_of(self.places)[-1], self.acked)


@dataclass
class Receiver:
    """One direction as its receiver keeps it."""

    id: str | None = None
    places: list[bytes] = field(default_factory=list)

    def state(self) -> Incoming:
        return Incoming(self.id, len(self.places), heads_of(self.places)[-1])


QUIET = (Sender(T), Receiver(T))
"""The other direction, where nothing ever happened."""


def verdict(mine: StreamState, theirs: StreamState, past: Sender, known: str | None) -> Verdict:
    """What one end says; it recalls what it is asked to recall."""
    place = place_to_recall(mine.out, theirs.into)
    recalled = None if place is None else heads_of(past.places)[place]
    return compare(mine, theirs, recalled, known_store=known, store=STORE)


def both(sender: Sender, receiver: Receiver) -> tuple[Verdict, Verdict]:
    """What the two ends of one direction say, nothing having happened in the other."""
    theirs, ours = QUIET
    a = StreamState(sender.state(), ours.state())
    b = StreamState(theirs.state(), receiver.state())
    return verdict(a, b, sender, STORE), verdict(b, a, theirs, STORE)


# --- heads ---------------------------------------------------------------------------------------


def test_the_running_head_hashes_the_last_head_and_the_digest_of_the_record() -> None:
    one, two = digests("1", "2")
    first = hashlib.sha256(bytes(32) + one).digest()
    assert extended(EMPTY_HEAD, one) == first
    assert extended(first, two) == hashlib.sha256(first + two).digest()


def test_the_order_of_places_counts_for_the_head() -> None:
    one, two = digests("1", "2")
    assert heads_of([one, two])[-1] != heads_of([two, one])[-1]


@pytest.mark.parametrize(
    ("out", "into", "why"),
    [
        (Outgoing(S, 1, b"h" * 32, 2), Incoming(T, 0, EMPTY_HEAD), "more acknowledged than sent"),
        (
            Outgoing(S, 0, EMPTY_HEAD, 0),
            Incoming(None, 1, b"h" * 32),
            "places of a stream without id",
        ),
        (
            Outgoing(S, 0, b"h" * 32, 0),
            Incoming(T, 0, EMPTY_HEAD),
            "a head that does not fit its place",
        ),
        (
            Outgoing(S, 1, EMPTY_HEAD, 0),
            Incoming(T, 0, EMPTY_HEAD),
            "a head that does not fit its place",
        ),
        (
            Outgoing(S, 0, EMPTY_HEAD, 0),
            Incoming(T, 3, EMPTY_HEAD),
            "a head that does not fit its place",
        ),
        (Outgoing(S, 3, b"h" * 32, 3), Incoming(T, 2, b"i" * 32), None),
        (Outgoing(S, 0, EMPTY_HEAD, 0), Incoming(None, 0, EMPTY_HEAD), None),
    ],
)
def test_numbers_and_heads_that_do_not_fit_are_told(
    out: Outgoing, into: Incoming, why: str | None
) -> None:
    assert flaw(StreamState(out, into)) == why


# --- the table, row by row, from both ends -------------------------------------------------------

ABC = digests("a", "b", "c")

TABLE: list[tuple[str, Sender, Receiver, Kind, Kind, int]] = [
    ("a new pairing", Sender(S), Receiver(), "go-on", "go-on", 1),
    ("nothing there, nothing acked", Sender(S, ABC), Receiver(), "go-on", "go-on", 1),
    ("known, nothing there", Sender(S, ABC), Receiver(S), "go-on", "go-on", 1),
    (
        "nothing there, something acked",
        Sender(S, ABC, 1),
        Receiver(),
        "rollback-of-peer",
        "rollback-of-us",
        0,
    ),
    (
        "known, nothing there, something acked",
        Sender(S, ABC, 1),
        Receiver(S),
        "rollback-of-peer",
        "rollback-of-us",
        0,
    ),
    ("another stream", Sender(S, ABC), Receiver(T, ABC), "unknown-stream", "unknown-stream", 0),
    (
        "less than was acknowledged",
        Sender(S, ABC, 3),
        Receiver(S, ABC[:2]),
        "rollback-of-peer",
        "rollback-of-us",
        0,
    ),
    (
        "more than was ever written",
        Sender(S, ABC[:2], 2),
        Receiver(S, ABC),
        "rollback-of-us",
        "rollback-of-peer",
        0,
    ),
    (
        "more than nothing",
        Sender(S),
        Receiver(S, ABC),
        "rollback-of-us",
        "rollback-of-peer",
        0,
    ),
    (
        "as much, another head",
        Sender(S, ABC, 2),
        Receiver(S, [*ABC[:2], *digests("x")]),
        "fork",
        "fork",
        0,
    ),
    (
        "less, head of another past: the sender alone can see it",
        Sender(S, ABC, 1),
        Receiver(S, [ABC[0], *digests("x")]),
        "fork",
        "go-on",
        0,
    ),
    ("all of it", Sender(S, ABC, 3), Receiver(S, ABC), "go-on", "go-on", 4),
    ("all of it, no answer came", Sender(S, ABC, 0), Receiver(S, ABC), "go-on", "go-on", 4),
    ("a part", Sender(S, ABC, 1), Receiver(S, ABC[:1]), "go-on", "go-on", 2),
    ("a part, an answer was lost", Sender(S, ABC, 1), Receiver(S, ABC[:2]), "go-on", "go-on", 3),
]


@pytest.mark.parametrize(
    ("sender", "receiver", "sender_says", "receiver_says", "next_seq"),
    [row[1:] for row in TABLE],
    ids=[row[0] for row in TABLE],
)
def test_each_row_of_the_table_is_said_by_both_ends(
    sender: Sender, receiver: Receiver, sender_says: Kind, receiver_says: Kind, next_seq: int
) -> None:
    at_sender, at_receiver = both(sender, receiver)
    assert (at_sender.kind, at_receiver.kind) == (sender_says, receiver_says)
    assert at_sender.next_seq == next_seq
    assert at_sender.goes_on == (at_sender.words == "")


def test_a_past_that_is_not_known_any_more_proves_nothing() -> None:
    sender, receiver = Sender(S, ABC, 1), Receiver(S, ABC[:2])
    mine = StreamState(sender.state(), QUIET[1].state())
    theirs = StreamState(QUIET[0].state(), receiver.state())
    assert place_to_recall(mine.out, theirs.into) == 2
    assert compare(mine, theirs, None, known_store=None, store=STORE).kind == "fork"


@pytest.mark.parametrize(
    ("acked", "seq", "place"),
    [(0, 0, None), (0, 1, 1), (0, 2, 2), (0, 3, None), (0, 4, None), (2, 1, None), (2, 2, 2)],
)
def test_a_head_is_recalled_only_where_it_decides(acked: int, seq: int, place: int | None) -> None:
    """Neither at the ends, whose heads are known, nor where something is lost anyway."""
    head = EMPTY_HEAD if seq == 0 else b"h" * 32
    assert place_to_recall(Sender(S, ABC, acked).state(), Incoming(S, seq, head)) == place
    assert place_to_recall(Sender(S, ABC, acked).state(), Incoming(T, seq, head)) is None


@pytest.mark.parametrize(
    ("known", "kind"), [(None, "go-on"), (STORE, "go-on"), ("e" * 26, "another-store")]
)
def test_another_store_of_the_peer_stops_the_link(known: str | None, kind: Kind) -> None:
    sender, receiver = Sender(S, ABC, 3), Receiver(S, ABC)
    mine = StreamState(sender.state(), QUIET[1].state())
    theirs = StreamState(QUIET[0].state(), receiver.state())
    assert verdict(mine, theirs, sender, known).kind == kind


def test_of_two_troubles_the_graver_is_told() -> None:
    """A fork in one direction, a rollback in the other."""
    mine = StreamState(Sender(S, ABC, 3).state(), Receiver(T, ABC).state())
    theirs = StreamState(Sender(T, digests("x", "y", "z"), 3).state(), Receiver(S, ABC[:1]).state())
    assert verdict(mine, theirs, Sender(S, ABC, 3), STORE).kind == "fork"


def test_a_peer_that_is_known_to_run_twice_is_stopped_whatever_the_streams_say() -> None:
    at_us, at_them = (side.state() for side in (Sender(S, ABC, 3), Sender(T)))
    ours = StreamState(at_us, Receiver(T).state())
    theirs = StreamState(at_them, Receiver(S, ABC).state())

    def held_to(theirs: StreamState, *, is_copied: bool) -> Verdict:
        return compare(ours, theirs, None, known_store=STORE, store=STORE, is_copied=is_copied)

    assert held_to(theirs, is_copied=False).goes_on
    held = held_to(theirs, is_copied=True)
    assert (held.kind, held.next_seq) == (COPIED, 0)
    assert "two copies of the peer" in held.words
    torn = theirs._replace(into=Receiver(S, ABC[:1]).state())
    assert held_to(torn, is_copied=True).kind == COPIED


def test_the_words_for_the_owner_say_what_each_end_has() -> None:
    at_sender, at_receiver = both(Sender(S, ABC, 3), Receiver(S, ABC[:2]))
    assert "older than what we know of it" in at_sender.words
    assert "we wrote 3 and know of 3 acknowledged, the peer has 2" in at_sender.words
    assert "our own store is older" in at_receiver.words
    assert "the peer wrote 3 and knows of 3 acknowledged, we have 2" in at_receiver.words


def test_what_one_end_calls_a_stop_the_other_calls_by_its_own_name() -> None:
    assert STOPS[COPIED] == "copies-of-us"  # which no host says of itself
    assert stopped_by_peer("copies-of-us") is None
    for kind, other in STOPS.items():
        told = stopped_by_peer(kind)
        assert told is not None
        assert (told.kind, told.goes_on) == (other, False)
        assert kind == COPIED or STOPS[other] == kind
        assert kind in told.words
    assert stopped_by_peer("go-on") is None
    assert stopped_by_peer("timeout") is None


def test_the_page_on_the_protocol_has_every_verdict() -> None:
    page = (ROOT / "docs" / "protocol-peer.md").read_text(encoding="utf-8")
    assert [kind for kind in STOPS if f"`{kind}`" not in page] == []


# --- random histories ----------------------------------------------------------------------------


@dataclass
class Host:
    """What one host keeps: the sending side of one stream, the receiving side of the other."""

    out: Sender
    into: Receiver
    known: str | None = None

    def state(self) -> StreamState:
        return StreamState(self.out.state(), self.into.state())

    def copy(self) -> "Host":
        out = Sender(self.out.id, list(self.out.places), self.out.acked)
        return Host(out, Receiver(self.into.id, list(self.into.places)), self.known)


@dataclass
class Pair:
    """Two hosts, what happens to them, and the truth about their streams."""

    chance: random.Random
    hosts: list[Host] = field(default_factory=list)
    copies: list[tuple[int, Host]] = field(default_factory=list)
    pairings: int = 0
    written: int = 0

    def __post_init__(self) -> None:
        self.pair_anew()

    def pair_anew(self) -> None:
        self.pairings += 1
        self.hosts = [Host(Sender(f"{name}{self.pairings:025}"), Receiver()) for name in "ab"]

    def pair_one_side_only(self) -> None:
        """One host forgot the pairing and made another, of which the other knows nothing."""
        self.pairings += 1
        self.hosts[0] = Host(Sender(f"a{self.pairings:025}"), Receiver())

    def write(self, host: Host) -> None:
        self.written += 1
        host.out.places += digests(str(self.written))

    def relay(self, sender: Host, receiver: Host) -> None:
        """Some of what the receiver lacks, and perhaps the acknowledgement."""
        if not is_true(sender.out, receiver.into):
            return
        receiver.into.id = sender.out.id
        have = len(receiver.into.places)
        more = self.chance.randint(0, len(sender.out.places) - have)
        receiver.into.places += sender.out.places[have : have + more]
        if self.chance.random() < 0.5:
            sender.out.acked = len(receiver.into.places)

    def step(self) -> str:
        no = self.chance.randrange(2)
        host, other = self.hosts[no], self.hosts[1 - no]
        what = self.chance.choices(
            ["write", "relay", "copy", "restore", "pair", "half pair"], [30, 40, 10, 8, 1, 1]
        )[0]
        if what == "write":
            self.write(host)
        elif what == "relay":
            self.relay(host, other)
        elif what == "copy":
            self.copies.append((no, host.copy()))
        elif what == "restore" and self.copies:
            which, older = self.chance.choice(self.copies)
            self.hosts[which] = older.copy()
        elif what == "pair":
            self.pair_anew()
        elif what == "half pair":
            self.pair_one_side_only()
        return what


def is_true(sender: Sender, receiver: Receiver) -> bool:
    """What an onlooker who sees both sides says of one direction: may it go on?"""
    if receiver.id is None:
        return sender.acked == 0
    have = receiver.places
    return (
        receiver.id == sender.id
        and sender.acked <= len(have) <= len(sender.places)
        and sender.places[: len(have)] == have
    )


def test_both_ends_together_go_on_exactly_when_nothing_is_lost_or_forked() -> None:
    """And where they do, both offer from the place that the other lacks first."""
    met: Counter[str] = Counter()
    for seed in range(250):
        pair = Pair(random.Random(seed))
        for _ in range(40):
            met[pair.step()] += 1
            a, b = pair.hosts
            at_a = verdict(a.state(), b.state(), a.out, None)
            at_b = verdict(b.state(), a.state(), b.out, None)
            truth = is_true(a.out, b.into) and is_true(b.out, a.into)
            assert (at_a.goes_on and at_b.goes_on) == truth, (seed, a, b)
            if truth:
                assert at_a.next_seq == len(b.into.places) + 1
                assert at_b.next_seq == len(a.into.places) + 1
            met["may go on" if truth else "may not"] += 1
            met[at_a.kind] += 1
            if at_a.goes_on != at_b.goes_on:
                met["one end alone sees it"] += 1
                assert "fork" in {at_a.kind, at_b.kind}
    sys.stdout.write(f"random histories of two hosts: {dict(sorted(met.items()))}\n")
    least = {"may go on": 2_000, "may not": 2_000, "one end alone sees it": 60, "restore": 300}
    least |= dict.fromkeys(["go-on", *STOPS.keys() - {"another-store", COPIED}], 100)
    assert {what: met[what] for what, count in least.items() if met[what] < count} == {}
