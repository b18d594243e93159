"""`mbx identity retire`, `forward`, `prune`: the owner ends identities. No mail is deleted."""

import click

from mbx.cli.authority import carry_out, draft_option
from mbx.cli.command import command, completed
from mbx.cli.output import ago, cell
from mbx.cli.session import Session
from mbx.core.limits import PRUNE_DAYS, PRUNE_DAYS_MAX
from mbx.wire import JsonObject


@command(
    "retire",
    "End an identity for good; its mail stays.",
    examples="""
    mbx identity retire api-dev-old
    mbx identity retire api-dev-old --draft request.json
    """,
)
@click.argument("name", metavar="NAME", shell_complete=completed("names"))
@draft_option
def retire(session: Session, name: str, draft_file: str | None) -> None:
    """Sign the end of the identity NAME: nobody can hold it or write to it any more.

    No mail is deleted: others still see what it sent them, and its name stays taken. Who writes to
    it is told that it is closed; to let somebody else have its mail, use `mbx identity forward`.

    You are shown its state first; nothing happens before you agree. An identity that somebody holds
    is refused, and so is one that was claimed since you were asked.
    """
    carry_out(session, "retire", draft_file, _tell_retired, name=name)


@command(
    "forward",
    "Let another identity have the mail of one.",
    examples="""
    mbx identity forward api-dev-old api-dev
    """,
)
@click.argument("old", metavar="OLD", shell_complete=completed("names"))
@click.argument("new", metavar="NEW", shell_complete=completed("names"))
@draft_option
def forward(session: Session, old: str, new: str, draft_file: str | None) -> None:
    """Sign a forward: OLD is retired, if it is not yet, and NEW gets its mail from now on.

    What OLD has not acked is handed to NEW too, and its senders see "forwarded to NEW" in
    `mbx sent`. Who writes to OLD from now on is told the same. Policies are not handed on: what
    NEW may do stays what it was.

    You are shown both first; nothing happens before you agree. If somebody holds OLD it is refused.
    """
    carry_out(session, "forward", draft_file, _tell_forwarded, name=old, to=new)


@command(
    "prune",
    "List identities that nobody uses; with --apply, retire them.",
    examples="""
    mbx identity prune
    mbx identity prune --days 90
    mbx identity prune --days 90 --apply
    """,
)
@click.option(
    "--days",
    type=click.IntRange(1, PRUNE_DAYS_MAX),
    metavar="N",
    default=PRUNE_DAYS,
    show_default=True,
    help="Those that nobody has used for so long.",
)
@click.option("--apply", "applying", is_flag=True, help="Retire them; asks for the passphrase.")
@draft_option
def prune(session: Session, days: int, applying: bool, draft_file: str | None) -> None:
    """List what could be retired and why the others stay; this changes nothing.

    An identity stays if somebody holds it, or may hold it for all that is known, if it was used
    within the days given, or if it has unacked mail. With --apply you sign the end of the others,
    at most 64 at once; what became needed meanwhile makes all of it fail.
    """
    if not applying and draft_file is None:
        _preview(session, session.ask("identity.prunable", days=days))
        return
    carry_out(session, "prune", draft_file, _tell_retired, days=days)


def _preview(session: Session, answer: JsonObject) -> None:
    if session.output.as_json:
        session.output.document(answer)
        return
    fit, kept = answer["prunable"], answer["staying"]
    rows = [_row(one, "can be retired", session.now_ms()) for one in fit]
    rows += [_row(one, one.get("reason"), session.now_ms()) for one in kept]
    if not rows:
        session.output.text("no identities")
        return
    session.output.table(("NAME", "ROLE", "USED", "WHY"), rows, flexible=3)
    unlisted = answer["prunable_total"] + answer["staying_total"] - len(rows)
    if unlisted:
        session.output.text(f"and {unlisted:,} more")
    if fit:
        total = answer["prunable_total"]
        most = f", {answer['at_once']} at once" if total > answer["at_once"] else ""
        session.output.text(
            f"next: mbx identity prune --days {answer['days']} --apply  (retires {total:,}{most})"
        )
    else:
        session.output.text(f"nothing to retire that nobody has used for {answer['days']} days")


def _row(entry: JsonObject, why: object, now_ms: int) -> list[str]:
    used = ago(entry.get("last_used"), now_ms)
    return [cell(entry.get("name")), cell(entry.get("role")), used, cell(why)]


def _tell_retired(session: Session, answer: JsonObject) -> None:
    again = "already retired" if answer.get("duplicate") else "retired"
    lines = []
    for one in answer.get("before") or ():
        unacked = one.get("unacked")
        mail = f"; {unacked:,} unacked stay in its mailbox" if unacked else ""
        lines.append(f"{again}: {session.output.strong(cell(one.get('name')))}{mail}")
    session.output.text(*lines, "no mail was deleted")


def _tell_forwarded(session: Session, answer: JsonObject) -> None:
    again = "already forwarded" if answer.get("duplicate") else "forwarded"
    old = session.output.strong(cell(answer.get("agent")))
    lines = [f"{again}: {old} to {cell(answer.get('forwarded_to'))}"]
    lines.append(f"  unacked messages handed on: {cell(answer.get('moved'))}")
    if answer.get("left"):
        lines.append(f"  still to follow, by itself: {cell(answer.get('left'))}")
    session.output.text(*lines)
