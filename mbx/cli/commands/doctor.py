"""`mbx doctor`."""

import os
import sys
import textwrap
from collections.abc import Sequence

import click

from mbx.cli.command import command
from mbx.cli.output import cell
from mbx.cli.session import Session
from mbx.client import Client
from mbx.doctor import examination, remedies
from mbx.doctor.examination import Visit
from mbx.doctor.remedies import Done, Hands
from mbx.doctor.verdict import Check
from mbx.paths import Paths

WIDTH = 80
"""Columns where no terminal says how many it has."""

NAME_CHARS = 14
"""The width of the column of names; no name of a check is longer."""

AGAIN_WITHIN_S = 4.0
"""After --fix it looks once more, unless the first look took so long that both would take 10 s."""

MEND_ANSWER_S = 2.0
"""How long the daemon may take to say that it will keep house."""


@command(
    "doctor",
    "Check this installation; name each fault and its remedy.",
    examples="""
    mbx doctor
    mbx doctor --fix
    mbx doctor --json
    """,
)
@click.option("--fix", is_flag=True, help="Mend what is safe to mend: modes, left-overs.")
def doctor(session: Session, fix: bool) -> int:
    """Look at folders, files, disk, daemon, leases and waiting mail; exit 1 if anything fails.

    It starts no daemon and changes nothing. Each fault is told with the command that helps. With
    --fix it sets modes of its own files, removes a socket that nobody listens at and files left by
    a killed process, and has missing credentials written again; then it looks once more.
    """
    started = session.clock.monotonic()
    checks, paths = examination.examine(_visit(session))
    done: list[Done] = []
    if fix and paths is not None and any(check.remedy for check in checks):
        done = remedies.apply(checks, _hands(session, paths))
        if session.clock.monotonic() - started < AGAIN_WITHIN_S:
            checks, _ = examination.examine(_visit(session))
    is_ok = not any(check.level == "fail" for check in checks)
    if session.output.as_json:
        told = {"ok": is_ok, "checks": [check.as_object() for check in checks]}
        session.output.document(
            told | ({"fixed": [one.as_object() for one in done]} if fix else {})
        )
    else:
        _show(session, checks, done)
    return 0 if is_ok else 1


def _visit(session: Session) -> Visit:
    return Visit(
        lambda: session.paths,
        session.environ,
        sys.argv[0],
        os.geteuid(),
        session.now_ms(),
        session.clock,
    )


def _hands(session: Session, paths: Paths) -> Hands:
    def mend() -> None:
        client = Client(paths, {}, session.clock, start=None, answer_s=MEND_ANSWER_S)
        client.call("daemon.mend", {}, changes=False)

    return Hands(paths, os.geteuid(), session.now_ms(), session.clock, mend)


def _show(session: Session, checks: Sequence[Check], done: Sequence[Done]) -> None:
    columns = min(session.output.columns() or WIDTH, 2 * WIDTH)
    for one in done:
        outcome = "fixed" if one.was_done else f"not fixed: {cell(one.why)}:"
        session.output.text(f"{outcome} {one.remedy.kind} {cell(one.remedy.path)}")
    for check in checks:
        session.output.text(*_lines(session, check, columns))
    session.output.text(_summary(checks))


def _lines(session: Session, check: Check, columns: int) -> list[str]:
    """One line for what is well; for the rest the whole sentence, and below it what helps."""
    from mbx.core.text import clip

    level = f"{check.level:<4}"
    head = f"{level}  {check.name:<{NAME_CHARS}}  "
    margin = " " * len(head)
    if check.level == "ok":
        return [clip(head + cell(check.detail), columns)]
    words = textwrap.wrap(cell(check.detail), max(columns - len(head), 20), break_on_hyphens=False)
    lines = [head + words[0], *(margin + line for line in words[1:])]
    if check.level in ("warn", "fail"):
        lines[0] = session.output.strong(level) + lines[0][len(level) :]
    if check.fix:
        lines.append(f"{margin}fix: {cell(check.fix)}")
    return lines


def _summary(checks: Sequence[Check]) -> str:
    faults = sum(check.level == "fail" for check in checks)
    warnings = sum(check.level == "warn" for check in checks)
    if not faults and not warnings:
        return "all is well"
    told = []
    if faults:
        told.append("1 fault" if faults == 1 else f"{faults} faults")
    if warnings:
        told.append("1 warning" if warnings == 1 else f"{warnings} warnings")
    return ", ".join(told)
