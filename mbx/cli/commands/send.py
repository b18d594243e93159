"""`mbx send`."""

import click

from mbx.cli.bodies import source_of
from mbx.cli.command import body_options, command, completed, signed_option
from mbx.cli.output import cell
from mbx.cli.session import Session
from mbx.core.errors import MbxError
from mbx.wire import JsonObject


@command(
    "send",
    "Send a message.",
    examples="""
    mbx send --to ui-dev --subject "Port" -m "The API listens on 8081 now."
    mbx send --to ui-dev,reviewer --kind request --subject "Review" --body-file note.md
    mbx send --to role:review --subject "Who has time?" -m "A small one." --needs-reply
    mbx send --to owner --kind decision --subject "Which port?" -m "8080 or 8081?"
    mbx send --to '*' --kind status --subject "Deploy" -m "Staging is down until noon."
    git diff | mbx send --to reviewer --subject "Diff" -
    """,
)
@click.option(
    "--to",
    "to",
    metavar="ADDRESS[,...]",
    multiple=True,
    required=True,
    shell_complete=completed("addresses"),
    help="Who gets it: NAME, NAME@HOST, role:ROLE, owner or '*'; repeatable.",
)
@click.option("--subject", metavar="TEXT", required=True, help="One line, at most 200 characters.")
@body_options
@click.option(
    "--kind",
    metavar="KIND",
    shell_complete=completed("kinds"),
    help="message (default), request, task, decision, alert, reply or status.",
)
@click.option("--needs-reply", is_flag=True, help="Ask for an answer; it wakes the recipient.")
@click.option(
    "--reply-to",
    metavar="ID",
    shell_complete=completed("received_messages"),
    help="The message that this one answers.",
)
@click.option("--topic", metavar="TEXT", help="What it is about, for listings.")
@click.option(
    "--ref", "refs", metavar="REF", multiple=True, help="A file, commit or address; repeatable."
)
@click.option(
    "--origin",
    metavar="external",
    shell_complete=completed("origins"),
    help="`external` when content came from outside.",
)
@click.option("--key", metavar="KEY", help="Idempotency key: the same key never sends twice.")
@signed_option
def send(
    session: Session,
    to: tuple[str, ...],
    subject: str,
    message: str | None,
    body_file: str | None,
    dash: str | None,
    kind: str | None,
    needs_reply: bool,
    reply_to: str | None,
    topic: str | None,
    refs: tuple[str, ...],
    origin: str | None,
    key: str | None,
    owner: bool,
) -> None:
    """Send a message; needs a lease.

    An address is a name, NAME@HOST, role:ROLE (everybody else with that role), owner (the human of
    this host) or '*' (everybody else; it wakes nobody). Whom several addresses reach gets it once.

    Give the body as -m BODY, --body-file FILE or - (standard input): UTF-8, at most 262,144
    bytes. The answer says, for each recipient, who will see it when.

    With --owner it is the human's own letter, signed with the owner's key; no lease is needed.
    """
    words = {
        "to": addresses(to),
        "subject": subject,
        "kind": kind,
        "needs_reply": needs_reply or None,
        "topic": topic,
        "refs": list(refs) or None,
        "origin": origin,
    }
    if owner:
        from mbx.cli.authority import carry_out

        if key is not None or reply_to is not None:
            step = "leave it out; to answer a message: mbx reply --owner ID -m BODY"
            raise MbxError("usage", "--key and --reply-to do not go with --owner", step)
        body = source_of(message, body_file, dash).read()
        carry_out(session, "send", None, show_sent, body=body, **words)
        return
    body = session.leased_body(message, body_file, dash)
    answer = session.change("mail.send", key=key, body=body, reply_to=reply_to, **words)
    show_sent(session, answer)


def addresses(given: tuple[str, ...]) -> list[str]:
    """The addresses in repeated and comma-separated options."""
    return [address.strip() for group in given for address in group.split(",")]


def show_sent(session: Session, answer: JsonObject) -> None:
    """Print what `mail.send` or `mail.reply` answered."""
    if session.output.as_json:
        session.output.document(answer)
        return
    verb = "already sent as" if answer.get("duplicate") else "sent"
    lines = [f"{verb} {cell(answer.get('id'))} (thread {cell(answer.get('thread'))})"]
    for one in answer.get("recipients") or ():
        detail = f" ({cell(one['detail'])})" if one.get("detail") else ""
        lines.append(f"  {cell(one.get('address'))}: {cell(one.get('state'))}{detail}")
    session.output.text(*lines)
    warn(session, answer)


def warn(session: Session, answer: JsonObject) -> None:
    """Print the warnings of an answer on standard error."""
    for warning in answer.get("warnings") or ():
        session.output.note(f"warning: {cell(warning)}")
