"""JSON-RPC lines at the speed of C, with exactly the refusals of `core.canonical.parse_line`.

orjson refuses bad UTF-8, NaN and lone surrogates itself. What it lets through (duplicate keys,
depth, long numbers, crowded containers) shows in the line without its strings, so that a clean line
costs one pass of a pattern; any line under suspicion goes to the strict reader, whose verdict
counts. So it is with signed payloads of paired hosts.
"""

import json
import re
from contextlib import suppress
from typing import Any, Final

import orjson

from mbx.core.canonical import CanonicalError, JsonValue, check, parse_line
from mbx.core.limits import JSON_DEPTH_MAX, JSON_DIGITS_MAX, JSON_ELEMENTS_MAX, JSON_KEYS_MAX

LINE_VALUES_MAX: Final = 8_192
"""Values in one line: far more than any request has, few enough to be read in milliseconds (a line
of 2 MiB could hold a million, and hold everybody up for a second)."""

_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
"""A string, or the beginning of one that never ends: that is no JSON, and to look for its end again
from every quote in it would cost the square of the line (20 s for 64 KiB, measured)."""
_SUSPECT_NUMBER: Final = re.compile(rb"[0-9]{%d}|[.eE][0-9+-]|-0" % (JSON_DIGITS_MAX + 1))
_LONG: Final = 10**JSON_DIGITS_MAX
_FEW: Final = min(JSON_KEYS_MAX, JSON_ELEMENTS_MAX)


def decode(line: bytes, max_bytes: int) -> JsonValue:
    """The value of a request line. Raises CanonicalError with the reason."""
    if len(line) > max_bytes:
        raise CanonicalError(f"the line has {len(line):,} bytes; the limit is {max_bytes:,}")
    value: Any
    if line.count(b",") < _FEW:
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError:
            return parse_line(line, max_bytes)
        # Printed again it is the same: no key was repeated, no number written oddly.
        if _is_plain(value, JSON_DEPTH_MAX) and orjson.dumps(value) == line:
            return value  # type: ignore[no-any-return]
    bare = _STRING.sub(b"", line)
    if bare.count(b",") > LINE_VALUES_MAX:
        raise CanonicalError(f"more than {LINE_VALUES_MAX:,} values")
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        return parse_line(line, max_bytes)
    if (
        bare.count(b"{") + bare.count(b"[") > JSON_DEPTH_MAX
        or bare.count(b",") >= _FEW
        or bare.count(b":") != _count_keys(value)
        or _SUSPECT_NUMBER.search(bare)
    ):
        return parse_line(line, max_bytes)
    return value  # type: ignore[no-any-return]


def made_out(line: bytes) -> dict[str, JsonValue]:
    """What can be made out of a line that `decode` refuses, so that it is refused under its id.

    Empty where that is nothing. It is to be quoted, never carried out.
    """
    value: Any = None
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        with suppress(ValueError, RecursionError):
            if line.count(b",") <= LINE_VALUES_MAX:
                value = json.loads(line.decode("utf-8", "replace").lstrip("\ufeff"))
    return value if isinstance(value, dict) else {}


def decode_signed(payload: bytes) -> JsonValue:
    """The value of which `payload` is the canonical text, where that is seen at once, else None.

    Printed again it is the same, so that no key was repeated and nothing written oddly; what the
    form has no place for is looked for as ever. Whoever gets None asks the strict reader for why.
    """
    try:
        value: JsonValue = orjson.loads(payload)
        check(value)
        return value if canonical(value) == payload else None
    except (orjson.JSONDecodeError, CanonicalError, TypeError):
        return None


def encode(value: object) -> bytes:
    """One line of JSON, UTF-8, without its line feed."""
    return orjson.dumps(value)


def canonical(value: object) -> bytes:
    """Canonical JSON of a value whose keys keep the grammar and which has no fractions.

    Equal to `core.canonical.encode` for every payload that mbx builds (0.7 µs against 50 µs).
    Raises TypeError for lone surrogates and integers beyond 53 bits.
    """
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER)


def _is_plain(value: Any, depth: int) -> bool:
    """Nothing in it but objects, arrays, strings, short integers and constants, not too deep."""
    kind = type(value)
    if kind is dict:
        return depth > 0 and all(_is_plain(inner, depth - 1) for inner in value.values())
    if kind is list:
        return depth > 0 and all(_is_plain(inner, depth - 1) for inner in value)
    if kind is int:
        return bool(-_LONG < value < _LONG)
    return kind is not float


def _count_keys(value: Any) -> int:
    """How many keys the parsed value has: fewer than the line has colons means a repeated key."""
    if isinstance(value, dict):
        return len(value) + sum(map(_count_keys, value.values()))
    if isinstance(value, list):
        return sum(map(_count_keys, value))
    return 0
