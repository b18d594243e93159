"""scripts/bench: the smallest run of every case, the shape of its report. No figure is judged."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import profile
from benchmarks.cases import CASES
from benchmarks.report import Report, at_least, at_most, figure_at_most
from tests.support.rules import ROOT
from tests.support.shells import bare_environment

PROGRAM = ROOT / "benchmarks" / "__main__.py"
FIELDS = {"case", "what", "unit", "figure", "floor", "floor_is", "ratio", "ratios"} | {
    "goal",
    "met",
    "note",
}


def bench(*arguments: str, timeout_s: float) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, str(PROGRAM), *arguments],
        env=bare_environment(),
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )


@pytest.mark.long
@pytest.mark.timeout(420)
def test_the_smallest_run_of_all_cases_says_figure_floor_ratio_goal_for_each(
    tmp_path: Path,
) -> None:
    done = bench("--scale", "tiny", "--json", "--folder", str(tmp_path), timeout_s=400)
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    assert said["scale"] == "tiny"
    assert {"cpus", "kernel", "python", "sqlite", "mbx"} <= set(said["machine"])
    assert list(dict.fromkeys(row["case"] for row in said["rows"])) == list(CASES)
    for row in said["rows"]:
        assert set(row) == FIELDS
        assert row["figure"] > 0 or row["case"] == "S12"
        assert (row["floor"] is None) == (row["ratio"] is None)
        assert (row["goal"] is None) == (row["met"] is None)
    kept = [path.name for path in tmp_path.iterdir()]
    assert [name for name in kept if not name.startswith(("store-200-", "store-100-"))] == []


def test_cases_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    done = bench("S1", "S99", "--folder", str(tmp_path), timeout_s=15)
    assert done.returncode == 2
    assert "no such case: S99" in done.stderr


def test_a_row_is_the_median_of_the_ratios_of_its_rounds() -> None:
    report = Report("tiny")
    report.compare("S1", "what", "1/s", [(50, 100), (90, 100), (20, 10)], "floor", at_least(0.9))
    report.compare("S8", "what", "ms", [(60, 10)], "floor", at_most(5.5), "why")
    report.state("S14", "what", "ms", [40, 60, 49], figure_at_most(50, "≤ 50 ms"))
    first, second, third = report.rows
    assert (first.figure, first.floor, first.ratio, first.met) == (50, 100, 0.9, True)
    assert (second.ratio, second.goal, second.met) == (6, "≤ 5.5 ×", False)
    assert (third.figure, third.floor, third.ratio, third.met) == (49, None, None, True)
    table = report.as_table()
    assert "MISSED" in table
    assert "S8 what: why" in table


def test_a_profile_counts_each_function_once_a_stack_and_names_the_thread() -> None:
    stacks = [
        "thread (1): MainThread;main (a.py:1);read (a.py:9) 30",
        "thread (2): store;unit (b.py:2);unit (b.py:3) 70",
    ]
    rows = [line.split() for line in profile.table(stacks).splitlines()[1:]]
    assert ["loop", "30.0%", "0.0%", "main", "(a.py"] in rows
    assert ["loop", "30.0%", "30.0%", "read", "(a.py"] in rows
    assert ["store", "70.0%", "70.0%", "unit", "(b.py"] in rows
