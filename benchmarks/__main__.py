"""`scripts/bench [CASE…] [--quick] [--json]`: run the cases and print what was found.

Run as a file, never with the repository on the path: the mbx that is measured must be the installed
one.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent


def main(argv: Sequence[str]) -> int:
    """The exit status: 0, or 1 when a goal was missed and `--strict` given."""
    from benchmarks import profile, workshop
    from benchmarks.cases import CASES
    from benchmarks.report import Report
    from benchmarks.scale import SCALES

    parser = _parser(tuple(CASES), tuple(SCALES))
    options = parser.parse_args(argv)
    if unknown := set(options.cases) - set(CASES):
        parser.error(f"no such case: {' '.join(sorted(unknown))}")
    scale = SCALES["quick" if options.quick else options.scale]
    if options.messages is not None:
        scale = replace(scale, large_store=options.messages)
    report = Report(scale.name)
    say = _silence if options.silent else _progress
    with workshop.opened(scale, Path(options.folder), say) as place:
        if options.profile:
            sys.stdout.write(profile.run(place, options.profile) + "\n")
            return 0
        for name in options.cases or CASES:
            CASES[name](place, report)
    sys.stdout.write((report.as_json() if options.json else report.as_table()) + "\n")
    missed = [row for row in report.rows if row.met is False]
    return 1 if missed and options.strict else 0


def _parser(cases: Sequence[str], scales: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {' '.join(cases)}")
    parser.add_argument("--scale", choices=scales, default="full", help="how much is measured")
    parser.add_argument("--quick", action="store_true", help="the same as --scale quick")
    parser.add_argument("--messages", type=int, metavar="N", help="in the large store")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--profile", type=int, metavar="CLIENTS", help="profile S1 instead")
    parser.add_argument("--silent", action="store_true", help="no progress on standard error")
    parser.add_argument("--strict", action="store_true", help="exit 1 when a goal is missed")
    parser.add_argument("--folder", default=str(_ROOT / ".bench"), help="where files are kept")
    return parser


def _progress(words: str) -> None:
    sys.stderr.write(f"{words}\n")


def _silence(_: str) -> None:
    pass


if __name__ == "__main__":
    sys.path.append(str(_ROOT))  # behind the installed packages
    sys.exit(main(sys.argv[1:]))
