"""Moments as people type them."""

import pytest

from mbx.core.errors import MbxError
from mbx.core.moments import parse_moment

NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("0m", NOW),
        ("90m", NOW - 5_400_000),
        ("2h", NOW - 7_200_000),
        ("3d", NOW - 259_200_000),
        ("1w", NOW - 604_800_000),
        ("1970-01-02", 86_400_000),
        ("1970-01-02T00:00Z", 86_400_000),
        ("1970-01-02T02:00:00.5+02:00", 86_400_500),
        ("1970-01-02 00:00:00Z", 86_400_000),
    ],
)
def test_dates_times_and_ages_are_moments(text: str, at_ms: int) -> None:
    assert parse_moment("since", text, NOW) == at_ms


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("yesterday", "is no date"),
        ("", "is no date"),
        ("3", "is no date"),
        ("123456d", "is no date"),
        ("1970-13-01", "is no date"),
        ("x" * 41, "is no date"),
        ("1970-01-02T12:00", "has no offset"),
        ("1970-01-02T00:00", "has no offset"),
    ],
)
def test_what_could_mean_nothing_or_two_things_is_refused(text: str, why: str) -> None:
    with pytest.raises(MbxError, match=why) as caught:
        parse_moment("since", text, NOW)
    assert caught.value.code == "usage"
    assert caught.value.message.startswith("since ")
