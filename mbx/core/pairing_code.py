"""The pairing code: 130 random bits that one person reads off a screen and another types.

26 characters of Crockford base32 carry the bits, two more check them: a Reed-Solomon code over the
field of 32 elements. Both sums over all 28 places, the plain one and the one in which place `i`
weighs `a**i`, are zero. Two wrong characters cannot cancel in both, so one or two slips anywhere,
and a swap of any two characters, are always found; of worse ones 1 in 1,024 passes, and then the
proof fails.

A code shows itself by `shown` and `secret` only: never in an error, a log or a `repr`.
"""

import re
from collections.abc import Iterable
from typing import Final

from mbx.core.errors import MbxError
from mbx.core.keys import crockford

RANDOM_BYTES: Final = 17
"""How many random bytes a code is made of: 130 of their 136 bits are used."""
DATA_CHARS: Final = 26
CODE_CHARS: Final = 28
"""With the two check characters."""
GROUP_CHARS: Final = 4
"""Characters a group, for the eye."""

_ALPHABET: Final = "0123456789abcdefghjkmnpqrstvwxyz"
_VALUE: Final = {letter: value for value, letter in enumerate(_ALPHABET)}
_LOOK_ALIKES: Final = str.maketrans("oil", "011")
"""Crockford: a reader takes these letters for the digits that they look like."""
_BETWEEN: Final = re.compile(r"[\s\u2010-\u2015\u2212_.-]+")
"""Blanks, and the dashes and dots that people and programs put between groups."""
_FIELD_POLYNOMIAL: Final = 0b100101
"""x^5 + x^2 + 1, primitive over GF(2): 2 is a generator `a`, of order 31."""


class PairingCode:
    """One code; made by `from_random` or read by `parse_code`."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text  # 28 characters that `parse_code` or `from_random` has vouched for

    @classmethod
    def from_random(cls, raw: bytes) -> "PairingCode":
        """The code of 17 random bytes. Raises ValueError for another number."""
        if len(raw) != RANDOM_BYTES:
            raise ValueError(f"a code is made of {RANDOM_BYTES} random bytes")
        data = crockford(raw)
        symbols = [_VALUE[letter] for letter in data]
        return cls(data + "".join(_ALPHABET[one] for one in _checks(symbols)))

    def shown(self) -> str:
        """For the one screen that shows it: seven groups of four capitals and digits."""
        text = self._text.upper()
        return "-".join(
            text[start : start + GROUP_CHARS] for start in range(0, CODE_CHARS, GROUP_CHARS)
        )

    def secret(self) -> bytes:
        """What keys are derived from: the 26 characters of data, in ASCII."""
        return self._text[:DATA_CHARS].encode()

    def __repr__(self) -> str:
        return "PairingCode(hidden)"


def parse_code(text: str) -> PairingCode:
    """The code that a person typed: any case, blanks and hyphens; o is 0, i and l are 1.

    Raises MbxError usage, which never tells what was typed.
    """
    letters = _BETWEEN.sub("", text).lower().translate(_LOOK_ALIKES)
    if len(letters) != CODE_CHARS:
        raise _refusal(
            f"the code has {CODE_CHARS} characters; {len(letters):,} were given", "length"
        )
    symbols = [_VALUE.get(letter, -1) for letter in letters]
    if min(symbols) < 0 or _sums(symbols) != (0, 0):
        raise _refusal("a character of the code is wrong", "character")
    return PairingCode(letters)


def _refusal(message: str, reason: str) -> MbxError:
    return MbxError(
        "usage", message, "type the code again, as the other host shows it", reason=reason
    )


def _times(left: int, right: int) -> int:
    """The product of two elements of the field."""
    product = 0
    for bit in range(5):
        if right >> bit & 1:
            product ^= left << bit
    for bit in range(8, 4, -1):
        if product >> bit & 1:
            product ^= _FIELD_POLYNOMIAL << (bit - 5)
    return product


def _powers() -> Iterable[int]:
    weight = 1
    for _ in range(CODE_CHARS):
        yield weight
        weight = _times(weight, 2)


_WEIGHTS: Final = tuple(_powers())
"""`a**i` for each place; all different, since there are fewer places than 31."""


def _sums(symbols: Iterable[int]) -> tuple[int, int]:
    """The plain and the weighted sum of the symbols, from the first place on."""
    plain = weighted = 0
    for weight, symbol in zip(_WEIGHTS, symbols, strict=False):
        plain ^= symbol
        weighted ^= _times(weight, symbol)
    return plain, weighted


def _checks(symbols: list[int]) -> tuple[int, int]:
    """The two last symbols (x, y) that make both sums zero: x + y = p, ux + vy = q."""
    plain, weighted = _sums(symbols)
    first, last = _WEIGHTS[DATA_CHARS:]
    # y = (q + up) / (u + v); an element to the power of 30 is its inverse.
    inverse = 1
    for _ in range(30):
        inverse = _times(inverse, first ^ last)
    y = _times(weighted ^ _times(first, plain), inverse)
    return plain ^ y, y
