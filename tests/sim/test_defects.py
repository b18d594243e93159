"""Each planted defect is found by its invariant within the seeds of CI."""

from collections.abc import Callable

import pytest

from tests.sim.checker import INVARIANTS, violations
from tests.sim.defects import DEFECTS, UNREPEATABLE, Defect, Plant
from tests.sim.owner_defects import OWNER_DEFECTS
from tests.sim.scene import play
from tests.sim.totals import SEEDS

ALL = (*DEFECTS, *OWNER_DEFECTS)


@pytest.mark.long
@pytest.mark.timeout(120)
@pytest.mark.parametrize("defect", ALL, ids=lambda one: f"{one.found_by} {one.name}")
def test_the_planted_defect_is_found(
    defect: Defect, monkeypatch: pytest.MonkeyPatch, publish_defect: Callable[[str, int], None]
) -> None:
    defect.plant(monkeypatch)
    for seed in range(SEEDS):
        if violations(play(seed).case).get(defect.found_by):
            publish_defect(f"{defect.found_by:4} {defect.name}", seed + 1)
            return
    pytest.fail(f"{defect.name}: not found by {defect.found_by} within {SEEDS} seeds")


@pytest.mark.parametrize("plant", UNREPEATABLE, ids=lambda plant: plant.__name__)
def test_a_defect_that_makes_runs_differ_is_found_by_playing_twice(
    plant: Plant, monkeypatch: pytest.MonkeyPatch, publish_defect: Callable[[str, int], None]
) -> None:
    plant(monkeypatch)
    found = [seed for seed in range(5) if play(seed).trace != play(seed).trace]
    assert found
    publish_defect(f"I22  {plant.__name__.replace('_', ' ')}", found[0] + 1)


def test_every_invariant_has_a_planted_defect() -> None:
    assert {defect.found_by for defect in ALL} == set(INVARIANTS)
