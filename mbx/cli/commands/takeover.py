"""`mbx identity takeover`."""

import click

from mbx.cli.authority import carry_out, draft_option
from mbx.cli.command import command, completed
from mbx.cli.output import cell
from mbx.cli.session import Session
from mbx.core.errors import MbxError
from mbx.wire import JsonObject


@command(
    "takeover",
    "Give an identity to another session, whoever holds it.",
    examples="""
    mbx identity takeover ui-dev --force --cli claude --session 6e0c2f1e --reason "it hangs"
    mbx identity takeover ui-dev --force --cli shell --session 4812-120037
    """,
)
@click.argument("name", metavar="NAME", shell_complete=completed("names"))
@click.option("--force", is_flag=True, help="Do it; without this you are told what would happen.")
@click.option("--cli", metavar="CLI", required=True, help="The session's agent CLI, or shell.")
@click.option(
    "--session",
    "session_id",
    metavar="ID",
    required=True,
    help="The session's id, as `mbx whoami` says it there.",
)
@click.option("--reason", metavar="TEXT", help="Why, for the record.")
@draft_option
def takeover(
    session: Session,
    name: str,
    force: bool,
    cli: str,
    session_id: str,
    reason: str | None,
    draft_file: str | None,
) -> None:
    """Sign a takeover: the session named holds NAME from now on, and whoever held it no longer.

    For a holder that hangs, or that you cannot reach. The displaced session gets lease-lost on
    everything it sends from then on, and never takes the identity back by itself. The mail stays.

    The record names the epoch that it ends: if the lease changes hands before it is applied,
    nothing happens. It holds for five minutes. Run `mbx whoami` in the other session first.
    """
    if not force:
        _tell_plan(session, name, cli, session_id, reason)
        return
    carry_out(
        session,
        "takeover",
        draft_file,
        _tell,
        name=name,
        cli=cli,
        session=session_id,
        reason=reason,
    )


def _tell_plan(session: Session, name: str, cli: str, session_id: str, reason: str | None) -> None:
    """Say what would happen, by a draft that nobody signs: what cannot be is refused here too."""
    session.ask(
        "owner.draft", act="takeover", name=name, cli=cli, session=session_id, reason=reason
    )
    entry = session.ask("identity.show", name=name)
    holder = entry.get("holder")
    state = entry["state"]
    if holder:
        state = f"{state} by {cell(holder['cli'])} {cell(holder['session'])}"
    raise MbxError(
        "usage",
        f"{name} is {state}; it would go to {cli} {session_id}",
        "add --force to do it: you will be asked for your passphrase",
        holder=holder,
    )


def _tell(session: Session, answer: JsonObject) -> None:
    before, after = answer.get("before") or {}, answer.get("after") or {}
    again = "already " if answer.get("duplicate") else ""
    session.output.text(
        f"{again}taken over: {cell(answer.get('agent'))}",
        f"  before  {_side(before)}",
        f"  now     {_side(after)}",
    )


def _side(state: JsonObject) -> str:
    holder = state.get("holder")
    who = f"by {cell(holder.get('cli'))} {cell(holder.get('session'))}" if holder else ""
    return f"{cell(state.get('state'))} {who} (epoch {cell(state.get('epoch'))})".replace("  ", " ")
