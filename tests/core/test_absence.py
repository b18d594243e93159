"""Whether a host was there all along: by the wall clock, whatever the steady one did."""

import pytest

from mbx.core.absence import Presence
from mbx.core.limits import ABSENCE_MIN_MS, BACK_MIN_MS

START_MS, STEADY_MS = 1_700_000_000_000, 5_000


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_a_host_that_starts_tries_for_a_while(over: int) -> None:
    begun = Presence(START_MS, STEADY_MS)
    assert begun.has_tried(STEADY_MS + BACK_MIN_MS + over) == (over >= 0)


@pytest.mark.parametrize("over", [-1, 0, 1])
@pytest.mark.parametrize("steady", ["stood", "went on"])
def test_a_host_that_was_not_there_begins_to_try_anew(over: int, steady: str) -> None:
    away_ms = ABSENCE_MIN_MS + over
    back_ms = STEADY_MS + BACK_MIN_MS + (away_ms if steady == "went on" else 0)
    back = Presence(START_MS, STEADY_MS).look(START_MS + away_ms, back_ms)
    assert back.has_tried(back_ms) == (over < 0)
    assert back.has_tried(back_ms + BACK_MIN_MS)


def test_looks_a_minute_apart_and_a_clock_that_is_set_back_miss_nothing() -> None:
    seen = Presence(START_MS, STEADY_MS)
    for minute in range(1, 11):
        seen = seen.look(START_MS + minute * 60_000, STEADY_MS + minute * 60_000)
    back = seen.look(START_MS - 86_400_000, STEADY_MS + 660_000)
    assert seen.has_tried(STEADY_MS + 600_000)
    assert back.has_tried(STEADY_MS + 660_000)
