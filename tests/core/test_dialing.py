"""Who dials, when again, and which of two links stays: decided alike at both ends."""

import itertools
import random
from collections.abc import Callable

import pytest

from mbx.core.dialing import FUTILE, Dialling, Initiative, initiative, newer_stays
from mbx.core.limits import (
    REDIAL_MAX_MS,
    REDIAL_REFUSED_MS,
    REDIAL_WOKEN_MS,
    STABLE_LINK_MS,
    STAND_BY_MS,
)

SMALL, GREAT = "0" * 26, "z" * 26
LEAST, MOST = bytes(4), b"\xff" * 4
"""Chance that draws no pause at all, and the longest one."""


# --- who dials -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "theirs", "we_can", "they_can", "what"),
    [
        (SMALL, GREAT, True, True, "dial"),
        (SMALL, GREAT, True, None, "dial"),
        (SMALL, GREAT, True, False, "dial"),
        (GREAT, SMALL, True, True, "stand-by"),
        (GREAT, SMALL, True, None, "stand-by"),
        (GREAT, SMALL, True, False, "dial"),
        (SMALL, GREAT, False, True, "wait"),
        (GREAT, SMALL, False, None, "wait"),
        (SMALL, GREAT, False, False, "wait"),
    ],
)
def test_the_smaller_key_id_dials_or_the_only_one_that_can(
    ours: str, theirs: str, we_can: bool, they_can: bool | None, what: Initiative
) -> None:
    assert initiative(ours, theirs, we_can=we_can, they_can=they_can) == what


@pytest.mark.parametrize(("a_can", "b_can"), list(itertools.product([True, False], repeat=2)))
def test_of_two_that_know_of_each_other_exactly_one_dials(a_can: bool, b_can: bool) -> None:
    told = [
        initiative(SMALL, GREAT, we_can=a_can, they_can=b_can),
        initiative(GREAT, SMALL, we_can=b_can, they_can=a_can),
    ]
    assert told.count("dial") == (1 if a_can or b_can else 0)


# --- which link stays ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("older_is_a", "newer_is_a"), list(itertools.product([True, False], repeat=2))
)
def test_both_ends_keep_the_same_of_two_links(older_is_a: bool, newer_is_a: bool) -> None:
    """Both links are dialled by one of A (the smaller id) and B; both ends see both of them."""
    at_a = newer_stays(SMALL, GREAT, older_is_ours=older_is_a, newer_is_ours=newer_is_a)
    at_b = newer_stays(GREAT, SMALL, older_is_ours=not older_is_a, newer_is_ours=not newer_is_a)
    assert at_a == at_b
    assert at_a is (newer_is_a or not older_is_a)


def test_of_crossing_links_both_ends_keep_the_same_whichever_they_saw_first() -> None:
    """A dials one, B dials another; each end meets its own first."""
    a_keeps_its_own = not newer_stays(SMALL, GREAT, older_is_ours=True, newer_is_ours=False)
    b_keeps_its_own = not newer_stays(GREAT, SMALL, older_is_ours=True, newer_is_ours=False)
    assert (a_keeps_its_own, b_keeps_its_own) == (True, False)


# --- when ----------------------------------------------------------------------------------------


def test_who_dials_begins_at_once_who_stands_by_a_moment_later_who_waits_never() -> None:
    assert Dialling.begin("dial", 7).due_ms == 7
    assert Dialling.begin("stand-by", 7).due_ms == 7 + STAND_BY_MS
    assert Dialling.begin("wait", 7).due_ms is None


def test_before_the_first_link_nobody_stands_by_and_after_it_as_ever() -> None:
    first = Dialling.begin("stand-by", 7, is_first=True)
    assert first.due_ms == 7
    failed = first.trying(7).failed("not-paired", 7, MOST)
    assert failed.due_ms == 7 + 1_000
    assert Dialling.begin("wait", 7, is_first=True).due_ms is None
    assert first.stood(9).ended("lost", 10, LEAST).due_ms == 10 + STAND_BY_MS


def test_once_both_have_recorded_the_pairing_a_try_is_due_and_pauses_start_again() -> None:
    state = Dialling.begin("stand-by", 0, is_first=True)
    for _ in range(6):
        assert state.due_ms is not None
        state = state.trying(state.due_ms).failed("not-paired", state.due_ms, MOST)
    assert state.due_ms is not None
    now_ms = state.due_ms - 20_000
    assert (state.paired(now_ms).due_ms, state.paired(now_ms).failures) == (now_ms, 0)
    trying = state.trying(state.due_ms).paired(now_ms)
    assert (trying.due_ms, trying.is_trying) == (None, True)
    assert trying.failed("not-paired", now_ms, MOST).due_ms == now_ms + 1_000
    assert state.stood(5).paired(6).due_ms is None
    assert Dialling.begin("wait", 0, is_first=True).paired(6).due_ms is None


def test_there_is_one_try_at_a_time() -> None:
    trying = Dialling.begin("dial", 0).trying(0)
    assert trying.due_ms is None
    for state in (trying, trying.stood(1), trying.woken(2), Dialling.begin("wait", 0)):
        with pytest.raises(ValueError, match="no try is due"):
            state.trying(10**9)
    with pytest.raises(ValueError, match="no try is due"):
        Dialling.begin("stand-by", 0).trying(STAND_BY_MS - 1)


def pauses(what: Initiative, chance: Callable[[], bytes], count: int) -> list[int]:
    """The pauses after so many failed tries in a row."""
    state, found = Dialling.begin(what, 0), []
    for _ in range(count):
        assert state.due_ms is not None
        now_ms = state.due_ms
        state = state.trying(now_ms).failed("unreachable", now_ms, chance())
        assert state.due_ms is not None
        found.append(state.due_ms - now_ms)
    return found


def test_pauses_grow_to_a_minute_and_are_drawn_anew_each_time() -> None:
    assert pauses("dial", lambda: MOST, 8) == [1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000]
    assert pauses("dial", lambda: LEAST, 3) == [0, 0, 0]
    chance = random.Random(1)
    assert len(set(pauses("dial", lambda: chance.randbytes(4), 50))) > 45


def test_who_stands_by_leaves_the_other_a_moment_each_time() -> None:
    assert pauses("stand-by", lambda: LEAST, 3) == [STAND_BY_MS] * 3


@pytest.mark.parametrize(
    ("stood_for_ms", "bound_ms"), [(STABLE_LINK_MS - 1, 8_000), (STABLE_LINK_MS, 1_000)]
)
def test_pauses_start_again_only_after_a_link_that_stood_for_a_while(
    stood_for_ms: int, bound_ms: int
) -> None:
    state = Dialling.begin("dial", 0)
    for _ in range(3):
        assert state.due_ms is not None
        state = state.trying(state.due_ms).failed("unreachable", state.due_ms, LEAST)
    state = state.trying(0).stood(100)
    assert state.due_ms is None
    state = state.ended("lost", 100 + stood_for_ms, MOST)
    assert state.due_ms == 100 + stood_for_ms + bound_ms


@pytest.mark.parametrize("code", sorted(FUTILE))
def test_after_a_refusal_that_time_does_not_heal_it_is_tried_hourly(code: str) -> None:
    state = Dialling.begin("dial", 0).trying(0)
    assert state.failed(code, 0, LEAST).due_ms == REDIAL_REFUSED_MS
    assert state.stood(0).ended(code, 50, LEAST).due_ms == 50 + REDIAL_REFUSED_MS


def test_what_time_does_not_heal_is_known_by_the_codes_of_links() -> None:
    assert {"unpaired", "version-mismatch", "fork", "rollback-of-peer"} <= FUTILE
    assert "wrong-host" not in FUTILE  # nobody has proved anything who shows another certificate
    assert not {"lost", "timeout", "stopping", "other-link", "malformed", "go-on"} & FUTILE


@pytest.mark.parametrize("code", ["unreachable", "unpaired"])
def test_a_sign_of_life_makes_the_next_try_due_at_once(code: str) -> None:
    state = Dialling.begin("dial", 0).trying(0).failed(code, 0, MOST)
    assert state.woken(5_000).due_ms == min(5_000, state.due_ms or 0)
    assert state.woken(400).due_ms == REDIAL_WOKEN_MS
    assert state.woken(10**9).due_ms == state.due_ms


def test_a_sign_of_life_during_a_try_counts_for_the_next_one_if_that_fails() -> None:
    trying = Dialling.begin("dial", 0).trying(0).woken(5)
    assert trying.failed("unreachable", 10, MOST).due_ms == REDIAL_WOKEN_MS
    assert trying.failed("unreachable", 5_000, MOST).due_ms == 5_000
    again = trying.failed("unreachable", 10, MOST).trying(REDIAL_WOKEN_MS)
    assert again.failed("unreachable", REDIAL_WOKEN_MS, MOST).due_ms == REDIAL_WOKEN_MS + 2_000
    stood = trying.stood(20).ended("lost", 30, MOST)
    assert stood.due_ms == 1_030
    assert stood.trying(1_030).failed("lost", 1_030, MOST).due_ms == 3_030


def test_signs_of_life_without_end_give_one_try_a_second_and_pauses_that_grow() -> None:
    state, tries = Dialling.begin("dial", 0), 0
    for now_ms in range(0, 20_000, 10):
        state = state.woken(now_ms)
        if state.due_ms is not None and state.due_ms <= now_ms:
            tries += 1
            state = state.trying(now_ms).failed("unreachable", now_ms, MOST)
    assert tries == 20
    assert state.failures == 20


def test_who_waits_is_not_woken_and_a_running_try_is_not_doubled() -> None:
    assert Dialling.begin("wait", 0).woken(5).due_ms is None
    assert Dialling.begin("dial", 0).trying(0).woken(5).due_ms is None
    assert Dialling.begin("dial", 0).trying(0).stood(1).woken(5).due_ms is None


def test_a_link_that_the_peer_dialled_ends_our_own_trying() -> None:
    state = Dialling.begin("dial", 0).trying(0).stood(3)
    assert state.failed("other-link", 4, MOST).due_ms is None
    assert state.failed("other-link", 4, MOST).stood_ms == 3
    assert state.failed("other-link", 4, MOST).failures == 0


def test_the_end_of_what_did_not_stand_changes_nothing() -> None:
    idle = Dialling.begin("dial", 0)
    assert idle.ended("lost", 5, MOST) == idle
    assert idle.failed("lost", 5, MOST) == idle


def test_a_new_address_is_tried_at_once_but_not_beside_a_try_or_a_link() -> None:
    waiting = Dialling.begin("wait", 0)
    assert waiting.knowing("dial", 9).due_ms == 9
    assert waiting.knowing("stand-by", 9).due_ms == 9 + STAND_BY_MS
    paused = Dialling.begin("dial", 0).trying(0).failed("unpaired", 0, MOST)
    assert paused.knowing("dial", 5_000).due_ms == 5_000
    assert paused.knowing("dial", 5).due_ms == 5
    assert paused.knowing("wait", 5_000).due_ms is None
    trying = Dialling.begin("dial", 0).trying(0)
    assert trying.knowing("wait", 5).knowing("dial", 6).due_ms is None
    assert trying.stood(1).knowing("dial", 5).due_ms is None
    assert trying.knowing("wait", 5).failed("lost", 6, MOST).due_ms is None


def test_no_history_of_events_gives_two_tries_at_once_or_a_longer_pause_than_is_said() -> None:
    longest = REDIAL_REFUSED_MS + STAND_BY_MS
    tries = 0
    for seed in range(200):
        chance = random.Random(seed)
        state, now_ms, running = Dialling.begin("dial", 0), 0, False
        for _ in range(60):
            now_ms += chance.choice([0, 10, 1_000, 20_000])
            event = chance.randrange(7)
            code = chance.choice(["lost", "unreachable", "unpaired"])
            if state.due_ms is not None and state.due_ms <= now_ms:
                assert not running
                state, running = state.trying(now_ms), True
                tries += 1
            elif event == 0 and running:
                state, running = state.failed(code, now_ms, chance.randbytes(4)), False
            elif event == 1:
                state, running = state.stood(now_ms), False
            elif event == 2:
                state = state.ended(code, now_ms, chance.randbytes(4))
            elif event == 3:
                state = state.woken(now_ms)
            elif event == 4:
                what: Initiative = chance.choice(["dial", "stand-by", "wait"])
                state = state.knowing(what, now_ms)
            if state.due_ms is not None:
                assert state.due_ms <= now_ms + longest
                assert state.stood_ms is None
            elif state.stood_ms is None and not running:
                assert state.initiative == "wait"
    assert tries > 500
    assert longest > REDIAL_MAX_MS
