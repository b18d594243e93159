"""What a run found: one row for each goal, as a table and as JSON."""

import json
import os
import platform
import sqlite3
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from typing import Any, Final

_HEADINGS: Final = ("case", "what", "figure", "floor", "ratio", "goal", "")
_PACKAGES: Final = ("mbx", "aiosqlite", "cryptography", "orjson", "uvloop")


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound on the ratio of figure to floor, or on the figure where `of` says so."""

    bound: float
    at_most: bool
    of: str = "ratio"
    text: str = ""

    def is_met(self, value: float) -> bool:
        """Whether `value` keeps the bound."""
        return value <= self.bound if self.at_most else value >= self.bound

    def __str__(self) -> str:
        return self.text or f"{'≤' if self.at_most else '≥'} {self.bound:g} ×"


def at_least(bound: float) -> Goal:
    """The ratio must reach `bound`."""
    return Goal(bound, at_most=False)


def at_most(bound: float) -> Goal:
    """The ratio must not exceed `bound`."""
    return Goal(bound, at_most=True)


def figure_at_most(bound: float, text: str) -> Goal:
    """The figure itself must not exceed `bound`; `text` says it with its unit."""
    return Goal(bound, at_most=True, of="figure", text=text)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the report; `ratios` are those of the rounds, `ratio` their median."""

    case: str
    what: str
    unit: str
    figure: float
    floor: float | None = None
    floor_is: str | None = None
    ratio: float | None = None
    ratios: Sequence[float] = ()
    goal: str | None = None
    met: bool | None = None
    note: str | None = None


@dataclass(slots=True)
class Report:
    """The rows of a run in the order in which they were found."""

    scale: str
    rows: list[Row] = field(default_factory=list)

    def compare(
        self,
        case: str,
        what: str,
        unit: str,
        pairs: Sequence[tuple[float, float]],
        floor_is: str,
        goal: Goal | None,
        note: str | None = None,
    ) -> None:
        """Add a row from (figure, floor) of each round."""
        ratios = [figure / floor for figure, floor in pairs]
        figure, ratio = statistics.median(one for one, _ in pairs), statistics.median(ratios)
        floor = statistics.median(one for _, one in pairs)
        met = goal.is_met(figure if goal.of == "figure" else ratio) if goal else None
        told = str(goal) if goal else None
        row = Row(case, what, unit, figure, floor, floor_is, ratio, ratios, told, met, note)
        self.rows.append(row)

    def state(
        self,
        case: str,
        what: str,
        unit: str,
        figures: Sequence[float],
        goal: Goal | None = None,
        note: str | None = None,
    ) -> None:
        """Add a row that has no floor: the median of `figures`."""
        figure = statistics.median(figures)
        met = goal.is_met(figure) if goal else None
        told = str(goal) if goal else None
        self.rows.append(Row(case, what, unit, figure, goal=told, met=met, note=note))

    def as_object(self) -> dict[str, Any]:
        """The whole report for machines."""
        return {
            "scale": self.scale,
            "machine": machine(),
            "rows": [asdict(row) for row in self.rows],
        }

    def as_json(self) -> str:
        """`as_object` as ASCII JSON."""
        return json.dumps(self.as_object(), indent=1)

    def as_table(self) -> str:
        """A Markdown table for people, the machine above it."""
        lines = [_cells(row) for row in self.rows]
        widths = [
            max(len(line[at]) for line in (_HEADINGS, *lines)) for at in range(len(_HEADINGS))
        ]
        said = ", ".join(f"{name} {value}" for name, value in machine().items())
        table = [_line(_HEADINGS, widths), _line(["-" * width for width in widths], widths)]
        table += [_line(line, widths) for line in lines]
        notes = [f"{row.case} {row.what}: {row.note}" for row in self.rows if row.note]
        return "\n".join([f"{self.scale} run; {said}", "", *table, "", *notes])


def machine() -> dict[str, str]:
    """What the figures depend on besides our code."""
    found = {
        "cpus": str(os.cpu_count()),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
    }
    return found | {name: metadata.version(name) for name in _PACKAGES} | {"on": sys.platform}


def _cells(row: Row) -> tuple[str, ...]:
    floor = _number(row.floor, row.unit) if row.floor is not None else ""
    ratio = f"{row.ratio:.2f}" if row.ratio is not None else ""
    if len(row.ratios) > 1:
        ratio += f" ({min(row.ratios):.2f}–{max(row.ratios):.2f})"
    verdict = {None: "", True: "met", False: "MISSED"}[row.met]
    figure = _number(row.figure, row.unit)
    return (row.case, row.what, figure, floor, ratio, row.goal or "", verdict)


def _number(value: float, unit: str) -> str:
    digits = 0 if abs(value) >= 100 else 2
    return f"{value:,.{digits}f} {unit}"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return f"| {' | '.join(padded)} |"
