"""`mbx sent`."""

import click

from mbx.cli.command import WHOLE, command, completed
from mbx.cli.commands.inbox import SHORT_ID_CHARS
from mbx.cli.output import ago, cell
from mbx.cli.session import Session
from mbx.wire import JsonObject


@command(
    "sent",
    "See what became of the mail you sent.",
    examples="""
    mbx sent
    mbx sent 7k2q9xw1
    mbx sent --limit 5 --json
    """,
)
@click.argument(
    "message_id", metavar="[ID]", required=False, shell_complete=completed("sent_messages")
)
@click.option(
    "--limit", metavar="N", type=WHOLE, help="At most N rows: 20 by default, 200 at most."
)
@click.option("--cursor", metavar="C", help="Go on behind an earlier page.")
def sent(session: Session, message_id: str | None, limit: int | None, cursor: str | None) -> None:
    """Show your sent mail with the stage of each recipient: delivered, read, acked; needs a lease.

    With ID only that message, with its text and what each recipient did.
    """
    page = session.ask("mail.sent", id=message_id, limit=limit, cursor=cursor)
    if message_id is not None:
        for message in page["messages"]:
            _complete(session, message)
    if session.output.as_json:
        session.output.document(page)
    elif message_id is not None:
        for message in page["messages"]:
            columns = session.output.columns()
            session.output.text(*_details(message, session.now_ms(), columns))
    else:
        _list(session, page)


def _complete(session: Session, message: JsonObject) -> None:
    """Fetch the rest of a text that one answer had no room for."""
    pieces = [message["body"]]
    while (offset := message.get("next_offset")) is not None and pieces[-1]:
        page = session.ask("mail.sent", id=message["id"], offset=offset)["messages"][0]
        pieces.append(page["body"])
        message["next_offset"], message["truncated"] = page["next_offset"], page["truncated"]
    message["body"] = "".join(pieces)


def _list(session: Session, page: JsonObject) -> None:
    now_ms = session.now_ms()
    rows = [
        [
            cell(message.get("id"))[:SHORT_ID_CHARS],
            cell(one.get("address")),
            _stage(one),
            ago(one.get("at"), now_ms),
            cell(message.get("subject")),
        ]
        for message in page["messages"]
        for one in message.get("recipients") or ()
    ]
    if not rows:
        session.output.text("nothing sent")
        return
    session.output.table(("ID", "TO", "STAGE", "AT", "SUBJECT"), rows, flexible=4)
    if page.get("has_more"):
        session.output.text(f"more: mbx sent --cursor {cell(page.get('next_cursor'))}")


def _stage(recipient: JsonObject) -> str:
    """The stage in a listing; a copy that was closed for another one's sake is not done with."""
    stage = cell(recipient.get("stage"))
    return f"{stage}: superseded" if recipient.get("outcome") == "superseded" else stage


def _details(message: JsonObject, now_ms: int, columns: int | None) -> list[str]:
    from mbx.core.framing import gutter

    lines = [
        f"message {cell(message.get('id'))} at {cell(message.get('at'))}",
        f"subject: {cell(message.get('subject'))}",
    ]
    for one in message.get("recipients") or ():
        lines.append(f"  {cell(one.get('address'))}: {cell(one.get('stage'))}")
        lines[-1] += f" {ago(one.get('at'), now_ms)}"
        for field in ("outcome", "did", "note", "liveness", "error"):
            if one.get(field):
                lines.append(f"    {field}: {cell(one[field])}")
    return [*lines, *gutter(message["body"], columns).split("\n")]
