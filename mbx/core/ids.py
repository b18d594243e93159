"""Ids as people type them: unique prefixes of the 26 characters, turned into ranges of integers."""

import re
from dataclasses import dataclass
from typing import Final, TypeGuard

from mbx.core.errors import MbxError
from mbx.core.limits import ID_CHARS, ID_PREFIX_MIN_CHARS

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_DIGITS: Final = str.maketrans(_ALPHABET, "0123456789abcdefghijklmnopqrstuv")
"""To what `int` reads to the base of 32."""
_WHOLE: Final = re.compile(f"[{_ALPHABET}]{{{ID_CHARS}}}")
_PREFIX: Final = re.compile(f"[{_ALPHABET}]{{{ID_PREFIX_MIN_CHARS},{ID_CHARS}}}")
_KEY_BITS: Final = 64


@dataclass(frozen=True, slots=True)
class IdPrefix:
    """A checked prefix `text`; ids that start so have their first eight bytes in [low8, high8]."""

    text: str
    low8: int
    high8: int

    def matches(self, full_id: str) -> bool:
        """True when this id starts with the prefix."""
        return full_id.startswith(self.text)


def is_id(value: object) -> TypeGuard[str]:
    """Whether this is a whole id: of a record, a key or an identity."""
    return isinstance(value, str) and _WHOLE.fullmatch(value) is not None


def id8(digest: bytes) -> int:
    """The first eight bytes of a digest as a signed integer: the store's small index key."""
    return int.from_bytes(digest[:8], "big", signed=True)


def parse_prefix(text: object) -> IdPrefix:
    """Check an id or a prefix of at least six characters, in either case.

    Raises MbxError not-found.
    """
    if isinstance(text, str) and text.isascii():
        text = text.lower()
    if not isinstance(text, str) or _PREFIX.fullmatch(text) is None:
        raise MbxError(
            "not-found",
            f"an id has {ID_PREFIX_MIN_CHARS} to {ID_CHARS} characters of 0-9 a-z without i l o u",
            "mbx inbox",
        )
    value = int(text.translate(_DIGITS), 32)
    bits = 5 * len(text)
    if bits >= _KEY_BITS:
        low = high = value >> (bits - _KEY_BITS)
    else:
        low = value << (_KEY_BITS - bits)
        high = low | ((1 << (_KEY_BITS - bits)) - 1)
    return IdPrefix(text, _signed(low), _signed(high))


def _signed(value: int) -> int:
    return value - (1 << _KEY_BITS) if value >> (_KEY_BITS - 1) else value
