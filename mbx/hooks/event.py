"""The event that a client writes to a hook's standard input: read with bounds, whatever it is.

An input that is no JSON, never ends, or is larger than `HOOK_INPUT_MAX_BYTES` is no event, and that
is no error: what a hook says it knows from its process. Only `os` and the C half of `json` are
loaded, since a hook that prints one line must cost little more than Python itself.
"""

from __future__ import annotations

import os

from mbx.core.clients import is_session_id
from mbx.core.limits import HOOK_INPUT_MAX_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` itself is too heavy for a hook
    from collections.abc import Callable, Mapping
    from typing import Any, Protocol

    class _Scanner(Protocol):
        def __call__(self, text: str, start: int, /) -> tuple[Any, int]: ...

    make_scanner: Callable[[object], _Scanner]
else:
    from _json import make_scanner

_PIECE_BYTES = 64 * 1024


class _Context:
    """What the scanner asks for: plain JSON."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = float  # `int` would take seconds for a number of a million digits
    parse_constant = float
    memo: dict[str, str] = {}  # noqa: RUF012  (its own for one process that reads one event)


def read(descriptor: int, begun: bytes | None = None) -> Mapping[str, Any]:
    """The event; empty for anything that is none. It ends with the object, not with the input.

    `begun` is what the script has read of it already, by a reader that does not wait.
    """
    raw = begun or b""
    if begun is not None:
        _wait_for(descriptor)
        if (event := as_object(raw)) is not None:
            return event
    while True:
        try:
            piece = os.read(descriptor, _PIECE_BYTES)
        except OSError:
            piece = b""
        raw += piece
        if len(raw) > HOOK_INPUT_MAX_BYTES:
            return {}
        is_all = len(piece) < _PIECE_BYTES
        if is_all and (not piece or raw.rstrip()[-1:] == b"}"):
            event = as_object(raw)
            if event is not None or not piece:
                return event or {}


def _wait_for(descriptor: int) -> None:
    try:
        os.set_blocking(descriptor, True)
    except OSError:
        pass  # there is nothing to be read


def as_object(raw: bytes) -> Mapping[str, Any] | None:
    """The JSON object in some bytes; None for anything else."""
    try:
        text = raw.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
        value, _ = make_scanner(_Context)(text, 0)
    except (StopIteration, ValueError, RecursionError, SystemError):
        return None  # the last: it finds no JSONDecodeError where `json` is not loaded
    return value if isinstance(value, dict) else None


def session_of(event: Mapping[str, Any], field: str) -> str | None:
    """The conversation that an event names, if it is one that can be."""
    value = event.get(field)
    return value if is_session_id(value) else None


def is_of_subagent(event: Mapping[str, Any]) -> bool:
    """Whether a helper of the agent is at work, whose ears are not the agent's."""
    return isinstance(event.get("agent_id"), str) and event["agent_id"] != ""
