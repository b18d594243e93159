"""`mbx inbox`."""

from collections.abc import Mapping
from typing import Any

import click

from mbx.cli.command import WHOLE, command, completed, mailbox_method, owner_option
from mbx.cli.output import ago, cell
from mbx.cli.session import Session
from mbx.paths import quoted
from mbx.wire import JsonObject

SHORT_ID_CHARS = 12
"""Characters of an id in listings: 60 of its 130 bits; a unique prefix of 6 names a message."""


@command(
    "inbox",
    "List mail that waits for you; changes nothing.",
    examples="""
    mbx inbox
    mbx inbox --kind request --from api-dev
    mbx inbox --limit 50 --all --json
    mbx inbox --owner
    """,
)
@click.option(
    "--limit", metavar="N", type=WHOLE, help="At most N rows: 20 by default, 200 at most."
)
@click.option("--cursor", metavar="C", help="Go on behind an earlier page.")
@click.option("--all", "everything", is_flag=True, help="Acknowledged mail too.")
@click.option("--kind", metavar="KIND", shell_complete=completed("kinds"), help="Only this kind.")
@click.option(
    "--from",
    "sender",
    metavar="ADDRESS",
    shell_complete=completed("names"),
    help="Only from this sender.",
)
@owner_option
def inbox(
    session: Session,
    limit: int | None,
    cursor: str | None,
    everything: bool,
    kind: str | None,
    sender: str | None,
    owner: bool,
) -> None:
    """List mail that is not acknowledged yet, oldest first. Listing changes no state.

    With --owner you see what agents sent to `owner`. That is for the human alone: the command must
    be typed in a terminal, and no agent CLI may be above it, whatever lies in between.
    """
    asked = {"kind": kind, "from": sender, "all": everything or None, "limit": limit}
    page = _page(session, mailbox_method("inbox", owner), {**asked, "cursor": cursor})
    if session.output.as_json:
        session.output.document(page)
        return
    rows = [_row(message, session.now_ms()) for message in page["messages"]]
    if rows:
        heads = ("ID", "FROM", "KIND", "STATE", "AT", "SUBJECT")
        session.output.table(heads, rows, flexible=5)
    session.output.text(*_closing(page, " --owner" if owner else "", asked))


def _page(session: Session, method: str, asked: Mapping[str, Any]) -> JsonObject:
    """The first page that has something: one of the daemon's may be empty and yet not the last."""
    page = session.ask(method, **asked)
    while page["has_more"] and not page["messages"]:
        page = session.ask(method, **{**asked, "cursor": page["next_cursor"]})
    return page


def _row(message: JsonObject, now_ms: int) -> list[str]:
    kind = cell(message.get("kind"))
    return [
        cell(message.get("id"))[:SHORT_ID_CHARS],
        cell(message.get("from")),
        f"{kind} (needs reply)" if message.get("needs_reply") else kind,
        cell(message.get("stage")),
        ago(message.get("at"), now_ms),
        cell(message.get("subject")),
    ]


def _closing(page: JsonObject, whose: str, asked: Mapping[str, Any]) -> list[str]:
    lines = [f"unread {cell(page.get('unread'))}" if page["messages"] else "no mail waits for you"]
    if page.get("has_more"):
        given = [
            f" --{name}" if value is True else f" --{name} {quoted(str(value))}"
            for name, value in asked.items()
            if value is not None
        ]
        again = f"mbx inbox{whose}{''.join(given)} --cursor {page['next_cursor']}"
        lines.append(f"more: {cell(again)}")
    elif page["messages"]:
        lines.append(f"next: mbx read{whose} ID")
    return lines
