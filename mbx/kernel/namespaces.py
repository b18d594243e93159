"""In whose numbers /proc speaks (Linux): pid namespaces and time namespaces.

A process number means something only in its pid namespace, and a mounted /proc shows the numbers of
the namespace that mounted it. The start of a process is told in ticks after the boot *as the reader
counts it*: in a time namespace all starts are shifted, so a daemon that moved into one, or out of
it, would take every living process for another one. Here the shift is taken out again.
"""

import os
import re
from dataclasses import dataclass
from functools import cache
from typing import Final

FIRST_PID_NAMESPACE: Final = "pid:[4026531836]"
"""PROC_PID_INIT_INO, linux/proc_ns.h: where numbers mean the same to everyone."""
FIRST_TIME_NAMESPACE: Final = "time:[4026531834]"
"""PROC_TIME_INIT_INO, linux/proc_ns.h: where boot is boot."""

_BOOT_OFFSET: Final = re.compile(r"^(?:boottime|7)\s+(-?[0-9]+)\s+([0-9]+)\s*$", re.MULTILINE)
"""A row of timens_offsets (time_namespaces(7)): CLOCK_BOOTTIME by name or number, s and ns."""
_NS_PER_S: Final = 1_000_000_000
_WRAPPED_NS: Final = 2**64
"""A start before the namespace's own boot comes out of the kernel as this much more."""


@dataclass(frozen=True, slots=True)
class TimeShift:
    """How far the boot that /proc counts from lies before the real one, in ns.

    `namespace` is set where the shift cannot be taken out to the tick: starts told there compare
    with each other alone.
    """

    shift_ns: int = 0
    namespace: str = ""

    def real_ticks(self, told: int, ticks_per_s: int) -> int:
        """The start that /proc tells, in ticks after the real boot."""
        ns_per_tick = _NS_PER_S // ticks_per_s
        if told > _WRAPPED_NS // 2 // ns_per_tick:
            told -= _WRAPPED_NS // ns_per_tick + 1
        return told - self.shift_ns // ns_per_tick


def time_shift(current: str, of_children: str, offsets: str, ticks_per_s: int) -> TimeShift:
    """The shift of a process from its links ns/time, ns/time_for_children and its timens_offsets.

    The offsets are those of its children to be. What came before the shifted boot is told rounded
    the other way, so a shift is exact only forwards and by whole ticks.
    """
    if current == FIRST_TIME_NAMESPACE:
        return TimeShift()
    told = _BOOT_OFFSET.search(offsets)
    if current != of_children or told is None:
        return TimeShift(namespace=current)
    shift_ns = int(told[1]) * _NS_PER_S + int(told[2])
    is_exact = shift_ns >= 0 and shift_ns % (_NS_PER_S // ticks_per_s) == 0
    return TimeShift(shift_ns, "" if is_exact else current)


@cache
def own_time_shift() -> TimeShift:
    """The shift of this process; none where the kernel has no time namespaces (before 5.6).

    Raises OSError where there are some and /proc does not tell.
    """
    try:
        current = os.readlink("/proc/self/ns/time")
        of_children = os.readlink("/proc/self/ns/time_for_children")
    except FileNotFoundError:
        return TimeShift()
    with open("/proc/self/timens_offsets", encoding="ascii") as file:
        return time_shift(current, of_children, file.read(), os.sysconf("SC_CLK_TCK"))


@cache
def numbers_are_ours() -> bool:
    """Whether /proc speaks in the numbers of our own pid namespace.

    NSpid lists a process's numbers from the namespace of that /proc down to its own: one number
    means that both are the same. Raises OSError where /proc does not tell.
    """
    with open("/proc/self/status", "rb") as file:
        return has_one_number(file.read())


def has_one_number(status: bytes) -> bool:
    """As `numbers_are_ours`, from the text of a status file."""
    for row in status.splitlines():
        if row.startswith(b"NSpid:"):
            return len(row.split()) == 2
    return True


@cache
def boot_id() -> str:
    """The id of this boot; with ``+`` and our namespaces where numbers are not everyone's.

    Raises OSError where /proc does not tell; then the next call asks again.
    """
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read(4_096).strip()
    namespace = os.readlink("/proc/self/ns/pid")
    pid_apart = "" if namespace == FIRST_PID_NAMESPACE else namespace
    return "+".join(filter(None, (boot, pid_apart, own_time_shift().namespace)))
