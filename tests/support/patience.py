"""Looking again until something holds: bounded in time, so that a fast machine waits as long.

Whoever waits for an event has a descriptor to wait on; this is for what can only be asked.
"""

import select
import time
from collections.abc import Iterator
from typing import Final

LOOKS_S: Final = 15.0
"""How long is looked, unless told: below the limit of a test, so that it can say what is wrong."""

PAUSE_S: Final = 0.001
"""Between two looks: whoever is looked at has the machine meanwhile."""


def looks(within_s: float = LOOKS_S) -> Iterator[int]:
    """A number for each look: the first one at once, the last one after `within_s` seconds."""
    deadline = time.monotonic() + within_s
    number = 0
    while True:
        is_last = time.monotonic() >= deadline
        yield number
        if is_last:
            return
        number += 1
        select.select([], [], [], PAUSE_S)
