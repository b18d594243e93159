"""How long to wait before a peer is dialled again: random below a bound that doubles.

"Full jitter": the whole pause is drawn, from nothing up to the bound, so that many who lost the
same thing at the same moment do not all come back at the same moment.
"""

from mbx.core.limits import REDIAL_FIRST_MS, REDIAL_MAX_MS

_DOUBLINGS_MAX = (REDIAL_MAX_MS // REDIAL_FIRST_MS).bit_length()


def bound_ms(failures: int) -> int:
    """The longest pause after so many failures in a row: 1 s after the first, doubling to 60 s."""
    doublings = min(max(failures, 1) - 1, _DOUBLINGS_MAX)
    return min(REDIAL_FIRST_MS << doublings, REDIAL_MAX_MS)


def pause_ms(failures: int, chance: bytes) -> int:
    """The pause after so many failures in a row, any length up to the bound being as likely.

    `chance` are fresh random bytes, four or more. Raises ValueError for fewer.
    """
    if len(chance) < 4:
        raise ValueError("a pause is drawn from at least 32 random bits")
    return (bound_ms(failures) + 1) * int.from_bytes(chance, "big") >> 8 * len(chance)
