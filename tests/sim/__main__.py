"""The long run: ``python -m tests.sim --seeds 10000 --steps 100``.

Plays seed after seed, prints each violation with its seed and the file that holds its history, and
the totals at the end. Exit status 1 when there was a violation, or when a run of as many seeds as
CI plays met too little.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.sim.checker import violations
from tests.sim.disk import FAULTS, POINTS
from tests.sim.history import lines
from tests.sim.scene import STEPS, Play, play
from tests.sim.totals import SEEDS, Totals

_TOLD_EVERY = 500
_KEPT = Path(tempfile.gettempdir()) / "mbx-sim-failures"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1_000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--steps", type=int, default=STEPS, help="of each seed")
    parser.add_argument("--keep", type=Path, default=_KEPT, help="folder for histories of failures")
    parser.add_argument("--traces", action="store_true", help="print the trace hash of each seed")
    parser.add_argument("--points", action="store_true", help="list crash points and faults")
    return parser.parse_args()


def _keep(one: Play, folder: Path, found: dict[str, list[str]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    history = folder / f"seed-{one.seed}.jsonl"
    history.write_text("\n".join(lines(one.case.events)) + "\n", encoding="utf-8")
    for invariant, sentences in found.items():
        _tell(f"seed {one.seed}: {invariant}: {sentences[0]} (and {len(sentences) - 1} more)")
    _tell(f"seed {one.seed}: history in {history}")


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Play; the exit status."""
    given = _arguments()
    if given.points:
        for name in (*POINTS, *FAULTS):
            _tell(name)
        return 0
    totals, broken = Totals(), 0
    for seed in range(given.first, given.first + given.seeds):
        one = play(seed, given.steps)
        totals.add(one.totals)
        found = violations(one.case)
        if given.traces:
            _tell(f"trace {seed} {one.trace}")
        if found:
            broken += 1
            _keep(one, given.keep, found)
        if totals.seeds % _TOLD_EVERY == 0:
            _tell(f"{totals.seeds} seeds, {broken} broken")
    if given.traces:
        return int(broken > 0)
    for line in totals.lines():
        _tell(line)
    short = totals.shortfalls() if totals.seeds >= SEEDS else []
    for line in short:
        _tell(f"met too seldom: {line}")
    _tell(f"{totals.seeds} seeds, {broken} broken")
    return int(broken > 0 or bool(short))


if __name__ == "__main__":
    sys.exit(main())
