"""Strict readers of the single fields of a verified payload.

Each returns the value with its type, or raises RecordError (step 6) with words that quote nothing.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

from mbx.core.canonical import JsonValue
from mbx.core.errors import MbxError
from mbx.core.ids import is_id
from mbx.core.limits import INTEGER_MAX
from mbx.core.record import RecordError
from mbx.core.text import check_line, check_text

_HEX: Final = re.compile("(?:[0-9a-f]{2})*")


def exactly(value: JsonValue, names: frozenset[str], what: str) -> Mapping[str, JsonValue]:
    """An object with these fields and no others; `what` names it in the refusal."""
    if not isinstance(value, dict) or value.keys() != names:
        raise RecordError(6, f"fields of {what} missing or unknown")
    return value


def listed(value: JsonValue, most: int, what: str, least: int = 0) -> list[JsonValue]:
    """A list of `least` to `most` elements."""
    if not isinstance(value, list) or not least <= len(value) <= most:
        raise RecordError(6, f"{what}: not a list of {least} to {most}")
    return value


def whole(value: JsonValue, what: str, least: int = 0, most: int = INTEGER_MAX) -> int:
    """A whole number from `least` to `most`."""
    if type(value) is not int or not least <= value <= most:
        raise RecordError(6, f"{what}: not a whole number from {least} to {most}")
    return value


def flag(value: JsonValue, what: str) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise RecordError(6, f"{what}: neither true nor false")
    return value


def text(value: JsonValue, what: str) -> str:
    """Any text."""
    if not isinstance(value, str):
        raise RecordError(6, f"{what}: not a text")
    return value


def word(value: JsonValue, words: frozenset[str], what: str) -> str:
    """One of a closed list of words."""
    found = text(value, what)
    if found not in words:
        raise RecordError(6, f"{what}: unknown")
    return found


def passing(value: JsonValue, check: Callable[[str], object], what: str) -> str:
    """A text that `check` raises no MbxError for."""
    found = text(value, what)
    try:
        check(found)
    except MbxError as error:
        raise RecordError(6, f"{what}: {error.facts.get('reason', error.code)}") from None
    return found


def line(value: JsonValue, most_chars: int, what: str, *, may_be_empty: bool = False) -> str:
    """A text without line breaks."""
    return passing(
        value, lambda found: check_line(what, found, most_chars, may_be_empty=may_be_empty), what
    )


def note(value: JsonValue, most_chars: int, what: str) -> str:
    """A text in which lines may break; it may be empty."""
    return passing(value, lambda found: check_text(what, found, most_chars), what)


def identifier(value: JsonValue, what: str) -> str:
    """A whole id: of a record, a key or an identity."""
    if not is_id(value):
        raise RecordError(6, f"{what}: not an id of 26 characters")
    return value


def octets(value: JsonValue, count: int, what: str) -> bytes:
    """`count` bytes, written as lower-case hexadecimal digits."""
    found = text(value, what)
    if len(found) != 2 * count or _HEX.fullmatch(found) is None:
        raise RecordError(6, f"{what}: not {2 * count} lower-case hex digits")
    return bytes.fromhex(found)
