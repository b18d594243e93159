"""`mbx search`."""

import click

from mbx.cli.command import WHOLE, command, completed
from mbx.cli.commands.inbox import SHORT_ID_CHARS
from mbx.cli.output import ago, cell
from mbx.cli.session import Session
from mbx.paths import quoted
from mbx.wire import JsonObject


@command(
    "search",
    "Find your mail by words.",
    examples="""
    mbx search port 8081
    mbx search --from api-dev --since 2d deploy
    mbx search --kind decision --until 2026-03-01 --limit 50 --json cache
    mbx search -- --no-verify
    """,
)
@click.argument("words", metavar="WORDS...", nargs=-1, required=True)
@click.option(
    "--from",
    "sender",
    metavar="ADDRESS",
    shell_complete=completed("names"),
    help="Only from this sender.",
)
@click.option(
    "--to",
    "recipient",
    metavar="ADDRESS",
    shell_complete=completed("names"),
    help="Only to this recipient.",
)
@click.option("--kind", metavar="KIND", shell_complete=completed("kinds"), help="Only this kind.")
@click.option(
    "--since", metavar="WHEN", help="From then on: 2026-01-31, 2026-01-31T12:00Z, 2h, 3d."
)
@click.option("--until", metavar="WHEN", help="Before then.")
@click.option(
    "--limit", metavar="N", type=WHOLE, help="At most N rows: 20 by default, 200 at most."
)
@click.option("--cursor", metavar="C", help="Go on behind an earlier page.")
def search(
    session: Session,
    words: tuple[str, ...],
    sender: str | None,
    recipient: str | None,
    kind: str | None,
    since: str | None,
    until: str | None,
    limit: int | None,
    cursor: str | None,
) -> None:
    """Find mail that you sent or received and that holds all of WORDS, newest first; needs a lease.

    Words are taken as they are: no sign in them has a meaning. Case and accents do not count.
    """
    query = " ".join(words)
    filters = {"from": sender, "to": recipient, "kind": kind, "since": since, "until": until}
    page = session.ask("mail.search", query=query, limit=limit, cursor=cursor, **filters)
    if session.output.as_json:
        session.output.document(page)
        return
    for message in page["messages"]:
        _tell(session, message, query.split())
    if not page["messages"]:
        session.output.text("no mail of yours holds these words")
    if page["has_more"]:
        given = [
            f"--{name} {quoted(value)}" for name, value in filters.items() if value is not None
        ]
        given += [f"--limit {limit}"] if limit is not None else []
        again = ["mbx search", *given, f"--cursor {page['next_cursor']}", "--", *map(quoted, words)]
        session.output.text(f"more: {cell(' '.join(again))}")


def _tell(session: Session, message: JsonObject, words: list[str]) -> None:
    """One message: where it stands, its subject, the place where the words are."""
    from mbx.core.text import clip, visible

    output = session.output
    facts = [
        cell(message.get("id"))[:SHORT_ID_CHARS],
        cell(message.get("from")),
        ago(message.get("at"), session.now_ms()),
        cell(message.get("kind")),
        cell(message.get("stage") or "sent"),
    ]
    output.fitted("  ".join(facts))
    limit = output.columns()
    for text in (message.get("subject"), message.get("snippet")):
        line = f"  {cell(text)}"
        line = line if limit is None else clip(line, limit)
        output.text(output.highlighted(line, [visible(word) for word in words]))
