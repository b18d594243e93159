"""`mbx thread`."""

import click

from mbx.cli.command import command, completed
from mbx.cli.commands.inbox import SHORT_ID_CHARS
from mbx.cli.output import ago, cell
from mbx.cli.session import Session
from mbx.wire import JsonObject

INDENT_MAX_LEVELS = 8
"""Deeper answers stand no further to the right: half a line of 80 columns is for the text."""


@command(
    "thread",
    "Show a whole conversation.",
    examples="""
    mbx thread 7k2q9xw1
    mbx thread 7k2q9xw1 --json
    """,
)
@click.argument("message_id", metavar="ID", shell_complete=completed("known_messages"))
def thread(session: Session, message_id: str) -> None:
    """Show the conversation of a message, answers below what they answer; needs a lease.

    ID is any message of it, or a unique prefix of at least 6 characters. What you sent is shown
    with the stage of every recipient. Bodies are not shown and nothing is marked read.
    """
    answer = session.ask("mail.thread", id=message_id)
    whole = answer["thread"]
    while answer["has_more"]:  # more than one answer may carry
        more = session.ask("mail.thread", id=whole, cursor=answer["next_cursor"])
        answer = {**more, "messages": answer["messages"] + more["messages"]}
    if session.output.as_json:
        session.output.document(answer)
        return
    session.output.fitted(*_story(whole, answer["messages"], session.now_ms()))


def told_in_order(thread_id: str, messages: list[JsonObject]) -> list[tuple[int, JsonObject]]:
    """(level, message): each answer one level below what it answers, otherwise as they came.

    An answer to a message that is not there stands below the root.
    """
    known = {message["id"] for message in messages}
    below: dict[str | None, list[JsonObject]] = {}
    for message in messages:
        parents = (one for one in (message.get("reply_to"), thread_id) if one in known)
        parent = next(parents, None)
        parent = parent if parent != message["id"] else None
        below.setdefault(parent, []).append(message)
    told: list[tuple[int, JsonObject]] = []
    waiting = [(0, message) for message in reversed(below.get(None, []))]
    while waiting:
        level, message = waiting.pop()
        told.append((level, message))
        waiting += [(level + 1, answer) for answer in reversed(below.get(message["id"], []))]
    return told


def _story(thread_id: str, messages: list[JsonObject], now_ms: int) -> list[str]:
    count = f"{len(messages)} message{'' if len(messages) == 1 else 's'}"
    lines = [f"thread {cell(thread_id)}, {count}"]
    subject = None
    for level, message in told_in_order(thread_id, messages):
        indent = "  " * min(level, INDENT_MAX_LEVELS)
        lines += [indent + line for line in _told(message, subject, now_ms)]
        subject = message.get("subject")
    return lines


def _told(message: JsonObject, subject_above: object, now_ms: int) -> list[str]:
    kind = cell(message.get("kind"))
    kind += " (needs reply)" if message.get("needs_reply") else ""
    facts = [message.get("from"), ago(message.get("at"), now_ms), kind]
    lines = ["  ".join([cell(message.get("id"))[:SHORT_ID_CHARS], *map(cell, facts)])]
    if message.get("subject") != subject_above:  # answers keep the subject
        lines.append(f"  {cell(message.get('subject'))}")
    for one in message.get("recipients") or ():
        lines.append(f"  {_receipt(one, now_ms)}")
    return lines


def _receipt(one: JsonObject, now_ms: int) -> str:
    """What is known of one recipient's copy, on one line."""
    said = f"to {cell(one.get('address'))}: {cell(one.get('stage'))} {ago(one.get('at'), now_ms)}"
    words = [cell(one[field]) for field in ("outcome", "did", "note", "error") if one.get(field)]
    return f"{said} ({'; '.join(words)})" if words else said
