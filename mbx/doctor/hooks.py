"""The check of what hooks missed: a daemon that was away, or one that did not answer in time."""

from typing import Final

from mbx.core.limits import HOOK_MISSES_MAX
from mbx.doctor.files import Entry
from mbx.doctor.verdict import Check, Level, span

RECENT_MS: Final = 24 * 60 * 60 * 1000
"""A miss within a day is a warning; one before that is history."""

_DIGITS_MAX: Final = len(str(HOOK_MISSES_MAX))


def misses(
    down: tuple[Entry, bytes | None], slow: tuple[Entry, bytes | None], now_ms: int
) -> list[Check]:
    """What the two counts say, each with its file; nothing where there are none."""
    return [
        *_told(
            down, now_ms, "found no daemon and said nothing; hooks start none", "mbx daemon start"
        ),
        *_told(
            slow,
            now_ms,
            "gave up after a second, since the daemon did not answer",
            "mbx daemon status; if it is slow to answer too: mbx daemon restart",
        ),
    ]


def _told(count: tuple[Entry, bytes | None], now_ms: int, what: str, fix: str) -> list[Check]:
    entry, content = count
    number = _number(content)
    if entry.kind != "file" or not number:
        return []
    ago_ms = max(0, now_ms - entry.modified_ms)
    is_recent = ago_ms <= RECENT_MS
    level: Level = "warn" if is_recent else "info"
    times = "once" if number == 1 else f"{number:,} times"
    detail = f"hooks {times} {what}; last {span(ago_ms // 1000)} ago"
    return [Check("hooks", level, detail, fix if is_recent else None)]


def _number(content: bytes | None) -> int:
    words = (content or b"").split()
    first = words[0] if words else b""
    return int(first) if first.isdigit() and len(first) <= _DIGITS_MAX else 0
