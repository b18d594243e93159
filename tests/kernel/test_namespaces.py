"""What /proc tells of processes inside pid and time namespaces."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mbx.core.evidence import Process
from mbx.daemon.processes import evidence
from mbx.kernel.namespaces import (
    FIRST_PID_NAMESPACE,
    FIRST_TIME_NAMESPACE,
    TimeShift,
    boot_id,
    has_one_number,
    numbers_are_ours,
    own_time_shift,
    time_shift,
)
from tests.support.children import process_of, sleeper
from tests.support.shells import TIMEOUT_S

APART = "time:[4026532177]"
S = 1_000_000_000
TICKS_PER_S = 100


def offsets(seconds: int, nanoseconds: int = 0) -> str:
    return f"monotonic {5:>12} {0:>9}\nboottime {seconds:>12} {nanoseconds:>9}\n"


@pytest.mark.parametrize(
    ("current", "of_children", "told", "shift"),
    [
        (FIRST_TIME_NAMESPACE, FIRST_TIME_NAMESPACE, offsets(0), TimeShift()),
        (FIRST_TIME_NAMESPACE, APART, offsets(7), TimeShift()),  # only its children will live there
        (APART, APART, offsets(100_000), TimeShift(100_000 * S)),
        (APART, APART, offsets(0), TimeShift()),
        (APART, APART, offsets(1, 20_000_000), TimeShift(S + 20_000_000)),
        (APART, APART, "1 5 0\n7 9 0\n", TimeShift(9 * S)),  # an older kernel gives numbers
        (APART, APART, offsets(1, 5), TimeShift(S + 5, APART)),  # not a whole tick
        (APART, APART, offsets(-60), TimeShift(-60 * S, APART)),
        (APART, "time:[1]", offsets(7), TimeShift(0, APART)),
        (APART, APART, "", TimeShift(0, APART)),
    ],
)
def test_the_shift_of_a_time_namespace_is_known_to_the_tick_or_named(
    current: str, of_children: str, told: str, shift: TimeShift
) -> None:
    assert time_shift(current, of_children, told, TICKS_PER_S) == shift


@pytest.mark.parametrize("shift_s", [0, 1, 100_000, 2**31])
def test_a_start_told_in_a_shifted_boot_is_the_real_one_again(shift_s: int) -> None:
    for real in (0, 1, 123_456_789):
        told = real + shift_s * TICKS_PER_S
        assert TimeShift(shift_s * S).real_ticks(told, TICKS_PER_S) == real


def test_a_start_before_the_boot_of_a_namespace_is_off_by_a_tick_at_most() -> None:
    shift = TimeShift(-3_600 * S, APART)
    for real_ns in (0, 5, 10_000_000, 17 * S + 3, 3_599 * S):
        wrapped = (real_ns - 3_600 * S) % 2**64  # as the kernel prints it
        real = shift.real_ticks(wrapped // (S // TICKS_PER_S), TICKS_PER_S)
        assert abs(real - real_ns * TICKS_PER_S // S) <= 1
    assert shift.real_ticks(50, TICKS_PER_S) == 50 + 3_600 * TICKS_PER_S


@pytest.mark.parametrize(
    ("status", "ours"),
    [
        (b"Name:\tx\nNSpid:\t17\nNSpgid:\t17\n", True),
        (b"Name:\tx\nNSpid:\t6458\t1\n", False),
        (b"Name:\tx\n", True),  # a kernel that does not tell (before 4.1)
    ],
)
def test_more_than_one_number_means_that_proc_is_another_namespaces(
    status: bytes, ours: bool
) -> None:
    assert has_one_number(status) is ours


def test_here_and_now_numbers_are_ours_and_the_boot_id_names_what_is_apart() -> None:
    assert numbers_are_ours()
    boot, *apart = boot_id().split("+")
    assert boot == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    own = [os.readlink("/proc/self/ns/pid"), own_time_shift().namespace]
    assert apart == [one for one in own if one and one != FIRST_PID_NAMESPACE]


def seen_from(process: Process, *unshare: str) -> list[str]:
    """What python tells of a process in namespaces of its own: evidence, and whose /proc it is."""
    code = (
        f"import sys; sys.path.insert(0, {str(Path.cwd())!r})\n"
        "from mbx.core.evidence import Process\n"
        "from mbx.kernel.namespaces import boot_id, numbers_are_ours\n"
        "from mbx.daemon.processes import evidence\n"
        f"print(evidence({process!r}), numbers_are_ours(), boot_id())"
    )
    done = subprocess.run(
        ["unshare", *unshare, "--", sys.executable, "-c", code],
        check=False,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    if "Operation not permitted" in done.stderr or "unrecognized option" in done.stderr:
        pytest.skip("such namespaces cannot be made here")
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.root
def test_a_process_is_the_same_from_within_a_time_namespace() -> None:
    with sleeper() as child:
        process = process_of(child.pid)
        shifted = ("--time", "--monotonic", "100000", "--boottime", "100000")
        assert seen_from(process, *shifted) == ["live", "True", boot_id()]
        another = Process(process.pid, process.start_ticks + 10_000_000, process.boot_id)
        assert evidence(another) == "dead"
        assert seen_from(another, *shifted)[0] == "dead"
        uneven, _, boot = seen_from(process, "--time", "--boottime", "-1")
        assert uneven == "unknown", "what is not known to the tick proves no death"
        assert boot.startswith(boot_id() + "+time:[")


@pytest.mark.root
def test_below_a_proc_of_another_pid_namespace_nothing_can_be_read() -> None:
    with sleeper() as child:
        process = process_of(child.pid)
        verdict, ours, boot = seen_from(process, "--pid", "--fork")
        assert (verdict, ours) == ("unknown", "False")
        alike = Process(process.pid, process.start_ticks, boot)
        assert seen_from(alike, "--pid", "--fork")[0] == "unknown"
