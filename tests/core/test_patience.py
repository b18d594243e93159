"""How often a paired host may call."""

import pytest

from mbx.core.limits import CALL_BREACH_MS, CALL_CREDIT_MS, CALL_MS
from mbx.core.patience import after_breach, after_call, may_call

NOW_MS = 1_000_000


@pytest.mark.parametrize(("beyond_ms", "is_let_in"), [(-1, True), (0, True), (1, False)])
def test_who_has_used_up_the_credit_is_not_let_in(beyond_ms: int, *, is_let_in: bool) -> None:
    assert may_call(NOW_MS + CALL_CREDIT_MS + beyond_ms, NOW_MS) is is_let_in


def test_calls_use_up_the_credit_and_time_gives_it_back() -> None:
    due_ms, calls = 0, 0
    while may_call(due_ms, NOW_MS):
        due_ms, calls = after_call(due_ms, NOW_MS), calls + 1
    assert calls == CALL_CREDIT_MS // CALL_MS + 1
    assert not may_call(due_ms, NOW_MS + CALL_MS - 1)
    assert may_call(due_ms, NOW_MS + CALL_MS)


def test_whoever_calls_no_oftener_than_it_earns_is_always_let_in() -> None:
    due_ms = 0
    for now_ms in range(NOW_MS, NOW_MS + 1_000 * CALL_MS, CALL_MS):
        assert may_call(due_ms, now_ms)
        due_ms = after_call(due_ms, now_ms)
    assert due_ms == now_ms + CALL_MS


def test_a_breach_costs_twenty_calls_and_never_more_than_the_time_it_stands_for() -> None:
    assert after_breach(0, NOW_MS) == NOW_MS + CALL_BREACH_MS == NOW_MS + 20 * CALL_MS
    assert after_breach(NOW_MS + 7, NOW_MS) == NOW_MS + 7 + CALL_BREACH_MS
    due_ms, calls = 0, 0
    while may_call(due_ms, NOW_MS):
        due_ms, calls = after_breach(after_call(due_ms, NOW_MS), NOW_MS), calls + 1
    assert calls == 3
    assert may_call(due_ms, NOW_MS + CALL_MS + CALL_BREACH_MS)
