"""`mbx identity …`: list, show, register, claim, set, rename, release."""

import click

from mbx.cli.command import command, completed
from mbx.cli.output import ago, cell
from mbx.cli.session import Session
from mbx.core.errors import MbxError
from mbx.project import current_project, existing_project, project_at
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
@click.option(
    "--project",
    metavar="PATH",
    shell_complete=completed("folders"),
    help="Only those of the project at PATH.",
)
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
@click.argument("name", shell_complete=completed("names"))
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
@click.option(
    "--role",
    metavar="ROLE",
    required=True,
    shell_complete=completed("roles"),
    help="What it does, as one word.",
)
@click.option("--description", metavar="TEXT", help="One line about it, for others.")
@click.option(
    "--project",
    metavar="PATH",
    shell_complete=completed("folders"),
    help="Its project; by default the git root around here.",
)
def register(
    session: Session, name: str, role: str, description: str | None, project: str | None
) -> None:
    """Create the identity NAME and hold it in this session.

    A name has 2 to 40 characters of a-z, 0-9 and "-". Its mail outlives this session.
    """
    where = existing_project(project) if project is not None else current_project()
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
@click.argument("name", shell_complete=completed("claimable_names"))
def claim(session: Session, name: str) -> None:
    """Hold the identity NAME in this session; its waiting mail is yours to read.

    A live holder is never displaced: the refusal names it.
    """
    _show_hold(session, session.change("identity.claim", name=name))


@command(
    "set",
    "Change what your identity says of itself.",
    examples="""
    mbx identity set --role review
    mbx identity set --description "reviews the Rust parts"
    mbx identity set --card-file card.md
    mbx identity set --card ""
    """,
)
@click.option(
    "--role", metavar="ROLE", shell_complete=completed("roles"), help="What it does, as one word."
)
@click.option("--description", metavar="TEXT", help="One line about it, at most 200 characters.")
@click.option("--card", metavar="TEXT", help="What others should know, at most 2,000 characters.")
@click.option(
    "--card-file",
    metavar="FILE",
    shell_complete=completed("files"),
    help="Read the card from FILE; - is stdin.",
)
def set_(
    session: Session,
    role: str | None,
    description: str | None,
    card: str | None,
    card_file: str | None,
) -> None:
    """Change role, description or card of the identity you hold; needs a lease.

    What is not given stays; an empty description or card is removed. Others see all of it in
    `mbx agents`.
    """
    if card is not None and card_file is not None:
        raise MbxError("usage", "give --card or --card-file, not both", "mbx identity set --help")
    if (role, description, card, card_file) == (None,) * 4:
        raise MbxError("usage", "nothing to set was given", "mbx identity set --help")
    text = card if card_file is None else _card_of(session, card_file)
    answer = session.change("identity.set", role=role, description=description, card=text)
    if session.output.as_json:
        session.output.document(answer)
        return
    lines = [session.output.strong(cell(answer.get("agent")))]
    for field in ("role", "description"):
        lines.append(f"  {field:<12} {cell(answer.get(field))}")
    size_chars = len(answer.get("card") or "")
    lines.append(f"  {'card':<12} {f'{size_chars:,} characters' if size_chars else '-'}")
    session.output.text(*lines)


@command(
    "rename",
    "Give your identity another name.",
    examples="""
    mbx identity rename api-dev-two
    """,
)
@click.argument("name", metavar="NEW")
def rename(session: Session, name: str) -> None:
    """Give the identity you hold the name NEW; needs a lease.

    Its mail, its threads and your hold stay with it. The old name is free at once.
    """
    answer = session.change("identity.rename", name=name)
    if session.output.as_json:
        session.output.document(answer)
        return
    address = session.output.strong(cell(answer.get("address")))
    session.output.text(f"you are {address}, before {cell(answer.get('old_name'))}")


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


def _card_of(session: Session, file: str) -> str:
    """The card in a file, or on standard input. Raises MbxError as `bodies` does."""
    from mbx.cli.bodies import BodySource
    from mbx.core.limits import CARD_MAX_CHARS

    try:
        return session.leased_text(BodySource(None, file))
    except MbxError as error:
        if error.code != "body-too-large":
            raise
        raise MbxError(
            "text-invalid",
            f"the card has {error.facts['size_bytes']:,} bytes; the limit is"
            f" {CARD_MAX_CHARS:,} characters",
            f"shorten the card to {CARD_MAX_CHARS:,} characters",
            field="card",
            limit_chars=CARD_MAX_CHARS,
        ) from None


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
