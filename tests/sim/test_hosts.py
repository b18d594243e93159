"""Several hosts in one seeded world: nothing is lost, doubled, invented or told wrongly.

The checker is shown bad histories first, and must find the defects that are planted in mbx.
"""

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pytest

from mbx.core.delivery import Stage
from mbx.daemon import links, receipting, relaying
from mbx.daemon.context import Answer, Context
from mbx.store import outbox
from mbx.store.database import Tx
from tests.sim.hosts import World, play
from tests.sim.relays import Copy, Held, Stream, problems

SEEDS: Final = int(os.environ.get("MBX_HOSTS_SEEDS", "150"))
LEAST: Final = {
    "accepted": 500,
    "deaths": 40,
    "cuts": 100,
    "lost texts": 60,
    "full disks": 60,
    "failed dials": 300,
    "texts": 4_000,
    "days apart": 30,
    "crossed": 200,
    "returned": 5,
}
"""Of how much the seeds together must have met, at 150 of them."""


def _finished(seed: int) -> tuple[World, list[str]]:
    world = play(seed)
    found = world.problems()
    for host in world.hosts:
        host.desk.close()
    return world, found


@pytest.mark.long
@pytest.mark.timeout(300)
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
    publish_counts("simulation of several hosts", met)
    assert broken == {}
    short = {name: met[name] for name, least in LEAST.items() if met[name] * 150 < least * SEEDS}
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

    def some(context: Context, tx: Tx, record: Any, *rest: Any) -> None:
        if record.digest[0] % 16:
            deliver(context, tx, record, *rest)

    patch.setattr(relaying, "_deliver", some)


DEFECTS: Final = (
    Defect(what_is_read_is_told_to_nobody, ("I12",)),
    Defect(what_was_handed_to_a_link_is_given_up_too, ("I12",)),
    Defect(an_acknowledgement_is_not_kept, ("I16",)),
    Defect(it_is_acknowledged_before_it_is_committed, ("I1", "I16", "I20")),
    Defect(the_head_does_not_run, ("I16", "I20")),
    Defect(mail_that_came_is_forgotten, ("I1",)),
)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("defect", DEFECTS, ids=lambda one: one.plant.__name__)
def test_the_seeds_find_the_planted_defect(
    defect: Defect,
    monkeypatch: pytest.MonkeyPatch,
    publish_defect: Callable[[str, int], None],
) -> None:
    defect.plant(monkeypatch)
    for seed in range(SEEDS):
        world = play(seed)
        found = {line.split()[0] for line in world.problems()}
        for host in world.hosts:
            host.desk.close()
        if found & set(defect.told_by):
            publish_defect(f"hosts: {defect.plant.__name__.replace('_', ' ')}", seed + 1)
            return
    pytest.fail("no seed found it")
