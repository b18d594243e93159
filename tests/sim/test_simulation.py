"""The seeds of CI: no invariant is broken, enough is met, and a seed is always the same run."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mbx.store.database import StoreFailure
from tests.sim.checker import INVARIANTS, violations
from tests.sim.disk import FAULTS, POINTS, Crash, Plan
from tests.sim.history import lines
from tests.sim.scene import Scene, play
from tests.sim.totals import SEEDS, Totals
from tests.support.rules import ROOT


@pytest.mark.long
@pytest.mark.timeout(300)
def test_no_seed_breaks_an_invariant_and_together_they_meet_enough(
    tmp_path: Path, publish: Callable[[Totals], None]
) -> None:
    totals = Totals()
    broken = {}
    for seed in range(SEEDS):
        one = play(seed)
        totals.add(one.totals)
        found = violations(one.case)
        if found:
            history = tmp_path / f"seed-{seed}.jsonl"
            history.write_text("\n".join(lines(one.case.events)) + "\n")
            broken[seed] = (found, str(history))
    publish(totals)
    assert broken == {}
    assert totals.shortfalls() == []


def test_a_run_that_met_too_little_fails() -> None:
    """One quiet seed is no proof, nor are many without crashes."""
    few = play(0, steps=5).totals
    assert any(line.startswith("calls:") for line in few.shortfalls())
    calm = Totals()
    calm.seeds = 1
    calm.counts.update(dict.fromkeys([*few.counts, "calls", "answers ok"], 10_000))
    for point in POINTS:
        calm.counts.pop(f"crash {point}", None)
    assert len([line for line in calm.shortfalls() if line.startswith("crash ")]) == len(POINTS)


def test_a_seed_played_twice_leaves_the_same_trace() -> None:
    assert [play(seed).trace for seed in range(5)] == [play(seed).trace for seed in range(5)]


def test_different_seeds_leave_different_traces() -> None:
    assert len({play(seed, steps=20).trace for seed in range(10)}) == 10


def test_the_trace_does_not_depend_on_the_hashes_of_the_process() -> None:
    """Nothing may depend on the order of a set: Python's hashes differ from process to process."""
    told = [
        subprocess.run(
            [sys.executable, "-m", "tests.sim", "--first", "7", "--seeds", "3", "--traces"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hashes},
            capture_output=True,
            text=True,
            check=True,
            timeout=15,
        ).stdout
        for hashes in ("1", "2")
    ]
    assert told[0] == told[1]
    assert told[0].count("trace ") == 3


@pytest.mark.parametrize("point", ["before COMMIT", "after COMMIT"])
def test_a_crash_keeps_what_was_committed_and_nothing_else(point: str) -> None:
    """The model of the disk itself: one registration, killed on either side of its COMMIT."""
    scene = Scene(1)
    scene._attempt(scene.sessions[0], scene.wishes.another_name())
    for session in scene.sessions:
        scene._attempt(session, scene.wishes.another_name())
    with pytest.raises(Crash, match=point):
        scene.office.write_group(8, Plan(point))
    names = scene.connection.execute("SELECT count(*) FROM identities").fetchone()[0]
    assert (names > 1) is (point == "after COMMIT")
    assert not scene.connection.in_transaction


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planned_fault_strikes_as_the_real_one_would(fault: str) -> None:
    scene = Scene(1)
    for session in scene.sessions:
        scene._attempt(session, scene.wishes.another_name(), late=False)
    plan = Plan(fault)
    if fault.startswith("I/O"):
        with pytest.raises(StoreFailure, match="disk I/O error"):
            scene.office.write_group(8, plan)
    else:
        scene.office.write_group(8, plan)
    assert plan.done
    assert not scene.connection.in_transaction


def test_the_documentation_names_every_invariant_and_no_other() -> None:
    page = (ROOT / "docs" / "proof.md").read_text(encoding="utf-8")
    table = page[page.index("| I1 |") :].partition("\n\n")[0]  # others name some of them again
    rows = re.findall(r"^\| (I\d+) \|", table, re.MULTILINE)
    assert rows == [*INVARIANTS, "I22"]
