"""Times as answers show them: RFC 3339 in UTC with milliseconds."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST_MS: Final = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z: what lies beyond is shown as this."""

_MILLISECONDS: Final = tuple(f".{ms:03d}Z" for ms in range(1000))


def rfc3339(at_ms: int) -> str:
    """``2026-01-31T12:00:00.000Z`` for ms UTC."""
    if not 0 <= at_ms <= _LATEST_MS:
        at_ms = max(0, min(at_ms, _LATEST_MS))
    return _seconds(at_ms // 1000) + _MILLISECONDS[at_ms % 1000]


def optional_rfc3339(at_ms: int | None) -> str | None:
    """As `rfc3339`, or None."""
    return None if at_ms is None else rfc3339(at_ms)


@lru_cache(maxsize=1024)
def _seconds(second: int) -> str:
    return (_EPOCH + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%S")
