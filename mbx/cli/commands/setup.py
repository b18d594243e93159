"""`mbx setup`."""

import os
import sys
from collections.abc import Iterator, Sequence

import click

from mbx.cli.command import command
from mbx.cli.output import cell
from mbx.cli.session import Session
from mbx.core.errors import MbxError
from mbx.setup import installer
from mbx.setup.clients import BY_NAME
from mbx.setup.installer import Plan, Setting
from mbx.setup.ledger import Ledger
from mbx.setup.plan import Change
from mbx.setup.scripts import scripts_for
from mbx.setup.steps import Refused
from mbx.wire import JsonObject

YES = frozenset({"y", "yes"})
"""What is taken for a yes, in any case; everything else is a no."""


@command(
    "setup",
    "Enter mbx into the agent CLIs of this machine, or take it out.",
    examples="""
    mbx setup --dry-run
    mbx setup
    mbx setup --only claude,codex --yes
    mbx setup --uninstall
    """,
)
@click.option(
    "--only",
    metavar="CLIENTS",
    help=f"Only these, with commas between them: {' '.join(BY_NAME)}.",
)
@click.option("--dry-run", is_flag=True, help="Show what would change; change nothing.")
@click.option("--uninstall", is_flag=True, help="Take out what setup entered, and nothing else.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def setup(session: Session, only: str | None, dry_run: bool, uninstall: bool, yes: bool) -> int:
    """Find the agent CLIs of this machine, and enter mbx into their settings.

    Each gets the MCP server, hooks, a status line if it can have one and you have none, and a
    skill. Only entries of mbx are added, changed or removed: every other byte stays. What was there
    is kept below mbx's home first. A file that cannot be read for sure is named and left alone, and
    the exit status is 1. A second run changes nothing. It starts no daemon.
    """
    names = [name.strip() for name in (only or "").split(",") if name.strip()]
    installer.known(names)
    setting = _setting(session)
    ledger = Ledger(setting.installation.home)
    plan = installer.plan(setting, ledger, names, installing=not uninstall)
    if dry_run or not plan.changes_something:
        _tell(session, plan, "dry-run" if dry_run else "done")
        return _status(plan, names)
    if not yes and not _is_agreed(session, plan):
        session.output.text("nothing was changed")
        return 1
    try:
        ledger.lock()
    except Refused as refusal:
        raise MbxError("usage", str(refusal), "wait for it, then run mbx setup again") from None
    try:
        done = installer.carry_out(plan, setting, ledger)
    finally:
        ledger.unlock()
    _tell(session, done, "done")
    return _status(done, names)


def _setting(session: Session) -> Setting:
    environ = session.environ
    program = installer.program_of(sys.argv[0], sys.executable, environ.get("PATH", os.defpath))
    installation = installer.installation_of(session.paths, environ, program)
    scripts = scripts_for(installation)
    return Setting(installer.machine_of(environ), installation, scripts, os.geteuid())


def _status(plan: Plan, names: Sequence[str]) -> int:
    """1 when a file was refused, or a client that was asked for by name is not here."""
    is_short = any(client.is_refused for client in plan.clients) or bool(names and plan.absent)
    return 1 if is_short else 0


def _is_agreed(session: Session, plan: Plan) -> bool:
    """Ask on the terminal. Raises MbxError `usage` where there is none."""
    if session.output.as_json or not (os.isatty(0) and os.isatty(1)):
        raise MbxError(
            "usage",
            "setup asks before it changes settings, and there is no terminal to ask on",
            "mbx setup --dry-run, then mbx setup --yes",
        )
    for path in plan.scripts:
        session.output.text(f"write  {cell(path)}")
    for client in plan.clients:
        session.output.text(*_file_lines(client.changes, "planned"))
    session.output.raw(b"Change these files? [y/N] ")
    return sys.stdin.readline().strip().lower() in YES


# -- telling --------------------------------------------------------------------------------------


def _tell(session: Session, plan: Plan, mode: str) -> None:
    if session.output.as_json:
        session.output.document(_document(plan, mode))
        return
    lines: list[str] = []
    for path in plan.scripts:
        lines.append(f"{'would write' if mode == 'dry-run' else 'wrote'}  {cell(path)}")
    for client in plan.clients:
        trace = client.trace
        seen = " and ".join(cell(one) for one in (trace.program, trace.place) if one)
        lines.append(f"{trace.client.title}: found ({seen})")
        lines += _file_lines(client.changes, mode)
        for change in client.changes:
            if mode == "dry-run" and change.act in ("write", "remove"):
                lines += [cell(line) for line in change.diff().splitlines()]
    if plan.absent:
        lines.append(f"not found: {', '.join(plan.absent)}")
    session.output.text(*lines, *_ending(plan, mode))


def _file_lines(changes: Sequence[Change], mode: str) -> Iterator[str]:
    words = {"done": ("wrote", "removed"), "dry-run": ("would write", "would remove")}
    wrote, removed = words.get(mode, ("write", "remove"))
    for change in changes:
        if change.act == "unchanged" and change.old and change.old.content is None:
            continue
        word = {"write": wrote, "remove": removed, "unchanged": "unchanged"}.get(change.act)
        if change.restores and change.act == "write":
            word = {"wrote": "restored", "would write": "would restore"}.get(wrote, "restore")
        if word is None:
            yield f"  refused  {cell(change.path)}: {cell(change.why)}; it is left as it was"
        else:
            yield f"  {word}  {cell(change.path)}"
        yield from (f"    {cell(note)}" for note in change.notes)


def _ending(plan: Plan, mode: str) -> list[str]:
    if mode == "dry-run":
        return ["nothing was changed: this was a preview"]
    is_refused = any(client.is_refused for client in plan.clients)
    nothing = "nothing was changed" if is_refused else "nothing to do"
    lines = [] if plan.changes_something else [nothing]
    steps = _steps(plan)
    return [*lines, *(["now it is your turn:"] if steps else []), *(f"  - {one}" for one in steps)]


def _steps(plan: Plan) -> list[str]:
    """What is left to the human."""
    steps: list[str] = []
    changed = [one for one in plan.clients if {c.act for c in one.changes} & {"write", "remove"}]
    if changed:
        titles = ", ".join(client.trace.client.title for client in changed)
        steps.append(f"End your sessions of {titles} and start them again: {_WHY[plan.installing]}")
    for client in plan.clients:
        if client in changed and plan.installing:
            steps += client.trace.client.hook_remarks
        for change in client.changes:
            if change.act == "refused":
                steps.append(f"{change.path} {change.why}. Mend it, then run mbx setup again.")
    if plan.installing and steps:
        steps.append("See with mbx doctor whether all is well.")
    return list(dict.fromkeys(steps))


_WHY = {
    True: "those that run do not know of mbx yet.",
    False: "those that run still use what was removed.",
}
"""Why sessions have to be started again, after setup (True) and after taking it out."""


def _document(plan: Plan, mode: str) -> JsonObject:
    clients = [
        {
            "client": client.trace.client.name,
            "program": client.trace.program,
            "files": [_file_object(change, mode) for change in client.changes],
        }
        for client in plan.clients
    ]
    return {
        "ok": not any(client.is_refused for client in plan.clients),
        "dry_run": mode == "dry-run",
        "changed": mode == "done" and plan.changes_something,
        "scripts": list(plan.scripts),
        "clients": clients,
        "not_found": list(plan.absent),
        "steps": [] if mode == "dry-run" else _steps(plan),
    }


def _file_object(change: Change, mode: str) -> JsonObject:
    told: JsonObject = {"path": change.path, "act": change.act, "notes": list(change.notes)}
    if change.act == "refused":
        told["why"] = change.why
    if mode == "dry-run" and change.act in ("write", "remove"):
        told["diff"] = change.diff()
    return told
