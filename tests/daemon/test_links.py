"""The links of two hosts over their stores: real machines and rules, wires made of lists.

Texts move when a test says so, so that a wire can be cut between any two of them.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from mbx.core.errors import MbxError
from mbx.core.limits import REDIAL_WOKEN_MS, STAND_BY_MS
from mbx.core.streams import COPIED
from mbx.daemon import peerlist, relaying
from mbx.daemon.context import Answer
from mbx.daemon.dispatch import Work
from mbx.daemon.effects import Queued
from mbx.daemon.links import Links
from mbx.daemon.linkstate import LinkState, RoundTrip
from mbx.daemon.times import rfc3339
from mbx.store import outbox, peers
from mbx.store.database import Committed, Outcome, Refused
from mbx.store.peers import PeerRow
from tests.support.paired import PairedDesk, desk, pair, sent

STORES = {"desk": "0" * 26, "lap": "1" * 26}


@dataclass
class ListWire:
    """One end of a connection: what is sent lies in `out` until it is moved."""

    out: deque[str] = field(default_factory=deque)
    is_closed: bool = False
    pings: int = 0
    run: str | None = None
    questions: list[Callable[[], None]] = field(default_factory=list)

    def send(self, text: str) -> None:
        assert not self.is_closed
        self.out.append(text)

    def close(self) -> None:
        self.is_closed = True

    def ping(self) -> None:
        self.pings += 1

    def measure(self) -> None:
        """Nobody answers."""

    def question(self, answered: Callable[[], None]) -> None:
        self.questions.append(answered)

    @property
    def round_trip(self) -> RoundTrip | None:
        return None


@dataclass(eq=False)
class Bell:
    """A timer by the clock that a test turns."""

    due_ms: int
    act: Callable[[], None]
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True


@dataclass
class End:
    """One host with its links."""

    desk: PairedDesk
    dialled: list[str] = field(default_factory=list)
    log: list[tuple[str, dict[str, object]]] = field(default_factory=list)
    refuse: Callable[[Work], Exception | None] = lambda work: None
    wire: ListWire = field(default_factory=ListWire)
    connection: object | None = None
    bells: list[Bell] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.links = Links(
            self.desk.dispatcher,
            self._submit,
            self._dial,
            lambda what, **facts: self.log.append((what, facts)),
            self._call_later,
        )
        self.desk.find_link = self.links.state
        self.know()

    def know(self) -> None:
        rows = self.desk.do(peers.present)
        self.links.know(rows, STORES[self.desk.label])

    def connect(self, other: PairedDesk, *, is_ours: bool) -> None:
        self.wire = ListWire()
        self.connection = self.links.connected(other.host.key_id, self.wire, is_ours=is_ours)

    def state(self, label: str) -> LinkState:
        found = self.links.state(self.desk.peer_nos[label])
        assert found is not None
        return found

    def words(self) -> list[str]:
        return [what for what, _ in self.log]

    def _submit(self, work: Work, done: Callable[[Outcome[Answer]], None]) -> None:
        error = self.refuse(work)
        if error is not None:
            done(Refused(error))
            return
        try:
            answer = self.desk.carry_out(work)
        except MbxError as refusal:
            done(Refused(refusal))
            return
        for effect in answer.effects:
            if isinstance(effect, Queued):
                self.links.queued(effect.peers)
        done(Committed(answer, 0))

    def turn(self) -> None:
        """What is due by now happens."""
        now_ms = self.desk.world.monotonic_ms()
        due = [bell for bell in self.bells if bell.due_ms <= now_ms]
        self.bells = [bell for bell in self.bells if bell not in due]
        for bell in due:
            if not bell.is_cancelled:
                bell.act()

    def _call_later(self, delay_s: float, act: Callable[[], None]) -> Bell:
        self.bells.append(Bell(self.desk.world.monotonic_ms() + int(delay_s * 1000), act))
        return self.bells[-1]

    def _dial(self, row: PeerRow) -> None:
        self.dialled.append(row.label)


class Pair:
    """Two hosts with ana and ben, and one connection between them."""

    def __init__(self) -> None:
        here, there = desk("desk"), desk("lap")
        self.ana, self.ben = here.holder("ana", 10), there.holder("ben", 20)
        pair(here, there)
        self.here, self.there = End(here), End(there)

    def connect(self) -> None:
        self.here.connect(self.there.desk, is_ours=True)
        self.there.connect(self.here.desk, is_ours=False)

    def move(self, most: int = 10_000) -> int:
        """Let up to so many texts arrive, in turns; how many did."""
        moved = 0
        while moved < most:
            before = moved
            for one, other in ((self.here, self.there), (self.there, self.here)):
                if one.wire.out and moved < most:
                    text = one.wire.out.popleft()
                    other.links.heard(other.connection, text)
                    moved += 1
            if moved == before:
                return moved
        return moved

    def cut(self) -> None:
        """The connection is gone, with all that was under way."""
        for one in (self.here, self.there):
            one.wire.out.clear()
            one.wire.is_closed = True
            one.links.gone(one.connection)

    def send(self, subject: str = "hello") -> str:
        sent_now = self.here.desk.call(
            self.ana, "mail.send", to=["ben@lap"], subject=subject, body="over the wire"
        )
        self.here.links.queued([self.here.desk.peer_nos["lap"]])
        return str(sent_now["id"])

    def arrived(self) -> list[str]:
        found = self.there.desk.call(self.ben, "mail.inbox", limit=200)["messages"]
        return [one["subject"] for one in found]

    def close(self) -> None:
        for one in (self.here, self.there):
            one.links.close()
            one.desk.close()


@pytest.fixture(name="two")
def pair_of_test() -> Iterator[Pair]:
    made = Pair()
    for one in (made.here, made.there):
        one.turn()
    made.connect()
    made.move()
    yield made
    made.close()


def test_a_link_stands_on_both_sides_and_tells_who_lives_where(two: Pair) -> None:
    assert two.here.state("lap").stands
    assert two.there.state("desk").stands
    assert "a link stands" in two.here.words()
    addresses = [one["address"] for one in two.here.desk.call(two.ana, "agents.list")["agents"]]
    assert "ben@lap" in addresses


def test_a_host_was_seen_until_its_link_ended(two: Pair) -> None:
    host, no = two.here.desk, two.here.desk.peer_nos["lap"]
    stood_ms = host.do(lambda tx: peers.by_no(tx, no)).seen_ms
    assert stood_ms is not None
    host.world.pass_ms(3 * 86_400_000)
    two.cut()
    assert host.do(lambda tx: peers.by_no(tx, no)).seen_ms == stood_ms + 3 * 86_400_000


def test_mail_goes_over_and_its_receipt_comes_back(two: Pair) -> None:
    message = two.send()
    two.move()
    assert two.arrived() == ["hello"]
    assert sent(two.here.desk, two.ana, message)["ben@lap"]["stage"] == "delivered"
    stream = two.here.desk.stream("lap")
    assert stream.acked_seq == stream.out_seq
    assert stream.queued_messages == 0


def test_what_is_sent_while_a_link_stands_is_offered_with_the_send_and_needs_no_other_commit(
    two: Pair,
) -> None:
    commits: list[End] = []

    def count(end: End) -> None:
        end.refuse = lambda work: commits.append(end) if work.writes else None

    two.send()
    stream = two.here.desk.stream("lap")
    assert stream.offered_seq == stream.out_seq
    assert len(two.here.wire.out) == 1, "it has left"
    count(two.here)
    count(two.there)
    two.move()
    assert two.arrived() == ["hello"]
    # There: it is taken, the receipt acknowledged. Here: that it is there, and the receipt.
    assert (commits.count(two.there), commits.count(two.here)) == (2, 2)


def test_what_is_sent_while_no_link_stands_or_nothing_is_taken_is_offered_when_its_turn_comes(
    two: Pair,
) -> None:
    full = MbxError("disk-full", "the disk is full")
    two.there.refuse = lambda work: full if work.writes else None
    two.send()
    two.move()
    offered = two.here.desk.stream("lap").offered_seq
    two.send()
    assert two.here.desk.stream("lap").offered_seq == offered, "it takes nothing for now"
    two.there.refuse = lambda work: None
    two.cut()
    two.send()
    stream = two.here.desk.stream("lap")
    assert (stream.offered_seq, stream.out_seq) == (offered, offered + 2)
    two.connect()
    two.move()
    assert two.arrived() == ["hello"] * 3


@pytest.mark.parametrize("texts", range(12))
def test_a_cut_between_any_two_texts_loses_and_doubles_nothing(two: Pair, texts: int) -> None:
    for number in range(5):
        two.send(f"number {number}")
    two.move(texts)
    two.cut()
    two.send("after")
    two.connect()
    two.move(texts // 2)
    two.cut()
    two.connect()
    two.move()
    assert two.arrived() == [*(f"number {number}" for number in range(5)), "after"]
    assert two.here.desk.stream("lap").queued_messages == 0
    assert two.there.desk.stream("desk").in_seq == two.here.desk.stream("lap").out_seq


def test_a_host_that_was_put_back_stops_the_link_and_its_owner_is_told(two: Pair) -> None:
    two.send()
    two.move()
    two.cut()
    no = two.there.desk.peer_nos["desk"]
    two.there.desk.do(lambda tx: outbox.received(tx, no, 0, bytes(32)))
    two.connect()
    two.move()
    assert two.here.desk.stream("lap").stopped == "rollback-of-peer"
    assert two.there.desk.stream("desk").stopped == "rollback-of-us"
    for one in (two.here, two.there):
        told = one.desk.rows(
            "SELECT m.subject FROM messages AS m JOIN deliveries AS d ON d.message_no = m.no"
            " JOIN identities AS i ON i.no = d.recipient_no WHERE i.name = 'owner'"
        )
        assert len(told) == 1
        assert told[0][0].startswith("The link to ")
    # Told once, and nothing goes on by itself.
    two.connect()
    two.move()
    assert not two.here.state("lap").stands
    assert len(two.here.desk.rows("SELECT 1 FROM audit WHERE act = 'link-stopped'")) == 1


def test_a_link_that_goes_on_after_a_stop_is_listed_as_one_that_a_copy_may_have(
    two: Pair,
) -> None:
    """Two copies of one host take turns: neither the mail nor the list may look as ever."""
    two.send()
    two.move()
    two.cut()
    no, there = two.there.desk.peer_nos["desk"], two.there.desk
    newer = there.stream("desk")

    def shown() -> dict[str, Any]:
        [one] = two.here.desk.call(two.ana, "peers.list")["peers"]
        found: dict[str, Any] = one
        return found

    def meet(seq: int, head: bytes) -> None:
        """The copy whose store stands there calls."""
        there.do(lambda tx: outbox.received(tx, no, seq, head))
        two.connect()
        two.move()

    assert shown()["parted"] is None
    meet(0, bytes(32))
    assert (shown()["state"], shown()["parted"]) == ("stopped", None)
    stopped_ms = two.here.desk.stream("lap").parted_ms
    assert stopped_ms is not None
    two.here.desk.world.pass_ms(60_000)
    meet(newer.in_seq, newer.in_head)
    assert two.here.state("lap").stands
    one = shown()
    assert one["parted"] == {
        "at": rfc3339(stopped_ms),
        "reason": peerlist.REASONS["rollback-of-peer"],
    }
    assert "a copy of a host runs" in one["next"]
    # The other one again: nothing but two stores in turns explains that, and neither goes on now.
    two.cut()
    meet(0, bytes(32))
    assert two.here.desk.stream("lap").stopped == COPIED
    assert there.stream("desk").stopped == "rollback-of-us"
    for seq, head, said in (
        (newer.in_seq, newer.in_head, "copies-of-us"),
        (0, bytes(32), "rollback-of-us"),
    ):
        two.cut()
        meet(seq, head)
        assert not two.here.state("lap").stands
        assert two.here.desk.stream("lap").stopped == COPIED
        assert there.stream("desk").stopped == said
        assert "mbx peers addr lap" in shown()["next"]
    # Until the owner acts.
    two.here.desk.do(lambda tx: outbox.release(tx, two.here.desk.peer_nos["lap"]))
    two.cut()
    meet(newer.in_seq, newer.in_head)
    assert two.here.state("lap").stands
    assert (shown()["parted"], shown()["next"]) == (None, None)


@dataclass
class Met:
    """A second connection of the lap at the desk, and how many of its questions were asked."""

    two: Pair
    older: ListWire
    newer: ListWire

    @classmethod
    def make(cls, two: Pair, older_run: str | None, newer_run: str | None) -> "Met":
        older, newer = two.here.wire, ListWire(run=newer_run)
        older.run = older_run
        two.here.wire = newer
        key_id = two.there.desk.host.key_id
        two.here.connection = two.here.links.connected(key_id, newer, is_ours=False)
        return cls(two, older, newer)

    def stopped(self) -> str | None:
        return self.two.here.desk.stream("lap").stopped


RUN, OTHER_RUN = "a" * 26, "b" * 26


def test_two_starts_of_one_host_that_are_there_at_once_stop_its_link(two: Pair) -> None:
    met: Met = Met.make(two, RUN, OTHER_RUN)
    [of_older], [of_newer] = met.older.questions, met.newer.questions
    of_older()
    assert met.stopped() is None
    of_newer()
    assert met.stopped() == COPIED
    assert not two.here.state("lap").stands
    assert met.newer.is_closed or met.older.is_closed
    [told] = two.here.desk.rows("SELECT subject FROM messages WHERE subject LIKE 'The link to%'")
    assert told == ("The link to lap has stopped: copies-of-peer",)
    two.connect()
    two.move()
    assert not two.here.state("lap").stands
    assert two.there.desk.stream("desk").stopped == "copies-of-us"


@pytest.mark.parametrize("who", ["older", "newer"])
def test_a_daemon_that_was_started_again_and_what_the_dead_one_left_are_no_copies(
    two: Pair, who: str
) -> None:
    """Whichever came last: of two connections only that of the daemon that lives answers."""
    met: Met = Met.make(two, RUN, OTHER_RUN)
    [answer] = getattr(met, who).questions
    answer()
    assert met.stopped() is None
    two.connect()
    two.move()
    assert two.here.state("lap").stands


@pytest.mark.parametrize(("older", "newer"), [(RUN, RUN), (None, RUN), (RUN, None), (None, None)])
def test_connections_of_one_start_or_of_a_mbx_that_names_none_are_asked_nothing(
    two: Pair, older: str | None, newer: str | None
) -> None:
    met: Met = Met.make(two, older, newer)
    assert met.older.questions == met.newer.questions == []


def test_an_answer_after_the_pairing_has_ended_stops_nothing(two: Pair) -> None:
    met: Met = Met.make(two, RUN, OTHER_RUN)
    two.here.links.know([], "0" * 26)
    for answer in (*met.older.questions, *met.newer.questions):
        answer()
    assert met.stopped() is None


def test_a_full_disk_makes_the_other_host_wait_and_nothing_is_lost(two: Pair) -> None:
    full = MbxError("disk-full", "the disk is full")
    two.there.refuse = lambda work: full if work.writes else None
    two.send()
    two.move()
    assert two.arrived() == []
    state = two.here.state("lap")
    assert (state.stands, state.refused) == (True, "disk-full")
    assert state.refused_ms is not None
    two.there.refuse = lambda work: None
    two.here.desk.world.pass_ms(60_000)
    for peer in two.here.links._peers.values():
        two.here.links._ring(peer)
    two.move()
    assert two.arrived() == ["hello"]
    assert (two.here.state("lap").refused, two.here.state("lap").refused_ms) == (None, None)


def test_a_host_that_is_not_paired_any_more_is_hung_up_on_and_refused(two: Pair) -> None:
    no = two.there.desk.peer_nos["desk"]
    two.there.desk.do(lambda tx: peers.end(tx, no, "us", 1))
    two.there.know()
    assert two.there.wire.is_closed
    two.move()
    two.cut()
    assert two.here.state("lap").code == "unpaired"
    two.there.connect(two.here.desk, is_ours=False)
    assert two.there.connection is None
    assert two.there.wire.is_closed
    with pytest.raises(MbxError, match="nothing is taken"):
        two.there.desk.do(
            lambda tx: relaying.accept(two.there.desk.dispatcher.context(), tx, no, "0" * 26, 1, [])
        )


def test_the_second_link_of_a_peer_takes_the_place_of_the_first(two: Pair) -> None:
    first = two.there.wire
    two.there.connect(two.here.desk, is_ours=False)
    assert first.is_closed
    assert two.there.connection is not None


def test_a_try_that_ends_when_a_link_stands_already_is_dropped(two: Pair) -> None:
    first = two.here.wire
    two.here.connect(two.there.desk, is_ours=True)
    assert not first.is_closed
    assert two.here.connection is None
    assert two.here.wire.is_closed


def test_of_two_that_were_dialled_from_both_sides_both_keep_the_same_one(two: Pair) -> None:
    wires = {one.desk.label: one.wire for one in (two.here, two.there)}
    two.here.connect(two.there.desk, is_ours=False)
    two.there.connect(two.here.desk, is_ours=True)
    smaller = two.here.desk.host.key_id < two.there.desk.host.key_id
    kept_first = [not wires["desk"].is_closed, not wires["lap"].is_closed]
    assert kept_first == [smaller, smaller]


def test_a_pairing_that_both_have_recorded_makes_a_try_due(two: Pair) -> None:
    two.cut()
    two.here.desk.world.pass_ms(70_000)
    two.here.dialled.clear()
    [peer] = two.here.links._peers.values()
    two.here.links._ring(peer)
    two.here.links.unreachable(peer.row.no, "not-paired")
    two.here.links.paired(two.there.desk.host.key_id)
    two.here.turn()
    assert two.here.dialled == ["lap", "lap"]
    assert two.here.state("lap").failures == 0
    two.here.links.paired("nobody")


@pytest.mark.parametrize("seen_ms", [None, 5])
def test_who_stands_by_dials_at_once_as_long_as_no_link_has_ever_stood(
    two: Pair, seen_ms: int | None
) -> None:
    end = max((two.here, two.there), key=lambda one: one.desk.host.key_id)
    [no] = end.desk.peer_nos.values()
    end.links.know([], "0" * 26)
    end.dialled.clear()
    row = end.desk.peer(*end.desk.peer_nos)._replace(seen_ms=seen_ms)
    end.links.know([row], "0" * 26)
    end.turn()
    state = end.links.state(no)
    assert state is not None
    if seen_ms is None:
        assert (end.dialled, state.due_ms) == (list(end.desk.peer_nos), None)
    else:
        assert (end.dialled, state.due_ms) == ([], end.desk.world.monotonic_ms() + STAND_BY_MS)


def test_a_try_is_due_at_once_and_after_a_failure_later(two: Pair) -> None:
    two.cut()
    due_ms = two.here.state("lap").due_ms
    assert due_ms is not None
    two.here.desk.world.pass_ms(70_000)
    for peer in two.here.links._peers.values():
        two.here.links._ring(peer)
    assert two.here.dialled == ["lap", "lap"]  # at the start, and now
    two.here.links.unreachable(two.here.desk.peer_nos["lap"], "unreachable")
    state = two.here.state("lap")
    assert (state.stands, state.code, state.failures) == (False, "unreachable", 2)
    assert state.due_ms is not None


def long_absent(two: Pair) -> int:
    """`lap` was tried in vain until the pauses are long; its number here."""
    no = two.here.desk.peer_nos["lap"]
    two.cut()
    for _ in range(8):
        two.here.desk.world.pass_ms(70_000)
        two.here.links._ring(two.here.links._peers[no])
        two.here.links.unreachable(no, "unreachable")
    return no


def is_due_soon(two: Pair, tried_ms: int) -> bool:
    due_ms = two.here.state("lap").due_ms
    return due_ms is not None and due_ms <= tried_ms + REDIAL_WOKEN_MS


def test_what_is_sent_while_a_connection_begins_that_comes_to_nothing_wakes_the_next_try(
    two: Pair,
) -> None:
    no = long_absent(two)
    two.here.desk.world.pass_ms(70_000)
    two.here.links._ring(two.here.links._peers[no])
    tried_ms = two.here.desk.world.monotonic_ms()
    begun = two.here.links.connected(two.there.desk.host.key_id, ListWire(), is_ours=True)
    two.here.links.queued([no])
    two.here.links.gone(begun)
    assert is_due_soon(two, tried_ms)


def test_who_asks_a_host_without_a_link_for_a_sign_of_life_has_it_tried_for_at_once(
    two: Pair,
) -> None:
    no = long_absent(two)
    tried_ms = two.here.desk.world.monotonic_ms()
    two.here.links.measure(no)
    assert is_due_soon(two, tried_ms)
    two.here.desk.world.pass_ms(REDIAL_WOKEN_MS)
    two.here.links._ring(two.here.links._peers[no])
    assert (two.here.state("lap").is_trying, two.here.state("lap").due_ms) == (True, None)


def test_more_than_a_hello_and_a_word_before_ours_ends_the_connection(two: Pair) -> None:
    two.cut()
    held: list[Any] = []
    two.there._submit = lambda work, done: held.append((work, done))  # type: ignore[method-assign]
    two.there.links._submit = two.there._submit
    two.there.connect(two.here.desk, is_ours=False)
    for _ in range(3):
        two.there.links.heard(two.there.connection, "{}")
    assert two.there.wire.is_closed
    assert held
