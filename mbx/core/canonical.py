"""Canonical JSON: one text for one value, and two strict readers.

The form is RFC 8785 narrowed to what mbx signs: objects with keys ``[a-z][a-z0-9_]{0,31}``, arrays,
strings, booleans, null and integers within +/-(2^53-1). For such ASCII keys the RFC's UTF-16 order
is the code-point order, so the standard encoder with sorted keys is exact. Strings are never
normalised.

Everything is refused by `CanonicalError`, whose reason never quotes the refused text. The bounds
(depth, keys, elements, digits) are those of `mbx.core.limits`.
"""

import json
import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from math import isinf
from types import NoneType
from typing import Any, NoReturn, TypeAlias

from mbx.core import limits

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
"""What a reader returns; only `parse_line` ever returns a float."""


class CanonicalError(ValueError):
    """A value or text outside the form; `reason` says which rule, without quoting the input."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def encode(value: object) -> str:
    """The canonical text of `value`, a `JsonValue` without floats (all of it is checked).

    Raises CanonicalError where `parse` would refuse the text, and for other types than exactly
    dict, list, str, int, bool and None: a subclass could print as something it does not equal.
    """
    _check_tree(value, signed=True)
    text = _ENCODER.encode(value)
    _check_scalar_values(text)
    return text


def parse(raw: bytes, max_bytes: int) -> JsonValue:
    """Read one JSON value of the signed form (any spacing and key order) from UTF-8 bytes.

    Raises CanonicalError for anything outside the form. That the bytes are canonical is not said:
    compare with `encode` of the result.
    """
    return _read(raw, max_bytes, signed=True)


def check(value: object) -> None:
    """Raises CanonicalError where `encode` would, but for lone surrogates, which nobody reads."""
    _check_tree(value, signed=True)


def encode_parsed(value: JsonValue) -> str:
    """As `encode`, of what `parse` gave: all that there is to refuse has been looked for there."""
    return _ENCODER.encode(value)


def parse_line(raw: bytes, max_bytes: int) -> JsonValue:
    """Read one JSON-RPC line: the refusals of `parse`, but any key and finite floats pass.

    Integers still have at most 16 digits (but may be -0 or exceed 2^53-1). Raises CanonicalError.
    """
    return _read(raw, max_bytes, signed=False)


def _read(raw: bytes, max_bytes: int, *, signed: bool) -> JsonValue:
    if len(raw) > max_bytes:
        raise CanonicalError(f"more than {max_bytes} bytes")
    if raw.startswith(b"\xef\xbb\xbf"):
        raise CanonicalError("starts with a byte order mark")
    try:
        text = raw.decode("utf-8")
        value: JsonValue = (_SIGNED_DECODER if signed else _LINE_DECODER).decode(text)
    except CanonicalError:
        raise
    except UnicodeDecodeError:
        raise CanonicalError("not UTF-8") from None
    except ValueError:
        raise CanonicalError("not JSON") from None
    except RecursionError:
        raise CanonicalError(_TOO_DEEP) from None
    _check_tree(value, signed=signed)
    # Decoded UTF-8 holds no surrogate, so a lone one can only come from an escape. That is rare
    # enough to print the value again, in C, rather than to look at every string of every line.
    if "\\ud" in text or "\\uD" in text:
        _check_scalar_values(_ENCODER.encode(value))
    return value


def _check_scalar_values(text: str) -> None:
    """Refuse lone surrogates: they are no Unicode scalar values and have no UTF-8."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise CanonicalError("lone surrogate") from None


def _check_tree(value: object, *, signed: bool) -> None:
    """Refuse what is too deep or too wide and, for the `signed` form, types, keys and integers."""
    # Level by level, so that depth costs no stack; the list around `value` is level 0.
    plain = _PLAIN if signed else _LINE_PLAIN
    level: list[Any] = [[value]]
    for _ in range(limits.JSON_DEPTH_MAX + 1):
        below: list[Any] = []
        for container in level:
            for item in _items(container, signed=signed):
                kind = type(item)
                if kind in plain:
                    continue
                if kind in _CONTAINERS:
                    below.append(item)
                elif kind is not int or not -limits.INTEGER_MAX <= item <= limits.INTEGER_MAX:
                    raise CanonicalError(_why_not(kind))
        if not below:
            return
        level = below
    raise CanonicalError(_TOO_DEEP)


def _items(container: Any, *, signed: bool) -> Iterable[Any]:
    """The values of one object or array whose number, and keys if `signed`, are checked."""
    if type(container) is dict:
        if len(container) > limits.JSON_KEYS_MAX:
            raise CanonicalError(f"more than {limits.JSON_KEYS_MAX} keys")
        if signed:
            for key in container:
                _check_key(key)
        return container.values()
    if len(container) > limits.JSON_ELEMENTS_MAX:
        raise CanonicalError(f"more than {limits.JSON_ELEMENTS_MAX} elements")
    elements: list[Any] = container
    return elements


# The same few field names come again and again. A refusal raises and so is never kept, which
# bounds the memory: 1,024 names of at most 32 characters.
@lru_cache(maxsize=1024)
def _check_key(key: object) -> None:
    if type(key) is not str or _KEY.fullmatch(key) is None:
        raise CanonicalError("key is not [a-z][a-z0-9_]{0,31}")


def _why_not(kind: type) -> str:
    if kind is int:
        return "integer beyond 2^53-1"
    return _FLOAT if kind is float else f"type {kind.__name__} has no form"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of the reader; equal keys are seen after their escapes are resolved."""
    made = dict(pairs)
    if len(made) != len(pairs):
        raise CanonicalError("duplicate key")
    return made


def _line_integer(digits: str) -> int:
    """An integer of at most 16 digits; counted before conversion, which is not linear."""
    if len(digits) - (digits[0] == "-") > limits.JSON_DIGITS_MAX:
        raise CanonicalError(f"more than {limits.JSON_DIGITS_MAX} digits")
    return int(digits)


def _signed_integer(digits: str) -> int:
    if digits == "-0":
        raise CanonicalError("-0")
    return _line_integer(digits)


def _line_float(literal: str) -> float:
    number = float(literal)
    if isinf(number):
        raise CanonicalError("number overflows to infinity")
    return number


def _refuse_float(_literal: str) -> NoReturn:
    raise CanonicalError(_FLOAT)


def _refuse_constant(_literal: str) -> NoReturn:
    raise CanonicalError("NaN and Infinity are not JSON")


def _decoder(
    parse_int: Callable[[str], int], parse_float: Callable[[str], float]
) -> json.JSONDecoder:
    return json.JSONDecoder(
        object_pairs_hook=_object,
        parse_int=parse_int,
        parse_float=parse_float,
        parse_constant=_refuse_constant,
    )


_KEY = re.compile("[a-z][a-z0-9_]{0,31}")
_CONTAINERS = frozenset({dict, list})
_PLAIN = frozenset({str, bool, NoneType})
_LINE_PLAIN = _PLAIN | {int, float}
_TOO_DEEP = f"deeper than {limits.JSON_DEPTH_MAX}"
_FLOAT = "number with a fraction or exponent"

# Built once: `json.dumps` with these settings would build an encoder for each call. Circles are
# refused by the depth before the encoder sees them.
_ENCODER = json.JSONEncoder(
    ensure_ascii=False,
    allow_nan=False,
    check_circular=False,
    sort_keys=True,
    separators=(",", ":"),
)
_LINE_DECODER = _decoder(_line_integer, _line_float)
_SIGNED_DECODER = _decoder(_signed_integer, _refuse_float)
