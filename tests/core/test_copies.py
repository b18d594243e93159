"""What proves that a paired host runs twice, and everything that proves nothing of the kind."""

from typing import Final

import pytest

from mbx.core.copies import Meeting, Parting, are_two_runs, finding
from mbx.core.limits import PARTED_TOLD_MS
from mbx.core.streams import COPIED, STOPS, Kind

NOW_MS: Final = 10 * PARTED_TOLD_MS
OF_PEER: Final[tuple[Kind, ...]] = ("another-store", "unknown-stream", "fork", "rollback-of-peer")
OF_US: Final[tuple[Kind, ...]] = ("rollback-of-us", "copies-of-us")


def parting(kind: str = "rollback-of-peer", ago_ms: int = 1, *, stood: bool = True) -> Parting:
    return Parting(kind, NOW_MS - ago_ms, stood_since=stood)


@pytest.mark.parametrize("kind", [*STOPS, *OF_US])
def test_the_first_stop_is_what_the_streams_say(kind: Kind) -> None:
    assert finding(kind, None, NOW_MS, is_ours=True) == kind


@pytest.mark.parametrize("kind", OF_PEER)
@pytest.mark.parametrize("before", OF_PEER)
def test_a_stop_after_a_stop_and_a_link_between_them_is_two_stores_in_turns(
    kind: Kind, before: Kind
) -> None:
    assert finding(kind, parting(before), NOW_MS, is_ours=True) == COPIED


@pytest.mark.parametrize("kind", OF_PEER)
def test_a_stop_that_is_found_again_at_the_next_try_is_none(kind: Kind) -> None:
    """A store that was put back and is dialled each hour until it is put right."""
    assert finding(kind, parting(kind, stood=False), NOW_MS, is_ours=True) == kind


@pytest.mark.parametrize("ours", OF_US)
def test_a_store_of_our_own_that_was_put_back_says_nothing_of_the_peer(ours: Kind) -> None:
    assert finding(ours, parting("rollback-of-peer"), NOW_MS, is_ours=True) == ours
    assert finding("rollback-of-peer", parting(ours), NOW_MS, is_ours=True) == "rollback-of-peer"


@pytest.mark.parametrize(
    ("past_ms", "found"), [(-1, COPIED), (0, "rollback-of-peer"), (1, "rollback-of-peer")]
)
def test_stops_that_lie_far_apart_are_no_turns(past_ms: int, found: Kind) -> None:
    last = parting(ago_ms=PARTED_TOLD_MS + past_ms)
    assert finding("rollback-of-peer", last, NOW_MS, is_ours=True) == found


@pytest.mark.parametrize(("ago_ms", "found"), [(0, COPIED), (-1, "fork")])
def test_a_stop_of_the_future_is_none_that_counts(ago_ms: int, found: Kind) -> None:
    assert finding("fork", parting(ago_ms=ago_ms), NOW_MS, is_ours=True) == found


@pytest.mark.parametrize("kind", [*STOPS, *OF_US])
def test_what_is_known_stays_so_until_the_owner_acts(kind: Kind) -> None:
    long_ago = parting(COPIED, 2 * PARTED_TOLD_MS, stood=False)
    assert finding(kind, long_ago, NOW_MS, is_ours=True) == COPIED


@pytest.mark.parametrize(
    ("one", "other", "are"),
    [("a", "b", True), ("a", "a", False), (None, "b", False), ("a", None, False)],
)
def test_two_starts_are_told_apart_by_what_they_name(
    one: str | None, other: str | None, are: bool
) -> None:
    assert are_two_runs(one, other) is are
    assert not are_two_runs(None, None)


def test_only_two_answers_prove_two_daemons() -> None:
    met = Meeting()
    assert not met.proves_a_copy
    assert not met.answer("a").proves_a_copy
    assert not met.answer("a").answer("a").proves_a_copy
    assert met.answer("a").answer("b").proves_a_copy


@pytest.mark.parametrize("kind", OF_PEER)
def test_what_the_peer_alone_says_that_it_found_proves_nothing(kind: Kind) -> None:
    assert finding(kind, parting(kind), NOW_MS, is_ours=False) == kind
    held = parting(COPIED, stood=False)
    assert finding(kind, held, NOW_MS, is_ours=False) == COPIED, "nor does it undo a proof"
