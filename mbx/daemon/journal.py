"""The daemon's log: one JSON object a line, bounded by size, repeats folded, no mail in it.

`MBX_LOG` says from which level on it is written. What marks a start and an end is always written:
doctor reads by it how the last daemon ended.

No body, subject, key, token or signature is ever logged: callers pass constants, counts and short
ids.
"""

import json
import os
import traceback
from collections.abc import Callable, Mapping
from typing import Final

from mbx.core.errors import MbxError
from mbx.core.limits import LOG_FILE_MAX_BYTES, LOG_FILES_KEPT
from mbx.daemon.times import rfc3339

LEVELS: Final = ("debug", "info", "warning", "error")
"""What MBX_LOG may say, in order."""

DEFAULT_LEVEL: Final = "info"

_LEVEL_OF: Final = {
    "a session said hello": "debug",
    "a session was woken": "debug",
    "ready": "always",
    "stopped": "always",
    "ended": "always",
    "ended by a defect": "always",
    "the store failed": "always",
    "a callback failed": "error",
    "a request failed inside": "error",
    "a wake failed inside": "error",
    "a way failed inside": "error",
    "a session could not arrive": "error",
    "an answer failed inside": "error",
    "work of its own was refused": "error",
}
"""Event -> its level; the others are warnings."""

_REPEAT_WINDOW_MS: Final = 60_000
_CAUSES_MAX: Final = 256
_FRAMES_KEPT: Final = 8
_VALUE_MAX_CHARS: Final = 2_000


class Journal:
    """Writes `path`, moving it to `path.1` … when it is full; `now_ms` is the wall clock."""

    def __init__(self, path: str, now_ms: Callable[[], int], level: str = DEFAULT_LEVEL) -> None:
        self._path = path
        self._least = LEVELS.index(level)
        self._now_ms = now_ms
        self._descriptor = self._open()
        self._size_bytes = os.fstat(self._descriptor).st_size
        self._causes: dict[str, tuple[int, int]] = {}

    def write(self, event: str, **facts: object) -> None:
        """Log `event` (a constant) with facts.

        The same event (of the same place, or of the same peer) is written once a minute; the next
        one says how many were folded.
        """
        level = _LEVEL_OF.get(event, "warning")
        if level in LEVELS[: self._least]:
            return
        now_ms = self._now_ms()
        cause = f"{event} {facts.get('whence', '')} {facts.get('peer', '')}"
        first_ms, folded = self._causes.get(cause, (0, 0))
        if 0 <= now_ms - first_ms < _REPEAT_WINDOW_MS:
            self._causes[cause] = (first_ms, folded + 1)
            return
        if len(self._causes) >= _CAUSES_MAX:
            self._causes.clear()
        self._causes[cause] = (now_ms, 0)
        entry: dict[str, object] = {"at": rfc3339(now_ms), "event": event}
        entry.update({name: _bounded(value) for name, value in facts.items()})
        if folded:
            entry["folded"] = folded
        self._put(json.dumps(entry).encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def _put(self, line: bytes) -> None:
        try:
            if self._size_bytes + len(line) > LOG_FILE_MAX_BYTES:
                self._rotate()
            os.write(self._descriptor, line)
        except OSError:
            return  # a full disk must not stop the mail that can still be read
        self._size_bytes += len(line)

    def _rotate(self) -> None:
        """Begin a new file. Raises OSError; the next line tries again.

        The old descriptor is given back last: its number must never be used, nor closed, once it
        may be that of a connection or of the store.
        """
        for number in range(LOG_FILES_KEPT, 0, -1):
            older = self._path if number == 1 else f"{self._path}.{number - 1}"
            if os.path.lexists(older):
                os.rename(older, f"{self._path}.{number}")
        full, self._descriptor = self._descriptor, self._open()
        self._size_bytes = 0
        os.close(full)

    def _open(self) -> int:
        """Raises OSError, also for a pipe in its place, which would be waited for."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(self._path, flags | os.O_NONBLOCK, 0o600)


def level_of(environ: Mapping[str, str]) -> str:
    """The level that MBX_LOG asks for. Raises MbxError usage for another word."""
    asked = environ.get("MBX_LOG") or DEFAULT_LEVEL
    level = asked.lower()
    if level not in LEVELS:
        words = ", ".join(LEVELS)
        raise MbxError(
            "usage",
            f"MBX_LOG is {asked[:40]!r}: it is one of {words}",
            f"unset it, or set it to {words}",
        )
    return level


def whence(error: BaseException) -> str:
    """The kind of a defect and the calls that led to it, without its words: they may quote mail."""
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES_KEPT:]
    calls = (f"{os.path.basename(frame.filename)}:{frame.lineno} {frame.name}" for frame in frames)
    return " < ".join((type(error).__name__, *reversed(list(calls))))


def _bounded(value: object) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    return str(value)[:_VALUE_MAX_CHARS]
