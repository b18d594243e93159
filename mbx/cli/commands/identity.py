"""`mbx identity …`: list, show, register, claim, release."""

import click

from mbx.cli.command import command
from mbx.cli.output import ago, cell
from mbx.cli.project import current_project, project_at
from mbx.cli.session import Session
from mbx.wire import JsonObject


@command(
    "list",
    "List identities: who holds which, and which are free.",
    examples="""
    mbx identity list
    mbx identity list --project .
    mbx identity list --all --json
    """,
)
@click.option("--project", metavar="PATH", help="Only those of the project at PATH.")
@click.option("--all", "everything", is_flag=True, help="Retired identities too.")
def list_(session: Session, project: str | None, everything: bool) -> None:
    """List the identities of this host with their state, holder and unread mail."""
    where = project_at(project) if project is not None else None
    answer = session.ask("identity.list", project=where, all=everything or None)
    while answer["next_after"] is not None:  # more than one answer may carry
        more = session.ask(
            "identity.list", project=where, all=everything or None, after=answer["next_after"]
        )
        answer = {**more, "identities": answer["identities"] + more["identities"]}
    if session.output.as_json:
        session.output.document(answer)
        return
    rows = [_row(entry, session.now_ms()) for entry in answer["identities"]]
    if rows:
        heads = ("NAME", "ROLE", "STATE", "HOLDER", "UNREAD", "SEEN", "DESCRIPTION")
        session.output.table(heads, rows, flexible=6)
    else:
        session.output.text("no identities", "next: mbx identity register NAME --role ROLE")


@command(
    "show",
    "Show one identity.",
    examples="""
    mbx identity show api-dev
    """,
)
@click.argument("name")
def show(session: Session, name: str) -> None:
    """Show one identity: its role, project, state, holder, and whether you may claim it."""
    entry = session.ask("identity.show", name=name)
    if session.output.as_json:
        session.output.document(entry)
        return
    lines = [session.output.strong(cell(entry.get("name")))]
    for field in ("role", "description", "project", "state", "claimable", "reason", "unread"):
        lines.append(f"  {field:<12} {cell(entry.get(field))}")
    lines.append(f"  {'holder':<12} {_holder(entry)}")
    lines.append(f"  {'last seen':<12} {ago(entry.get('last_seen'), session.now_ms())}")
    session.output.text(*lines)


@command(
    "register",
    "Create an identity and hold it.",
    examples="""
    mbx identity register api-dev --role backend
    mbx identity register reviewer --role review --description "reviews the Rust parts"
    """,
)
@click.argument("name")
@click.option("--role", metavar="ROLE", required=True, help="What it does, as one word.")
@click.option("--description", metavar="TEXT", help="One line about it, for others.")
@click.option("--project", metavar="PATH", help="Its project; by default the git root around here.")
def register(
    session: Session, name: str, role: str, description: str | None, project: str | None
) -> None:
    """Create the identity NAME and hold it in this session.

    A name has 2 to 40 characters of a-z, 0-9 and "-". Its mail outlives this session.
    """
    where = project_at(project) if project is not None else current_project()
    answer = session.change(
        "identity.register", name=name, role=role, description=description, project=where
    )
    _show_hold(session, answer)


@command(
    "claim",
    "Hold an identity that is free.",
    examples="""
    mbx identity claim api-dev
    """,
)
@click.argument("name")
def claim(session: Session, name: str) -> None:
    """Hold the identity NAME in this session; its waiting mail is yours to read.

    A live holder is never displaced: the refusal names it.
    """
    _show_hold(session, session.change("identity.claim", name=name))


@command(
    "release",
    "Give the identity you hold back.",
    examples="""
    mbx identity release
    """,
)
def release(session: Session) -> None:
    """Give the identity of this session back, so that another session may claim it."""
    answer = session.change("identity.release")
    if session.output.as_json:
        session.output.document(answer)
    else:
        session.output.text(f"released {cell(answer.get('released'))}")


def _row(entry: JsonObject, now_ms: int) -> list[str]:
    return [
        cell(entry.get("name")),
        cell(entry.get("role")),
        cell(entry.get("state")),
        _holder(entry),
        cell(entry.get("unread")),
        ago(entry.get("last_seen"), now_ms),
        cell(entry.get("description")),
    ]


def _holder(entry: JsonObject) -> str:
    holder = entry.get("holder")
    if not holder:
        return "-"
    return f"{cell(holder.get('cli'))} {cell(holder.get('session'))}"


def _show_hold(session: Session, answer: JsonObject) -> None:
    if session.output.as_json:
        session.output.document(answer)
        return
    lines = [
        f"you are {session.output.strong(cell(answer.get('address')))}",
        f"role {cell(answer.get('role'))}",
        f"unread {cell(answer.get('unread'))}",
    ]
    lines.extend(f"note: {cell(note)}" for note in answer.get("recent_notes") or ())
    if answer.get("unread"):
        lines.append("next: mbx inbox")
    session.output.text(*lines)
