"""`mbx read`: whole bodies, page by page behind the scenes."""

import click

from mbx.cli.command import WHOLE, command, completed, mailbox_method, owner_option
from mbx.cli.commands.ack import status_of, tell_failed
from mbx.cli.commands.send import warn
from mbx.cli.session import Session
from mbx.core.errors import MbxError
from mbx.wire import JsonObject

CHARACTER_MAX_BYTES = 4
"""Of UTF-8: a page is at least this large, so that it holds a character."""


@command(
    "read",
    "Read messages and mark them read.",
    examples="""
    mbx read 7k2q9xw1
    mbx read 7k2q9xw1 c0ffee22 --json
    mbx read --raw 7k2q9xw1 > note.md
    mbx read --owner 7k2q9xw1
    """,
)
@click.argument(
    "ids", metavar="ID...", nargs=-1, required=True, shell_complete=completed("waiting_messages")
)
@click.option("--offset", metavar="N", type=WHOLE, help="Start N bytes into the body.")
@click.option("--max-bytes", metavar="N", type=WHOLE, help="At most N bytes of each body.")
@click.option("--raw", is_flag=True, help="The exact bytes of one body and nothing else.")
@owner_option
def read(
    session: Session,
    ids: tuple[str, ...],
    offset: int | None,
    max_bytes: int | None,
    raw: bool,
    owner: bool,
) -> int:
    """Read messages whole; needs a lease. Reading marks them read; `ack` clears them.

    Each ID may be a unique prefix of at least 6 characters. What stands behind "|" is the sender's
    own text: trust and policy lines stand outside of it. With --owner the human reads what agents
    sent to `owner`; that needs the owner's terminal and no lease (see `mbx inbox --help`).
    """
    if raw and (len(ids) != 1 or session.output.as_json):
        raise MbxError("usage", "--raw takes one ID and no --json", "mbx read --raw ID")
    method = mailbox_method("read", owner)
    answer = _fetch(session, method, ids, offset, max_bytes)
    for message in answer["messages"]:
        _complete(session, method, message, max_bytes)
    failed = answer["failed"]
    if session.output.as_json:
        session.output.document(answer)
    elif raw:
        for message in answer["messages"]:
            session.output.raw(message["body"].encode("utf-8"))
    else:
        session.output.text(*_shown(answer["messages"], session, " --owner" if owner else ""))
    if not session.output.as_json:
        tell_failed(session, failed)
        warn(session, answer)
    return status_of(failed, len(ids))


def _fetch(
    session: Session, method: str, ids: tuple[str, ...], offset: int | None, max_bytes: int | None
) -> JsonObject:
    """All messages, in the order asked for; what one answer had no room for is asked for again."""
    answer = session.ask(method, ids=list(ids), offset=offset, max_bytes=max_bytes)
    while left_out := [item for item in answer["failed"] if item["code"] == "too-many"]:
        again = [item["id"] for item in left_out]
        more = session.ask(method, ids=again, max_bytes=max_bytes)
        failed = [item for item in answer["failed"] if item not in left_out]
        messages = answer["messages"] + more["messages"]
        answer = more | {"messages": messages, "failed": failed + more["failed"]}
    answer["messages"].sort(key=lambda message: _place(message["id"], ids))
    return answer


def _place(message_id: str, ids: tuple[str, ...]) -> int:
    return next((n for n, asked in enumerate(ids) if message_id.startswith(asked)), len(ids))


def _complete(session: Session, method: str, message: JsonObject, max_bytes: int | None) -> None:
    """Fetch what an answer had no room for: to the end, or to `max_bytes` where that was asked."""
    have_bytes = len(message["body"].encode("utf-8"))
    pieces = [message["body"]]
    while message.get("next_offset") is not None:
        left = None if max_bytes is None else max_bytes - have_bytes
        if left is not None and left < CHARACTER_MAX_BYTES:
            break
        page = session.ask(
            method, ids=[message["id"]], offset=message["next_offset"], max_bytes=left
        )["messages"][0]
        size_bytes = len(page["body"].encode("utf-8"))
        pieces.append(page["body"])
        have_bytes += size_bytes
        message["next_offset"], message["truncated"] = page["next_offset"], page["truncated"]
    message["body"] = "".join(pieces)


def _shown(messages: list[JsonObject], session: Session, whose: str) -> list[str]:
    from mbx.core.framing import Shown, boundary_for, shown

    texts = []
    for message in messages:
        foreign = [message["subject"], message["body"], message.get("topic") or ""]
        boundary = boundary_for(session.draw_boundary, *foreign, *message["refs"])
        told = Shown.of(message, after=_after(message, whose))
        texts.append(shown(told, boundary, session.output.columns()))
    return ["\n\n".join(texts)] if texts else []


def _after(message: JsonObject, whose: str) -> tuple[str, ...]:
    count = message.get("imitations") or 0
    few = "1 line of it looks like a trust or policy line" if count == 1 else ""
    many = f"{count} lines of it look like trust or policy lines"
    told = (f"note: {few or many} of mbx; the sender wrote that",) if count else ()
    if message.get("next_offset") is None:
        return told
    more = f"mbx read{whose} {message['id']} --offset {message['next_offset']}"
    return (*told, f"cut: the body has {message['body_total']} bytes; more: {more}")
