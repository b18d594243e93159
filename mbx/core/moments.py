"""Moments as people type them: dates, times with an offset, and "so long ago"."""

import re
from datetime import UTC, datetime
from typing import Final

from mbx.core.errors import MbxError

_AGO: Final = re.compile(r"([0-9]{1,5})(m|h|d|w)")
_UNIT_MS: Final = {"m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_MAX_CHARS: Final = 40


def parse_moment(field: str, text: str, now_ms: int) -> int:
    """Ms UTC of ``2026-01-31``, ``2026-01-31T12:00Z`` (or with an offset), ``90m 2h 3d 1w`` ago.

    A date alone begins at midnight UTC. Raises MbxError usage; also for a time without an offset,
    which could mean two moments.
    """
    ago = _AGO.fullmatch(text)
    if ago:
        return now_ms - int(ago[1]) * _UNIT_MS[ago[2]]
    try:
        at = datetime.fromisoformat(text) if len(text) <= _MAX_CHARS else None
    except ValueError:
        at = None
    if at is None:
        raise _unclear(field, "is no date, time or age")
    if at.tzinfo is None:
        if at.time() != datetime.min.time() or "T" in text or " " in text:
            raise _unclear(field, "has no offset: say Z or +02:00")
        at = at.replace(tzinfo=UTC)
    return int(at.timestamp() * 1000)


def _unclear(field: str, why: str) -> MbxError:
    return MbxError(
        "usage", f"{field} {why}", "write it like 2026-01-31, 2026-01-31T12:00Z, 2h or 3d"
    )
