"""A paired host that keeps no rule, against a real daemon: one move, and all that must still hold.

Each move has a rogue of its own, with keys, a pairing and a link over TLS, so that none of them
knows of another.
"""

from collections.abc import Iterator
from typing import Final

import pytest

from mbx.core.limits import (
    CALL_BREACH_MS,
    CALL_CREDIT_MS,
    CALL_MS,
    DIRECTORY_ENTRIES_MAX,
    PEER_IDENTITIES_MAX,
)
from tests.support.byzantine import (
    MEMORY_GROWTH_MAX_KIB,
    RealStage,
    real_stage,
    refusals,
)
from tests.support.moves import Move, play
from tests.support.moves_of_records import EVERY, digest_of
from tests.support.network import monotonic_ms
from tests.support.rogue import Rogue, Turned


@pytest.fixture(scope="module", name="stage")
def stage_of_module() -> Iterator[RealStage]:
    with real_stage([*(digest_of(move) for move in EVERY), CALLER]) as stage:
        yield stage


CALLER: Final = "rogue-that-calls"
CROWD: Final = "rogue-of-many"
GROWTH_MAX_BYTES: Final = 512 * 1024
"""Of the store, by 15,000 changes of states: what is kept of them has room in what is there."""


@pytest.mark.parametrize("move", EVERY, ids=lambda move: move.name)
def test_a_move_of_a_rogue_changes_nothing_that_it_may_not(stage: RealStage, move: Move) -> None:
    rogue = stage.rogue(digest_of(move))
    try:
        play(stage, rogue, move)
    finally:
        rogue.hang_up()
    assert stage.daemon.resident_kib() - stage.memory_kib <= MEMORY_GROWTH_MAX_KIB


def test_whoever_sends_nonsense_again_and_again_is_soon_not_let_in(stage: RealStage) -> None:
    rogue = stage.rogue(CALLER)
    began_ms = monotonic_ms()
    stage.introduce(rogue)
    times: list[str | None] = []
    with pytest.raises(Turned, match="503"):
        nonsense_for_ever(rogue, times)
    # Whoever takes long over it has earned a call more meanwhile.
    credit_ms = CALL_CREDIT_MS + monotonic_ms() - began_ms
    assert 1 <= len(times) <= credit_ms // (CALL_MS + CALL_BREACH_MS) + 1
    assert set(times) == {"malformed"}
    stage.prove_honest()
    rogue.hang_up()


def nonsense_for_ever(rogue: Rogue, times: list[str | None]) -> None:
    """Until it is not let in any more; what it was told each time."""
    nonsense = '{"type":"put","seq":1,"records":[' + "[]," * 600_000 + "[]]}"
    while True:
        rogue.say_text(nonsense)
        times.append(rogue.end())
        rogue.stand()


def test_ten_thousand_identities_and_no_more_and_no_growth_by_changes() -> None:
    with real_stage([CROWD]) as stage:
        rogue = stage.rogue(CROWD)
        try:
            crowd(stage, rogue)
        finally:
            rogue.hang_up()


def crowd(stage: RealStage, rogue: Rogue) -> None:
    """All that it may tell of, and more, and changes of it."""
    stage.introduce(rogue)
    tell(rogue, PEER_IDENTITIES_MAX - 1, "live")  # besides rob
    stage.prove(rogue)
    assert refusals(rogue) == []
    full = store_bytes(stage)
    rogue.offer(rogue.directory(rogue.entry("one-too-many")))
    for state in ("idle", "live", "offline"):
        tell(rogue, 5_000, state)
        stage.prove_honest()
    stage.prove(rogue)
    assert refusals(rogue) == ["too-many"]
    assert store_bytes(stage) - full <= GROWTH_MAX_BYTES


def tell(rogue: Rogue, count: int, state: str) -> None:
    """Directories of so many, as many in a frame as fit into a window."""
    for first in range(0, count, DIRECTORY_ENTRIES_MAX):
        last = min(first + DIRECTORY_ENTRIES_MAX, count)
        some = [rogue.entry(f"pat-{number:04}", state=state) for number in range(first, last)]
        rogue.put(rogue.directory(*some))
        rogue.wait_for(len(rogue.places) - 8)
    rogue.wait_for(len(rogue.places))


def store_bytes(stage: RealStage) -> int:
    """Of the store itself; its log is bounded by its own rule."""
    size = stage.call("", "daemon.health")["store_bytes"]
    assert isinstance(size, int)
    return size
