"""`mbx ack`."""

import click

from mbx.cli.command import command, completed, mailbox_method, owner_option
from mbx.cli.commands.send import warn
from mbx.cli.output import cell
from mbx.cli.session import Session
from mbx.core.errors import EXIT_STATUS
from mbx.wire import JsonObject


@command(
    "ack",
    "Say that you are done with messages.",
    examples="""
    mbx ack 7k2q9xw1 --did "moved the port to 8081"
    mbx ack 7k2q9xw1 c0ffee22 --outcome noted
    mbx ack --owner 7k2q9xw1 --did "8081 it is"
    """,
)
@click.argument(
    "ids", metavar="ID...", nargs=-1, required=True, shell_complete=completed("waiting_messages")
)
@click.option(
    "--outcome",
    metavar="OUTCOME",
    shell_complete=completed("outcomes"),
    help="acted, replied, noted, declined or superseded.",
)
@click.option(
    "--did", metavar="TEXT", help="What you did; the sender sees it, 200 characters kept."
)
@click.option("--note", metavar="TEXT", help="A note for the sender, at most 500 characters.")
@owner_option
def ack(
    session: Session,
    ids: tuple[str, ...],
    outcome: str | None,
    did: str | None,
    note: str | None,
    owner: bool,
) -> int:
    """Acknowledge messages: they leave your inbox and their senders learn it; needs a lease.

    Each ID may be a unique prefix of at least 6 characters. What fails is listed, the rest is done.
    With --owner the human acknowledges what agents sent to `owner`; that needs the owner's terminal
    and no lease (see `mbx inbox --help`).
    """
    method = mailbox_method("ack", owner)
    answer = session.change(method, ids=list(ids), outcome=outcome, did=did, note=note)
    failed = answer.get("failed") or []
    if session.output.as_json:
        session.output.document(answer)
    else:
        lines = [f"acked {cell(acked)}" for acked in answer.get("acked") or ()]
        session.output.text(*lines, f"unread {cell(answer.get('unread'))}")
        tell_failed(session, failed)
        warn(session, answer)
    return status_of(failed, len(ids))


def tell_failed(session: Session, failed: list[JsonObject]) -> None:
    """Print the items that failed on standard error."""
    for item in failed:
        why = f": {cell(item['message'])}" if item.get("message") else ""
        session.output.note(f"error: {cell(item.get('id'))}: {cell(item.get('code'))}{why}")


def status_of(failed: list[JsonObject], asked: int) -> int:
    """0 when nothing failed; the code's own status for a single item, else 1."""
    if not failed:
        return 0
    return EXIT_STATUS.get(str(failed[0].get("code")), 1) if asked == 1 else 1
