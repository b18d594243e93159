"""`mbx agents`."""

import click

from mbx.cli.command import command, completed
from mbx.cli.output import ago, cell
from mbx.cli.session import Session
from mbx.project import project_at
from mbx.wire import JsonObject


@command(
    "agents",
    "See who there is to write to, and who is there now.",
    examples="""
    mbx agents
    mbx agents rust review
    mbx agents --role backend --project .
    mbx agents --host desktop
    mbx agents --json
    """,
)
@click.argument("words", metavar="[QUERY]", nargs=-1)
@click.option(
    "--role", metavar="ROLE", shell_complete=completed("roles"), help="Only those with this role."
)
@click.option(
    "--project",
    metavar="PATH",
    shell_complete=completed("folders"),
    help="Only those of the project at PATH.",
)
@click.option(
    "--host",
    metavar="HOST",
    shell_complete=completed("hosts"),
    help="Only those of this host: its label here.",
)
def agents(
    session: Session,
    words: tuple[str, ...],
    role: str | None,
    project: str | None,
    host: str | None,
) -> None:
    """List identities with their role and whether somebody is there now.

    QUERY is words that all occur in name, role, description or card, in any case. It needs no
    lease and changes nothing. REACH says when mail of a kind that wakes is seen: the session is
    woken, or sees it at its next prompt. What a paired host says of its agents is its own word, as
    of when it was last heard of; that one rests, or is reached otherwise, when it has lasted for
    five minutes.
    """
    asked = {
        "host": host,
        "query": " ".join(words) or None,
        "role": role,
        "project": project_at(project) if project is not None else None,
    }
    answer = session.ask("agents.list", **asked)
    while answer["next_after"] is not None:  # more than one answer may carry
        more = session.ask("agents.list", **asked, after=answer["next_after"])
        answer = {**more, "agents": answer["agents"] + more["agents"]}
    if session.output.as_json:
        session.output.document(answer)
        return
    rows = [_row(entry, session.now_ms()) for entry in answer["agents"]]
    if rows:
        heads = ("ADDRESS", "ROLE", "STATE", "CLI", "REACH", "SEEN", "ABOUT")
        session.output.table(heads, rows, flexible=6)
    else:
        session.output.text("nobody like that" if any(asked.values()) else "nobody is here yet")


_REACHES = {"live-wake": "woken", "live-next-prompt": "next prompt"}
"""When mail of a kind that wakes is seen; of nobody who is there, nothing is said."""


def _row(entry: JsonObject, now_ms: int) -> list[str]:
    card = entry.get("card") or ""
    return [
        cell(entry.get("address")),
        cell(entry.get("role")),
        cell(entry.get("state")),
        cell(entry.get("cli")),
        cell(_REACHES.get(entry.get("reach") or "")),
        ago(entry.get("last_seen"), now_ms),
        cell(entry.get("description") or card.partition("\n")[0]),
    ]
