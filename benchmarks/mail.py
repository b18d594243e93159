"""The messages of the bench: 700 bytes of body, made before any clock runs."""

import random
from typing import Final

from benchmarks.wire import request

BODY_BYTES: Final = 700
RECIPIENTS: Final = (
    "bench-ada",
    "bench-bob",
    "bench-cleo",
    "bench-dora",
    "bench-emil",
    "bench-fritz",
    "bench-greta",
    "bench-hugo",
)
"""Over whom the load is spread."""

_SYLLABLES: Final = "ba ce di fo gu ha je ki lo mu na pe qui ro su ta ve wi xo yu za".split()
_TEXT_CHARS: Final = 1 << 20


def _words() -> str:
    """A long text of some 9,000 different words, the same in every run."""
    chance = random.Random(7)  # noqa: S311  (text, not a secret)
    count = _TEXT_CHARS // 4
    words = ("".join(chance.choices(_SYLLABLES, k=1 + chance.randrange(3))) for _ in range(count))
    return " ".join(words)


_TEXT: Final = _words()


def body(number: int) -> str:
    """The body of a message: a window of the long text."""
    at = number * 7_919 % (len(_TEXT) - BODY_BYTES)
    return _TEXT[at : at + BODY_BYTES]


class Sends:
    """Ready-made `mail.send` lines, each with a key of its own as the client makes one."""

    def __init__(self, stem: str, recipients: tuple[str, ...] = RECIPIENTS) -> None:
        self._stem = stem
        self._recipients = recipients
        self._made = 0

    def take(self, count: int) -> list[bytes]:
        """The next `count` lines."""
        first, self._made = self._made, self._made + count
        return [self._line(number) for number in range(first, first + count)]

    def _line(self, number: int) -> bytes:
        params = {
            "to": [self._recipients[number % len(self._recipients)]],
            "subject": f"Bench message {number}",
            "body": body(number),
            "key": f"0198f2c4-7b1e-{self._stem}-{number:012}",
        }
        return request(number, "mail.send", params)
