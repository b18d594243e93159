"""Several hosts in one seeded world: nothing is lost, doubled, invented or told wrongly.

The checker is shown bad histories first, and must find the defects that are planted in mbx.
"""

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pytest

from mbx.core.commands import Fetch
from mbx.core.delivery import Stage
from mbx.daemon import links, linkstate, receipting, relaying
from mbx.daemon.context import Answer
from mbx.store import messages, outbox
from mbx.store.database import Tx
from tests.sim.hosts import World, play
from tests.sim.relays import Copy, Glimpse, Held, Stream, overclaims, problems

CI_SEEDS: Final = 1_000
"""What CI plays; each takes about 35 ms of one core."""
SEEDS: Final = int(os.environ.get("MBX_HOSTS_SEEDS", str(CI_SEEDS)))
LEAST: Final = {
    "accepted": 5_000,
    "acknowledgements lost": 2_000,
    "commits": 70_000,
    "crossed": 4_500,
    "cuts": 1_000,
    "days apart": 350,
    "deaths": 450,
    "failed dials": 5_000,
    "frames doubled": 900,
    "frames offered again": 800,
    "full disks": 700,
    "glances": 4_500,
    "lost texts": 1_100,
    "returned": 300,
    "strangers": 500,
    "texts": 50_000,
    "virtual minutes": 1_500_000,
}
"""Of how much the seeds of CI together must have met: less would have shown nothing."""


def _finished(seed: int) -> tuple[World, list[str]]:
    world = play(seed)
    found = world.problems()
    for host in world.hosts:
        host.desk.close()
    return world, found


@pytest.mark.long
@pytest.mark.timeout(600)
def test_no_seed_breaks_an_invariant_and_together_they_meet_enough(
    publish_counts: Callable[[str, Counter[str]], None],
) -> None:
    met: Counter[str] = Counter()
    broken = {}
    for seed in range(SEEDS):
        world, found = _finished(seed)
        met.update(world.counts)
        if found:
            broken[seed] = found
    publish_counts(f"several hosts, {SEEDS:,} seeds", met)
    assert broken == {}
    short = {
        name: met[name] for name, least in LEAST.items() if met[name] * CI_SEEDS < least * SEEDS
    }
    assert short == {}


def test_a_seed_is_always_the_same_run() -> None:
    assert _finished(7)[0].counts == _finished(7)[0].counts


# -- bad histories --------------------------------------------------------------------------------

EMPTY = bytes(32)
COPY = Copy("m1", "i-ben", "lap", Stage.READ, None, None, None)
DESK = Held("desk", {"m1": "text"}, {"m1": 1}, [COPY], {"i-ana": (0, 0)})
LAP = Held("lap", {"m1": "text"}, {"m1": 1}, [COPY], {"i-ben": (0, 0)})
STREAM = Stream("desk", "lap", (3, EMPTY), 3, (3, EMPTY), (None, None), ("m1",), ("m1",))


def _found(desk: Held = DESK, lap: Held = LAP, stream: Stream = STREAM) -> list[str]:
    return [line.split()[0] for line in problems([desk, lap], [stream], [("desk", "m1")])]


def test_a_good_history_has_no_problems() -> None:
    assert _found() == []


@pytest.mark.parametrize(
    ("invariant", "changed"),
    [
        ("I1", {"desk": DESK._replace(texts={}, times={}, copies=[])}),
        ("I1", {"lap": LAP._replace(copies=[])}),
        ("I2", {"lap": LAP._replace(times={"m1": 2})}),
        ("I3", {"lap": LAP._replace(texts={"m1": "another"})}),
        ("I4", {"lap": LAP._replace(unread={"i-ben": (1, 0)})}),
        ("I5", {"stream": STREAM._replace(sent_order=("m1", "m2"), received_order=("m2", "m1"))}),
        ("I5", {"stream": STREAM._replace(received_order=("m1", "m0"))}),
        ("I12", {"desk": DESK._replace(copies=[COPY._replace(stage=Stage.ACKED)])}),
        ("I12", {"desk": DESK._replace(copies=[COPY._replace(did="much")])}),
        ("I12", {"desk": DESK._replace(copies=[COPY._replace(error="expired")])}),
        ("I16", {"stream": STREAM._replace(received=(2, EMPTY))}),
        ("I16", {"stream": STREAM._replace(received=(3, b"x" * 32))}),
        ("I16", {"stream": STREAM._replace(acked=2)}),
        ("I20", {"stream": STREAM._replace(stopped=(None, "fork"))}),
    ],
)
def test_each_bad_history_is_found(invariant: str, changed: dict[str, Any]) -> None:
    assert invariant in _found(**changed)


GLIMPSE = Glimpse("desk", {}, {("m1", "i-ben"): ("lap", Stage.READ)}, {"lap": 3}, {"lap": 0})
THERE = Glimpse("lap", {("m1", "i-ben"): Stage.READ}, {}, {"desk": 0}, {"desk": 3})


def test_of_two_glimpses_nothing_is_wrong_when_nobody_says_too_much() -> None:
    less = GLIMPSE._replace(told={("m1", "i-ben"): ("lap", Stage.DELIVERED)}, acked={"lap": 2})
    assert overclaims([less, THERE], [GLIMPSE, THERE]) == []
    assert overclaims([], [GLIMPSE._replace(told={("m2", "i-ben"): ("lap", 1)}), THERE]) == []


@pytest.mark.parametrize(
    ("invariant", "before", "now"),
    [
        ("I16", (), (GLIMPSE, THERE._replace(committed={"desk": 2}))),
        ("I12", (), (GLIMPSE, THERE._replace(stages={("m1", "i-ben"): Stage.DELIVERED}))),
        ("I12", (), (GLIMPSE, THERE._replace(stages={}))),
        ("I12", (GLIMPSE, THERE), (GLIMPSE._replace(told={}), THERE)),
    ],
)
def test_who_says_too_much_at_a_glance_is_found(
    invariant: str, before: tuple[Glimpse, ...], now: tuple[Glimpse, ...]
) -> None:
    assert [line.split()[0] for line in overclaims(before, now)] == [invariant]


# -- planted defects ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Defect:
    """One rule taken out of mbx, and the invariants that may tell."""

    plant: Callable[[pytest.MonkeyPatch], None]
    told_by: tuple[str, ...]


def what_is_read_is_told_to_nobody(patch: pytest.MonkeyPatch) -> None:
    state = receipting._state

    def some(*told: Any) -> None:
        if told[4][0].stage != Stage.READ:
            state(*told)

    patch.setattr(receipting, "_state", some)


def what_was_handed_to_a_link_is_given_up_too(patch: pytest.MonkeyPatch) -> None:
    def waiting(tx: Tx, no: int, before_ms: int, rows: int, after_seq: int = 0) -> Any:
        return outbox.waiting(tx, no, rows)

    patch.setattr(outbox, "never_offered", waiting)


def an_acknowledgement_is_not_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(relaying, "acknowledged", lambda context, tx, peer_no, upto: Answer({}))


def it_is_acknowledged_before_it_is_committed(patch: pytest.MonkeyPatch) -> None:
    commit = links.Links._commit

    def early(self: Any, peer: Any, one: Any, wanted: Any) -> None:
        said = one.link.committed(wanted.first_seq + len(wanted.places) - 1)
        self._carry_out(peer, one, said)
        link, one.link = one.link, None
        try:
            commit(self, peer, one, wanted)
        finally:
            one.link = link

    patch.setattr(links.Links, "_commit", early)


def the_head_does_not_run(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(relaying, "extended", lambda head, digest: head)


def mail_that_came_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    deliver = relaying._deliver

    def some(taken: Any, record: Any, *rest: Any) -> None:
        if record.digest[0] % 16:
            deliver(taken, record, *rest)

    patch.setattr(relaying, "_deliver", some)


def what_was_handed_over_counts_as_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(messages, "_HANDED_OVER", messages._HANDED_OVER.replace("= 1,", "= 4,"))


def what_is_offered_counts_as_acknowledged(patch: pytest.MonkeyPatch) -> None:
    offered = relaying.offered

    def both(tx: Tx, peer_no: int, own_key: str, wanted: Fetch) -> Any:
        places = offered(tx, peer_no, own_key, wanted)
        outbox.acknowledged(tx, peer_no, wanted.after_seq + len(places), 0)
        return places

    patch.setattr(relaying, "offered", both)


def a_stranger_is_taken_for_a_peer(patch: pytest.MonkeyPatch) -> None:
    connected = links.Links.connected

    def some(self: links.Links, key_id: str, wire: linkstate.Wire, *, is_ours: bool) -> Any:
        known = [peer.row.key_id for peer in self._peers.values()]
        taken = key_id if key_id in known or not known else known[0]
        return connected(self, taken, wire, is_ours=is_ours)

    patch.setattr(links.Links, "connected", some)


DEFECTS: Final = (
    Defect(what_was_handed_over_counts_as_read, ("I12",)),
    Defect(what_is_offered_counts_as_acknowledged, ("I16",)),
    Defect(a_stranger_is_taken_for_a_peer, ("I20",)),
    Defect(what_is_read_is_told_to_nobody, ("I12",)),
    Defect(what_was_handed_to_a_link_is_given_up_too, ("I12",)),
    Defect(an_acknowledgement_is_not_kept, ("I16",)),
    Defect(it_is_acknowledged_before_it_is_committed, ("I1", "I16", "I20")),
    Defect(the_head_does_not_run, ("I16", "I20")),
    Defect(mail_that_came_is_forgotten, ("I1",)),
)


def test_receipts_streams_and_strangers_have_planted_defects() -> None:
    told = {invariant for defect in DEFECTS for invariant in defect.told_by}
    assert {"I12", "I16", "I20"} <= told


@pytest.mark.long
@pytest.mark.timeout(120)
@pytest.mark.parametrize("defect", DEFECTS, ids=lambda one: one.plant.__name__)
def test_the_seeds_find_the_planted_defect(
    defect: Defect,
    monkeypatch: pytest.MonkeyPatch,
    publish_defect: Callable[[str, int], None],
) -> None:
    defect.plant(monkeypatch)
    for seed in range(CI_SEEDS):
        _, found = _finished(seed)
        told = {line.split()[0] for line in found} & set(defect.told_by)
        if told:
            name = defect.plant.__name__.replace("_", " ")
            publish_defect(f"{min(told):4} hosts: {name}", seed + 1)
            return
    pytest.fail("no seed found it")
