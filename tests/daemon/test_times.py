"""Times as answers show them."""

import pytest

from mbx.daemon.times import optional_rfc3339, rfc3339


@pytest.mark.parametrize(
    ("at_ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_700_000_000_001, "2023-11-14T22:13:20.001Z"),
        (1_709_210_096_999, "2024-02-29T12:34:56.999Z"),
        (-5, "1970-01-01T00:00:00.000Z"),
        (2**62, "9999-12-31T23:59:59.999Z"),
    ],
)
def test_times_are_utc_with_milliseconds_and_absurd_ones_are_clamped(at_ms: int, text: str) -> None:
    assert rfc3339(at_ms) == text


def test_no_time_is_none() -> None:
    assert optional_rfc3339(None) is None
    assert optional_rfc3339(0) == rfc3339(0)
