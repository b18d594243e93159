"""What a conversation read, and what that makes of what it writes: limits at -1, 0, +1 ms."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mbx.core.exposure import Exposure, Relay, external_since, joined, relay, root_at_reading
from mbx.core.limits import EXPOSURE_MS, HOPS_MAX

NOW = 1_700_000_000_000
HOUR = 60 * 60 * 1000


def read(source: int = 1, **more: Any) -> Exposure:
    return Exposure(source, None, 0, 6, NOW)._replace(**more)


def test_the_hour_is_one_hour() -> None:
    assert EXPOSURE_MS == HOUR


# -- the root -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("origin", "since", "root"),
    [
        (None, None, None),
        ("external", None, NOW),
        ("external", NOW - 5, NOW),
        ("of-a-later-version", None, NOW),
        ("of-a-later-version", NOW - 5, NOW - 5),
        (None, NOW - 5, NOW - 5),
        (None, 0, 0),
        (None, NOW, NOW),
        (None, NOW + 1, NOW),
        (None, -1, NOW),
        (None, "yesterday", NOW),
        (None, True, NOW),
        (None, float(NOW), NOW),
        (None, [], NOW),
        (None, False, NOW),
    ],
)
def test_a_root_that_says_nothing_is_first_hand_as_of_now(
    origin: object, since: object, root: int | None
) -> None:
    assert root_at_reading(origin, since, NOW) == root


@pytest.mark.parametrize(("age_ms", "holds"), [(HOUR - 1, True), (HOUR, False), (HOUR + 1, False)])
def test_what_came_from_outside_sticks_for_one_hour(*, age_ms: int, holds: bool) -> None:
    one = read(root_ms=NOW - age_ms)
    assert external_since([one], None, NOW) == (NOW - age_ms if holds else None)
    assert external_since([one], 7, NOW) == (NOW - age_ms if holds else 7)


def test_the_newest_root_is_signed_and_one_that_is_quoted_never_ends() -> None:
    some = [read(root_ms=NOW - 9), read(root_ms=None), read(root_ms=NOW - 3)]
    assert external_since(some, None, NOW) == NOW - 3
    assert external_since([], 0, NOW) == 0
    assert external_since([], None, NOW) is None


def test_a_root_from_a_clock_that_was_ahead_still_counts() -> None:
    assert external_since([read(root_ms=NOW + HOUR)], None, NOW) == NOW + HOUR


def test_two_who_taint_each_other_come_clean_when_the_hour_ends() -> None:
    known: dict[str, Exposure] = {"a": read(root_ms=NOW)}
    for minute in range(59):
        now_ms = NOW + minute * 60_000
        writer, reader = ("a", "b") if minute % 2 == 0 else ("b", "a")
        since = external_since([known[writer]], None, now_ms)
        assert since == NOW
        root_ms = root_at_reading(None, since, now_ms)
        known[reader] = joined(known.get(reader), read(root_ms=root_ms, read_ms=now_ms))
    assert {external_since([one], None, NOW + HOUR) for one in known.values()} == {None}


# -- joining --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("age_ms", "kept"), [(HOUR - 1, 5), (HOUR, 0), (HOUR + 1, 0)])
def test_an_older_reading_counts_for_an_hour(age_ms: int, kept: int) -> None:
    assert joined(read(hop=5, read_ms=NOW - age_ms), read()).hop == kept


exposures = st.builds(
    Exposure,
    st.just(1),
    st.none() | st.integers(NOW - HOUR, NOW),
    st.integers(0, 30),
    st.none() | st.integers(0, 20),
    st.integers(NOW - HOUR + 1, NOW),
)


@given(exposures, exposures)
def test_of_two_readings_the_worse_counts(known: Exposure, fresh: Exposure) -> None:
    one = joined(known, fresh)
    assert one == joined(fresh, known)
    for part in (known, fresh):
        assert one.hop >= part.hop
        assert one.read_ms >= part.read_ms
        assert part.root_ms is None or (one.root_ms is not None and one.root_ms >= part.root_ms)
        assert part.hop_limit is None or (
            one.hop_limit is not None and one.hop_limit <= part.hop_limit
        )
    assert joined(None, fresh) == fresh


# -- relay ----------------------------------------------------------------------------------------

A, B, C, ME = 1, 2, 3, 9


def depth(
    *exposed: Exposure, to: set[int], quoted: int = 0, reached: frozenset[int] = frozenset()
) -> int:
    return relay(exposed, to, ME, quoted, NOW, lambda source: reached).hop


def test_what_is_passed_on_to_somebody_new_goes_a_hop_deeper() -> None:
    assert depth(read(A, hop=3), to={B}) == 4
    assert depth(read(A, hop=3), read(B), to={B}) == 3
    assert depth(read(A, hop=3), read(B, hop=5), to={C}) == 6
    assert depth(to={B}) == 0


def test_an_answer_goes_no_deeper_than_what_it_answers() -> None:
    assert depth(read(A, hop=3), to={A}) == 0
    assert depth(read(A, hop=3), to={A}, quoted=3) == 3


def test_a_copy_for_the_source_does_not_make_a_text_young_again() -> None:
    assert depth(read(A, hop=3), to={A, B}) == 4
    assert depth(read(A, hop=3), read(B, hop=1), to={A, B, C}) == 4


def test_whom_the_source_wrote_to_itself_is_not_new_to_its_text() -> None:
    assert depth(read(A, hop=3), to={A, B}, reached=frozenset({B})) == 3
    assert depth(read(A, hop=3), to={A, B, C}, reached=frozenset({B})) == 4


def test_a_note_to_oneself_goes_no_deeper_and_loses_nothing() -> None:
    assert depth(read(A, hop=3), to={ME}) == 3
    assert depth(read(ME, hop=3), to={ME}) == 3
    assert depth(read(ME, hop=3), to={B}) == 3
    assert depth(read(ME, hop=3), read(A, hop=3), to={B}) == 4


@pytest.mark.parametrize(("age_ms", "hop"), [(HOUR - 1, 4), (HOUR, 0), (HOUR + 1, 0)])
def test_a_reading_is_passed_on_for_an_hour(age_ms: int, hop: int) -> None:
    assert depth(read(A, hop=3, read_ms=NOW - age_ms), to={B}) == hop


# -- kin ------------------------------------------------------------------------------------------


def around(
    *overheard: Exposure,
    to: set[int],
    read_too: tuple[Exposure, ...] = (),
    wrote: frozenset[int] = frozenset(),
) -> Relay:
    """What kin read, and whom the identities in `wrote` have written to: ME."""
    return relay(
        read_too, to, ME, 0, NOW, lambda source: {ME} if source in wrote else (), overheard
    )


def test_what_kin_read_is_passed_on_as_what_oneself_read() -> None:
    assert around(read(A, hop=3), to={B}).hop == 4
    assert around(read(A, hop=3), to={A}).hop == 0
    assert around(read(ME, hop=3), to={B}).hop == 3
    assert around(read(A, hop=3), to={B}, read_too=(read(A),)).hop == 4
    assert around(read(A, hop=3), to={B}, read_too=(read(B),)).hop == 3
    assert around(read(A, hop=6), to={B}).over_limit == 6
    assert around(read(A, hop=3, read_ms=NOW - HOUR), to={B}).hop == 0


def test_whom_kin_heard_is_new_unless_it_wrote_to_this_identity() -> None:
    assert around(read(A, hop=3), read(B), to={B}).hop == 4
    assert around(read(A, hop=3), read(B), to={B}, wrote=frozenset({B})).hop == 3
    assert around(read(A, hop=3), read(B), to={B, C}, wrote=frozenset({B})).hop == 4
    assert around(read(A, hop=3), to={B}, wrote=frozenset({B})).hop == 4, "nobody heard it"


@pytest.mark.parametrize("more", [-2, -1, 0, 1])
def test_no_depth_is_told_that_nobody_could_read(more: int) -> None:
    """A paired host may claim any depth, and what is signed here must be read elsewhere."""
    assert depth(read(A, hop=HOPS_MAX + more), to={B}) == min(HOPS_MAX, HOPS_MAX + more + 1)


@pytest.mark.parametrize("limit", [6, 20])
def test_the_limit_forbids_one_hop_more(limit: int) -> None:
    for hop, over in ((limit - 2, None), (limit - 1, None), (limit, limit)):
        told = relay([read(A, hop=hop, hop_limit=limit)], {B}, ME, 0, NOW)
        assert (told.hop, told.over_limit) == (hop + 1, over)
    assert relay([read(A, hop=limit, hop_limit=limit)], {A}, ME, 0, NOW).over_limit is None
    assert relay([read(A, hop=99, hop_limit=None)], {B}, ME, 0, NOW).over_limit is None


def test_the_owner_alone_can_always_be_told() -> None:
    assert relay([read(A, hop=6)], (), ME, 0, NOW).over_limit is None


some = st.lists(
    st.builds(
        Exposure,
        st.integers(1, 4),
        st.none() | st.integers(NOW - HOUR, NOW),
        st.integers(0, 8),
        st.none() | st.just(6),
        st.integers(NOW - HOUR - 1, NOW),
    ),
    max_size=4,
)


@given(some, some, st.sets(st.integers(1, 5), min_size=1))
def test_kin_never_make_a_text_younger_nor_cleaner(
    own: list[Exposure], overheard: list[Exposure], recipients: set[int]
) -> None:
    alone = relay(own, recipients, ME, 0, NOW)
    together = relay(own, recipients, ME, 0, NOW, overheard=overheard)
    assert together.hop >= alone.hop
    assert alone.over_limit is None or together.over_limit is not None
    clean, root_ms = external_since(own, None, NOW), external_since(own + overheard, None, NOW)
    assert clean is None or (root_ms is not None and root_ms >= clean)


@given(
    st.lists(
        st.builds(
            Exposure,
            st.integers(1, 4),
            st.none(),
            st.integers(0, 8),
            st.none() | st.just(6),
            st.integers(NOW - HOUR + 1, NOW),
        ),
        max_size=4,
    ),
    st.sets(st.integers(1, 5), max_size=4),
    st.integers(1, 5),
)
def test_one_more_recipient_never_makes_a_text_younger(
    exposed: list[Exposure], recipients: set[int], other: int
) -> None:
    before = relay(exposed, recipients, ME, 0, NOW)
    after = relay(exposed, recipients | {other}, ME, 0, NOW)
    assert after.hop >= before.hop
    assert before.over_limit is None or after.over_limit is not None
