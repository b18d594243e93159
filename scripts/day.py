#!/usr/bin/env python3
"""A day in the life of mbx: twenty real sessions, crashes, a sleep, two daemon kills, a reboot.

`scripts/day` sets up the environment and runs this. Everything happens on a home folder of its own
with real processes, in real time. At quiet points and at the end the history of the players is held
against a copy of the store. The exit status is 0 only if nothing was violated and enough happened.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.realpath(__file__))))

from scripts.dayreadback import acts, story
from scripts.dayseats import NoDocumentError
from scripts.daystore import audit_rows, identities
from scripts.daystory import AT_LEAST, NAMES, Day
from scripts.demostage import Stage
from scripts.faults import Examination
from scripts.terminals import TerminalError

_ACCEPTED_MIN: Final = 100
_ACCEPTED_A_MINUTE: Final = 60
_SHOWN_MAX: Final = 20
_FAILURES: Final = (
    OSError,
    subprocess.SubprocessError,
    TerminalError,
    NoDocumentError,
    KeyError,
    IndexError,
    ValueError,
)
_SUMMARY: Final = """\
  sessions   {sessions} started; {crash} killed, {come back} came back; {wait} waited, were served;
             {hand over} handed over; {rename} renamed
  machine    {daemon kill} daemon kills, {sleep} sleep, {reboot} reboot
  mail       {accepted} accepted: {sent to one} to one, {sent to a role} to a role,
             {sent to all} to all, {sent to the owner} to the owner, {replies} replies, the rest raw
             {read} read, {acknowledged} acknowledged with a word of what was done
  outcomes   {unknown outcomes} unknown; {settled as stored} are stored, once, after the repeat;
             {settled as not stored} are not; {not passed on} letters refused as passed on too often
  commands   {commands}, among them {searches} searches and {watches} watches; senders looked
             {looked at by their senders} times at what became of a letter
  audit log  {logged register} registrations, {logged claim} claims, {logged lapse} lapses,
             {logged release} releases, {logged rename} renames
  records    {records verified} signatures verified from outside
"""
"""The closing figures, by their names."""


def main() -> int:
    """Play one day; its exit status."""
    options = _parse()
    stage = Stage(sys.stdout, 0.0)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    work = Path(tempfile.mkdtemp(prefix="mbx-day-"))
    try:
        if options.faults:
            return _examine(stage, work, options.json)
        stage.title(
            f"mbx: a day in {options.minutes:g} minutes, seed {options.seed}", str(work / "home")
        )
        return _play(stage, work, options)
    except KeyboardInterrupt:
        return 130
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/day", description="Play a day of twenty sessions and check what is left."
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="how long it takes (10)")
    parser.add_argument("--seed", type=int, default=1, help="what is drawn: scenes and work (1)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    parser.add_argument(
        "--faults", action="store_true", help="no day: plant faults and let `mbx doctor` name them"
    )
    return parser.parse_args()


def _play(stage: Stage, work: Path, options: argparse.Namespace) -> int:
    began = time.monotonic()
    found: list[str] = []
    with Day(stage, work, options.minutes * 60, options.seed) as day:
        try:
            day.play()
        except _FAILURES as error:
            found.append(f"the day did not end: {type(error).__name__}: {error}")
    found += day.violations
    figures = _figures(day)
    missing = _missing(figures, options.minutes)
    if day.store is not None:
        _read_back(stage, day, day.store)
    _close(stage, figures, len(day.copies), found + missing, time.monotonic() - began)
    if options.json is not None:
        report = {
            "format": "mbx-day/1",
            "seed": options.seed,
            "minutes": options.minutes,
            "figures": figures,
            "violations": found,
            "missing": missing,
            "compared": day.copies,
        }
        options.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 1 if found or missing else 0


def _examine(stage: Stage, work: Path, report: Path | None) -> int:
    stage.title("mbx doctor: planted faults", str(work / "home-…"))
    examination = Examination(stage, work)
    wrong = examination.run()
    rows = examination.rows
    slowest_s = max((row["took_s"] for row in rows), default=0.0)
    if report is not None:
        told = {"format": "mbx-faults/1", "faults": rows, "skipped": examination.skipped}
        report.write_text(json.dumps({**told, "wrong": wrong}, indent=2) + "\n", encoding="utf-8")
    named = sum(not row["wrong"] for row in rows)
    counts = f"{named} of {len(rows)} faults named, unchanged and mended; slowest {slowest_s:.1f} s"
    stage.verdict(not wrong, f"{counts}; skipped {len(examination.skipped)}")
    return 1 if wrong else 0


def _figures(day: Day) -> dict[str, int]:
    """What happened, by name."""
    logged = acts(audit_rows(day.store)) if day.store is not None else Counter[str]()
    log = {f"logged {act}": count for act, count in sorted(logged.items())}
    return {**day.done, **day.history.counts, **log, "records verified": day.records}


def _missing(figures: dict[str, int], minutes: float) -> list[str]:
    """What happened too seldom for the day to mean anything."""
    wanted = {
        **AT_LEAST,
        "sessions": 2 * len(NAMES),
        "come back": AT_LEAST["crash"],
        "sleep": 1,
        "daemon kill": 2,
        "reboot": 1,
        "quiet point": 6,
        "unknown outcomes": 2,
        "replies": 5,
        "accepted": max(_ACCEPTED_MIN, round(_ACCEPTED_A_MINUTE * minutes)),
        "logged lapse": len(NAMES),
    }
    return [
        f"too little: {name} {figures.get(name, 0)}, wanted {count}"
        for name, count in wanted.items()
        if figures.get(name, 0) < count
    ]


def _read_back(stage: Stage, day: Day, store: Path) -> None:
    stage.line("")
    stage.line(stage.painted("strong", "What the audit log tells"))
    for line in story(audit_rows(store), identities(store)):
        stage.line(line)
    stage.line("")
    stage.line(stage.painted("strong", "mbx identity list, in the evening"))
    stage.piece(day.final_list)


def _close(
    stage: Stage, figures: dict[str, int], copies: int, wrong: list[str], took_s: float
) -> None:
    stage.line("")
    stage.line(stage.painted("strong", "Figures"))
    stage.piece(_SUMMARY.format_map(Counter(figures)))
    stage.line(f"  compared   history and store, {copies} times: {len(wrong)} violations")
    for fault in wrong[:_SHOWN_MAX]:
        stage.claim(fault, False)
    stage.verdict(not wrong, f"a day of {took_s:.0f} s, {len(wrong)} violations or lacks")


if __name__ == "__main__":
    sys.exit(main())
