"""The brake on waking: limits at -1, 0 and +1, and what follows each outcome."""

import pytest

from mbx.core import brake
from mbx.core.brake import OPEN, OUTCOMES, SPENDING, Verdict, Waiting
from mbx.core.limits import (
    WAKE_DAY_MS,
    WAKE_GAP_MS,
    WAKE_RETRY_MAX_MS,
    WAKE_THREAD_MS,
    WAKES_OF_DAY_MAX,
    WAKES_OF_THREAD_MAX,
)

NOW = 10 * WAKE_DAY_MS


def spread(count: int, first_ms: int) -> list[int]:
    """So many wakes, as close as the brake lets them be."""
    return [first_ms + number * WAKE_GAP_MS for number in range(count)]


def test_who_was_never_woken_may_be() -> None:
    assert brake.of_mailbox([], NOW) == OPEN
    assert OPEN.is_open


@pytest.mark.parametrize(("ago_ms", "is_open"), [(-1, False), (0, True), (1, True)])
def test_one_mailbox_is_woken_once_in_its_gap(ago_ms: int, is_open: bool) -> None:
    last_ms = NOW - WAKE_GAP_MS - ago_ms
    verdict = brake.of_mailbox([last_ms], NOW)
    assert verdict == (OPEN if is_open else Verdict(last_ms + WAKE_GAP_MS, "gap"))


@pytest.mark.parametrize(("more", "is_open"), [(-1, True), (0, False), (1, False)])
def test_one_mailbox_is_woken_so_many_times_a_day(more: int, is_open: bool) -> None:
    first_ms = NOW - WAKE_DAY_MS + WAKE_GAP_MS
    wakes = spread(WAKES_OF_DAY_MAX + more, first_ms)
    verdict = brake.of_mailbox(wakes, NOW)
    assert verdict.is_open is is_open
    if not is_open:
        assert verdict == Verdict(wakes[-WAKES_OF_DAY_MAX] + WAKE_DAY_MS, "day")


@pytest.mark.parametrize(("ago_ms", "is_open"), [(-1, False), (0, True), (1, True)])
def test_the_day_is_over_to_the_millisecond(ago_ms: int, is_open: bool) -> None:
    wakes = spread(WAKES_OF_DAY_MAX, NOW - WAKE_DAY_MS - ago_ms)
    assert brake.of_mailbox(wakes, NOW).is_open is is_open


@pytest.mark.parametrize(("more", "is_open"), [(-1, True), (0, False), (1, False)])
def test_of_one_thread_so_many_messages_wake_in_an_hour(more: int, is_open: bool) -> None:
    woke = {no: NOW - no for no in range(1, WAKES_OF_THREAD_MAX + more + 1)}
    verdict = brake.of_thread(woke, None, NOW)
    assert verdict.is_open is is_open
    if not is_open:
        last_that_counts = sorted(woke.values())[-WAKES_OF_THREAD_MAX]
        assert verdict == Verdict(last_that_counts + WAKE_THREAD_MS, "thread")


@pytest.mark.parametrize(("ago_ms", "is_open"), [(-1, False), (0, True), (1, True)])
def test_the_hour_of_a_thread_is_over_to_the_millisecond(ago_ms: int, is_open: bool) -> None:
    woke = dict.fromkeys(range(WAKES_OF_THREAD_MAX), NOW - WAKE_THREAD_MS - ago_ms)
    assert brake.of_thread(woke, None, NOW).is_open is is_open


def test_a_message_that_woke_one_recipient_may_wake_the_others() -> None:
    woke = dict.fromkeys(range(WAKES_OF_THREAD_MAX), NOW)
    assert brake.of_thread(woke, 0, NOW).is_open
    assert not brake.of_thread(woke, WAKES_OF_THREAD_MAX, NOW).is_open


def test_of_each_open_thread_the_newest_message_is_the_cause() -> None:
    closed = dict.fromkeys(range(100, 100 + WAKES_OF_THREAD_MAX), NOW)
    waiting = [Waiting(1, "a"), Waiting(2, "closed"), Waiting(3, "a"), Waiting(4, "b")]
    found = brake.causes(waiting, {"closed": closed, "b": {}}, NOW)
    assert found == [Waiting(3, "a"), Waiting(4, "b")]


def test_mail_of_closed_threads_alone_waits_for_the_first_of_them_to_open() -> None:
    early = dict.fromkeys(range(WAKES_OF_THREAD_MAX), NOW - 1000)
    late = dict.fromkeys(range(WAKES_OF_THREAD_MAX), NOW)
    threads = {"early": early, "late": late}
    waiting = [Waiting(100, "late"), Waiting(101, "early")]
    expected = Verdict(NOW - 1_000 + WAKE_THREAD_MS, "thread")
    assert brake.of_mail([], waiting, threads, NOW) == expected
    assert brake.of_mail([NOW], waiting, threads, NOW) == expected


def test_mail_of_an_open_thread_waits_for_the_mailbox_alone() -> None:
    waiting = [Waiting(100, "new")]
    assert brake.of_mail([], waiting, {}, NOW) == OPEN
    assert brake.of_mail([NOW], waiting, {}, NOW) == Verdict(NOW + WAKE_GAP_MS, "gap")


def test_a_ring_of_agents_in_one_thread_ends() -> None:
    """However many mailboxes it goes round through: each answer is a message of the thread."""
    woke: dict[int, int] = {}
    now_ms, no = NOW, 0
    while brake.of_thread(woke, no, now_ms).is_open:
        woke[no] = now_ms
        now_ms, no = now_ms + 1_000, no + 1
    assert no == WAKES_OF_THREAD_MAX


def test_only_what_may_have_woken_somebody_counts() -> None:
    assert set(OUTCOMES) - SPENDING == {"busy", "blocked", "failed"}


def test_who_is_busy_is_left_alone_longer_each_time_up_to_a_bound() -> None:
    pauses = [brake.pause_ms("busy", tries) for tries in range(1, 9)]
    assert pauses[:3] == [WAKE_GAP_MS, 2 * WAKE_GAP_MS, 4 * WAKE_GAP_MS]
    assert pauses == sorted(pauses)
    assert pauses[-1] == brake.pause_ms("failed", 1_000) == WAKE_RETRY_MAX_MS


@pytest.mark.parametrize("outcome", ["unknown", "blocked"])
def test_what_is_not_known_or_never_taken_is_left_alone_for_the_longest_time(outcome: str) -> None:
    [known] = [one for one in OUTCOMES if one == outcome]
    assert brake.pause_ms(known, 1) == WAKE_RETRY_MAX_MS


def test_a_wake_that_was_taken_leaves_the_rest_to_the_brake() -> None:
    assert brake.pause_ms("admitted", 1) == 0
