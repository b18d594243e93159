"""Pauses between tries: bounds that double, and every length below them."""

import random

import pytest

from mbx.core.backoff import bound_ms, pause_ms


def test_the_bound_doubles_from_one_second_to_sixty() -> None:
    assert [bound_ms(failures) for failures in range(1, 10)] == [
        1_000,
        2_000,
        4_000,
        8_000,
        16_000,
        32_000,
        60_000,
        60_000,
        60_000,
    ]


@pytest.mark.parametrize("failures", [100, 10**6, 10**18])
def test_however_many_failures_the_bound_stays_and_costs_nothing(failures: int) -> None:
    assert bound_ms(failures) == 60_000


def test_before_any_failure_the_bound_is_the_first() -> None:
    assert bound_ms(0) == 1_000


@pytest.mark.parametrize("failures", [1, 3, 7])
@pytest.mark.parametrize("size", [4, 5, 16])
def test_a_pause_is_anything_from_nothing_to_the_bound(failures: int, size: int) -> None:
    assert pause_ms(failures, bytes(size)) == 0
    assert pause_ms(failures, b"\xff" * size) == bound_ms(failures)


def test_the_pauses_are_spread_over_the_whole_range() -> None:
    chance = random.Random(1)
    tenths = [0] * 10
    for _ in range(10_000):
        tenths[min(pause_ms(7, chance.randbytes(4)) // 6_000, 9)] += 1
    assert min(tenths) > 850
    assert max(tenths) < 1_150


def test_too_little_chance_is_refused() -> None:
    with pytest.raises(ValueError, match="32 random bits"):
        pause_ms(1, b"\0" * 3)
