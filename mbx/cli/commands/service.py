"""`mbx daemon install` and `uninstall`: the daemon as a service of the user."""

import os
from typing import Final

import click

from mbx.cli.command import command
from mbx.cli.commands.daemon import running, stop_daemon
from mbx.cli.output import cell
from mbx.cli.service import bring_up, manager_here, pid_under
from mbx.cli.session import Session
from mbx.core.errors import MbxError
from mbx.service import installer
from mbx.service.job import Job, Manager, job_of
from mbx.setup.plan import Change
from mbx.wire import JsonObject


@command(
    "install",
    "Have systemd or launchd start the daemon with your session.",
    examples="""
    mbx daemon install --dry-run
    mbx daemon install
    """,
)
@click.option("--dry-run", is_flag=True, help="Show what would change; change nothing.")
def install(session: Session, dry_run: bool) -> int:
    """Write a unit of your systemd (Linux) or an agent of launchd (macOS), and start it.

    It starts the daemon of this MBX_HOME with your session, and again when it failed. A daemon
    that runs already is stopped in order and started by the service. A file that mbx did not
    write, or that was changed since, is left alone. A second run changes nothing.
    """
    manager, job = _here(session)
    change = installer.plan(manager, job, session.environ, installing=True)
    acts = (*manager.load(job, change.path), *manager.start(job))
    if dry_run:
        steps = installer.shown((manager.probe(), *acts))
        _tell(session, _told(manager, job, change, dry_run=True, steps=steps), change)
        return 0
    if change.act == "write":
        installer.write(change)
    said = installer.run(manager.probe(), session.environ)
    if not said.is_done:
        first = ["mbx daemon stop"] if running(session) is not None else []
        steps = [*first, *installer.shown((manager.probe(), *acts))]
        told = _told(manager, job, change, steps=steps, why=f"{_UNREACHED}: {said.why}")
        _tell(session, told, change)
        return 1
    _put_under(session, manager, job, change)
    pid, beyond = pid_under(session, manager, job), manager.beyond(_user())
    if pid is None:  # it ended, since another one has the lock
        told = _told(manager, job, change, steps=["mbx daemon restart"], why=_PASSED_BY)
    else:
        told = _told(manager, job, change, steps=[beyond] if beyond else [], pid=pid)
    _tell(session, told, change)
    return 0


@command(
    "uninstall",
    "Take away what `mbx daemon install` wrote.",
    examples="""
    mbx daemon uninstall --dry-run
    mbx daemon uninstall
    """,
)
@click.option("--dry-run", is_flag=True, help="Show what would change; change nothing.")
def uninstall(session: Session, dry_run: bool) -> int:
    """Stop the service of this MBX_HOME and take its file away; mail and keys stay.

    A file that mbx did not write, or that was changed since, is left alone. Commands start the
    daemon on demand again.
    """
    manager, job = _here(session)
    change = installer.plan(manager, job, session.environ, installing=False)
    if dry_run or change.act != "remove":
        steps = installer.shown(manager.unload(job)) if change.act == "remove" else []
        _tell(session, _told(manager, job, change, dry_run=dry_run, steps=steps), change)
        return 0
    said = installer.run_all(manager.unload(job), session.environ)
    installer.remove(change, manager.left(job, change.path))
    installer.run_all(manager.forget(job), session.environ)
    told = _told(manager, job, change)
    if not said.is_done:
        told["why"] = f"{_UNREACHED}: {said.why}"
        told["steps"] = ["mbx daemon stop"] if running(session) else []
    _tell(session, told, change)
    return 0


def _here(session: Session) -> tuple[Manager, Job]:
    """Raises MbxError `usage` where nothing like it runs here."""
    job, manager = job_of(session.paths, session.environ), manager_here()
    if not installer.is_here(manager, session.environ):
        raise MbxError(
            "usage",
            f"there is no {manager.title} here (no {manager.program} on the PATH)",
            "have the service manager of this machine run, as you: mbx daemon run",
        )
    return manager, job


def _put_under(session: Session, manager: Manager, job: Job, change: Change) -> None:
    """Have the service run the daemon, the one that runs now being stopped in order.

    Raises MbxError where it does not come up.
    """
    now = running(session)
    under = pid_under(session, manager, job)
    is_wanted = all(map(os.path.lexists, manager.left(job, change.path)))
    if now is not None and now == under and is_wanted and change.act == "unchanged":
        return
    if now is not None:
        stop_daemon(session)
    said = installer.run_all(manager.load(job, change.path), session.environ)
    if said.is_done:
        said = bring_up(session, manager, job, lambda: running(session))
    if not said.is_done:
        why = f"{manager.name(job)} does not run the daemon: {said.why}"
        raise MbxError("daemon-unreachable", why, "mbx daemon run")


def _user() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return ""


def _told(
    manager: Manager,
    job: Job,
    change: Change,
    *,
    dry_run: bool = False,
    steps: list[str] | None = None,
    why: str | None = None,
    pid: int | None = None,
) -> JsonObject:
    """The document: `steps` are commands that are left to be typed, `why` says why they are."""
    return {
        "service": manager.name(job),
        "path": change.path,
        "act": change.act,
        "dry_run": dry_run,
        "diff": change.diff() if dry_run and change.act != "unchanged" else None,
        "pid": pid,
        "why": why,
        "steps": steps or [],
    }


def _tell(session: Session, told: JsonObject, change: Change) -> None:
    if session.output.as_json:
        session.output.document(told)
        return
    name, path = cell(told["service"]), cell(change.path)
    if change.act == "unchanged" and change.new is not None and change.old is not None:
        is_there = change.old.content is not None
        lines = [f"unchanged  {path}" if is_there else f"no service is installed ({path})"]
    elif change.act == "remove":
        lines = [f"{'would remove' if told['dry_run'] else 'removed'}  {path}"]
    else:
        lines = [f"{'would write' if told['dry_run'] else 'wrote'}  {path}"]
    if told["diff"]:
        lines += [cell(line) for line in told["diff"].splitlines()]
    if told["pid"] is not None:
        lines.append(
            f"running  process {told['pid']}, started by {name}; it starts with your session"
        )
    if told["why"]:
        lines.append(cell(told["why"]))
    if told["steps"]:
        lines += [_INTRO[_occasion(told)], *(f"  {cell(step)}" for step in told["steps"])]
    session.output.text(*lines)


def _occasion(told: JsonObject) -> str:
    """The key of `_INTRO`."""
    if told["dry_run"]:
        return "dry-run"
    if told["why"] is None:
        return "beyond"
    if told["act"] == "remove":
        return "removed"
    return _PASSED_BY if told["why"] == _PASSED_BY else _UNREACHED


_UNREACHED: Final = "the service manager cannot be reached"
_PASSED_BY: Final = "another command started the daemon meanwhile"
_INTRO: Final = {
    "dry-run": "and would run:",
    _UNREACHED: "in a session of yours that has one (log in, no sudo or su), run:",
    _PASSED_BY: "to have the service run it:",
    "removed": "the daemon still runs; to end it:",
    "beyond": "to have it run without a login too:",
}
"""What is said before commands."""
