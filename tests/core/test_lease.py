"""The lease table, cell by cell, and who may claim."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mbx.core.errors import MbxError
from mbx.core.evidence import Evidence
from mbx.core.lease import (
    LAG_MIN_MS,
    TRANSITIONS,
    Event,
    Lease,
    LeaseState,
    Observation,
    claimable,
    is_renewal_due,
    lag_ms,
    transition,
)
from mbx.core.limits import LEASE_RENEW_MS, LEASE_TIMEOUT_MS, SHARED_TIMEOUT_MS

FREE, HELD, LAPSED = LeaseState.FREE, LeaseState.HELD, LeaseState.LAPSED
EVENTS: tuple[Event, ...] = ("claim", "renew", "release", "takeover", "lapse")


def lease(state: LeaseState, epoch: int = 7) -> Lease:
    return Lease(state, epoch, None if state is FREE else 3, 1_000)


@pytest.mark.parametrize(
    ("state", "event", "after", "epoch"),
    [
        (FREE, "claim", HELD, 8),
        (FREE, "release", FREE, 7),
        (FREE, "takeover", HELD, 8),
        (FREE, "lapse", FREE, 7),
        (HELD, "renew", HELD, 7),
        (HELD, "release", FREE, 7),
        (HELD, "takeover", HELD, 8),
        (HELD, "lapse", LAPSED, 7),
        (LAPSED, "claim", HELD, 8),
        (LAPSED, "renew", HELD, 7),
        (LAPSED, "release", FREE, 7),
        (LAPSED, "takeover", HELD, 8),
        (LAPSED, "lapse", LAPSED, 7),
    ],
)
def test_each_cell_of_the_table_gives_its_state_and_epoch(
    state: LeaseState, event: Event, after: LeaseState, epoch: int
) -> None:
    result = transition(lease(state), event, now_ms=2_000, epoch=7, session_no=9)
    assert (result.state, result.epoch) == (after, epoch)


@pytest.mark.parametrize(
    ("state", "event", "code"), [(FREE, "renew", "lease-lost"), (HELD, "claim", "in-use")]
)
def test_the_cells_that_refuse_say_so(state: LeaseState, event: Event, code: str) -> None:
    with pytest.raises(MbxError) as caught:
        transition(lease(state), event, now_ms=2_000, epoch=7)
    assert caught.value.code == code
    assert caught.value.facts == {"epoch": 7}


def test_the_table_has_a_cell_for_every_state_and_event() -> None:
    assert set(TRANSITIONS) == {(state, event) for state in LeaseState for event in EVENTS}


@pytest.mark.parametrize("state", list(LeaseState))
@pytest.mark.parametrize("event", [event for event in EVENTS if event != "claim"])
@pytest.mark.parametrize("epoch", [6, 8, None])
def test_an_event_of_another_epoch_changes_nothing_in_any_state(
    state: LeaseState, event: Event, epoch: int | None
) -> None:
    with pytest.raises(MbxError) as caught:
        transition(lease(state), event, now_ms=2_000, epoch=epoch)
    assert caught.value.code == ("conflict" if event == "takeover" else "lease-lost")


def test_a_grant_names_its_session_and_moment() -> None:
    assert transition(lease(FREE), "claim", now_ms=2_000, session_no=9) == Lease(HELD, 8, 9, 2_000)


def test_a_renewal_keeps_since_when_it_is_held() -> None:
    assert transition(lease(HELD), "renew", now_ms=2_000, epoch=7) == lease(HELD)


@given(
    st.sampled_from(list(LeaseState)),
    st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(-1, 1)), max_size=30),
)
def test_epochs_never_fall_and_grow_with_each_grant(
    state: LeaseState, events: list[tuple[Event, int]]
) -> None:
    now = lease(state)
    for event, skew in events:
        try:
            after = transition(now, event, now_ms=5, epoch=now.epoch + skew, session_no=1)
        except MbxError:
            continue
        assert after.epoch == now.epoch + (event in {"claim", "takeover"})
        now = after


# -- claimable ------------------------------------------------------------------------------------


def test_free_and_lapsed_identities_are_claimable() -> None:
    assert claimable(lease(FREE), None).ok
    assert claimable(lease(LAPSED), None).ok


def test_a_live_holder_keeps_its_lease_however_long_it_is_silent() -> None:
    seen = Observation(7, "live", silent_ms=1_000 * LEASE_TIMEOUT_MS)
    assert not claimable(lease(HELD), seen).ok


def test_a_dead_holder_is_displaced_at_once() -> None:
    assert claimable(lease(HELD), Observation(7, "dead")).ok


@pytest.mark.parametrize(("early_ms", "ok"), [(1, False), (0, True), (-1, True)])
def test_an_unknown_holder_is_displaced_only_after_the_time_out(early_ms: int, ok: bool) -> None:
    seen = Observation(7, "unknown", silent_ms=LEASE_TIMEOUT_MS - early_ms)
    assert claimable(lease(HELD), seen).ok is ok


def test_what_was_seen_of_another_epoch_says_nothing() -> None:
    assert not claimable(lease(HELD), Observation(6, "dead")).ok
    assert not claimable(lease(HELD), None).ok


@pytest.mark.parametrize(("early_ms", "ok"), [(1, False), (0, True), (-1, True)])
@pytest.mark.parametrize("evidence", ["live", "unknown"])
def test_a_conversation_of_a_shared_process_is_displaced_after_ten_silent_minutes(
    evidence: Evidence, early_ms: int, ok: bool
) -> None:
    seen = Observation(7, evidence, silent_ms=SHARED_TIMEOUT_MS - early_ms, is_shared=True)
    assert claimable(lease(HELD), seen).ok is ok


@pytest.mark.parametrize(
    ("left_ms", "due"),
    [
        (LEASE_TIMEOUT_MS, False),
        (LEASE_RENEW_MS, False),
        (LEASE_RENEW_MS - 1, True),
        (-30 * 86_400_000, True),  # the clock was set a month forward
        (LEASE_TIMEOUT_MS + 1, True),  # or back
    ],
)
def test_a_lease_is_signed_again_in_its_second_half_and_when_it_would_last_too_long(
    left_ms: int, due: bool
) -> None:
    assert is_renewal_due(1_000_000 + left_ms, 1_000_000) is due


@pytest.mark.parametrize("late_ms", [-1, 0, LAG_MIN_MS - 1, LAG_MIN_MS, 86_400_000])
def test_a_daemon_that_is_late_by_far_stood_still(late_ms: int) -> None:
    assert lag_ms(1_000 + late_ms, 1_000) == (late_ms if late_ms >= LAG_MIN_MS else 0)
