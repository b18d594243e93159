"""`mbx reply`."""

import click

from mbx.cli.bodies import source_of
from mbx.cli.command import body_options, command, completed, signed_option
from mbx.cli.commands.send import show_sent
from mbx.cli.session import Session
from mbx.core.errors import MbxError


@command(
    "reply",
    "Answer a message.",
    examples="""
    mbx reply 7k2q9xw1 -m "Yes, 8081."
    mbx reply 7k2q9xw1 --final acted --did "moved the port" -m "Done."
    ./report | mbx reply 7k2q9xw1 -
    """,
)
@click.argument("message_id", metavar="ID", shell_complete=completed("waiting_messages"))
@body_options
@click.option(
    "--kind", metavar="KIND", shell_complete=completed("kinds"), help="Another kind than reply."
)
@click.option("--needs-reply", is_flag=True, help="Ask for an answer; it wakes the recipient.")
@click.option(
    "--origin",
    metavar="external",
    shell_complete=completed("origins"),
    help="`external` when content came from outside.",
)
@click.option(
    "--final",
    metavar="OUTCOME",
    shell_complete=completed("outcomes"),
    help="Acknowledge it too: acted, replied, noted, declined or superseded.",
)
@click.option("--did", metavar="TEXT", help="With --final: what you did, 200 characters kept.")
@signed_option
def reply(
    session: Session,
    message_id: str,
    message: str | None,
    body_file: str | None,
    dash: str | None,
    kind: str | None,
    needs_reply: bool,
    origin: str | None,
    final: str | None,
    did: str | None,
    owner: bool,
) -> None:
    """Answer the sender of a message in its thread; needs a lease.

    What you reply to a message of your own goes to everybody who got that.

    ID may be a unique prefix of at least 6 characters.

    With --owner it answers mail of the owner, signed with the owner's key; no lease is needed.
    """
    if owner:
        from mbx.cli.authority import carry_out

        if final is None and did is not None:
            raise MbxError("usage", "--did goes with --final")
        carry_out(
            session,
            "reply",
            None,
            show_sent,
            id=message_id,
            body=source_of(message, body_file, dash).read(),
            kind=kind,
            needs_reply=needs_reply or None,
            origin=origin,
        )
        if final is not None:
            session.change("owner.ack", ids=[message_id], outcome=final, did=did)
        return
    answer = session.change(
        "mail.reply",
        id=message_id,
        body=session.leased_body(message, body_file, dash),
        kind=kind,
        needs_reply=needs_reply or None,
        origin=origin,
        final=final,
        did=did,
    )
    show_sent(session, answer)
