"""What hooks missed: slow and down are told apart, recent from old, and nonsense is nothing."""

import pytest

from mbx.core.limits import HOOK_MISSES_MAX
from mbx.doctor.files import Entry
from mbx.doctor.hooks import RECENT_MS, misses

NOW_MS = 1_760_000_000_000
NONE = (Entry("/x", "missing"), None)


def counted(
    content: bytes | None, ago_ms: int = 0, kind: str = "file"
) -> tuple[Entry, bytes | None]:
    entry = Entry("/run/snapshots/x", kind, 0o600, 0, 2, NOW_MS - ago_ms)  # type: ignore[arg-type]
    return entry, content


def test_slow_and_down_are_told_apart_with_what_helps() -> None:
    [down] = misses(counted(b"3\n", 7_200_000), NONE, NOW_MS)
    assert (down.name, down.level, down.fix) == ("hooks", "warn", "mbx daemon start")
    assert down.detail.startswith("hooks 3 times found no daemon")
    assert down.detail.endswith("last 2 h ago")
    [slow] = misses(NONE, counted(b"1\n"), NOW_MS)
    assert slow.detail.startswith("hooks once gave up after a second")
    assert "mbx daemon restart" in (slow.fix or "")


@pytest.mark.parametrize("extra_ms", [-1, 0, 1])
def test_a_miss_of_long_ago_is_history(extra_ms: int) -> None:
    [found] = misses(counted(b"3\n", RECENT_MS + extra_ms), NONE, NOW_MS)
    assert found.level == ("info" if extra_ms > 0 else "warn")
    assert (found.fix is None) == (extra_ms > 0)


@pytest.mark.parametrize("content", [None, b"", b"0\n", b"x", b"-1", b"9" * 30, b"\xff\xfe"])
def test_a_count_that_says_nothing_is_none(content: bytes | None) -> None:
    assert misses(counted(content), counted(content), NOW_MS) == []


def test_another_sort_of_file_is_no_count() -> None:
    assert misses(counted(b"3", kind="link"), counted(b"3", kind="folder"), NOW_MS) == []


def test_the_greatest_count_is_told() -> None:
    [found] = misses(counted(b"%d" % HOOK_MISSES_MAX), NONE, NOW_MS)
    assert f"{HOOK_MISSES_MAX:,} times" in found.detail
