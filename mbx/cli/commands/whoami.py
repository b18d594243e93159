"""`mbx whoami`."""

from mbx import __version__
from mbx.cli.command import command
from mbx.cli.output import ago, cell
from mbx.cli.session import Session
from mbx.wire import JsonObject


@command(
    "whoami",
    "Show your identity, your lease and what waits for you.",
    examples="""
    mbx whoami
    mbx whoami --json
    """,
)
def whoami(session: Session) -> None:
    """Show which identity this session holds, its lease and its unread mail.

    Without one it says how to get one. It needs no lease and changes nothing.
    """
    who = session.ask("session.whoami") | {"version": __version__}
    if session.output.as_json:
        session.output.document(who)
        return
    session.output.text(*_lines(who, session))


def _lines(who: JsonObject, session: Session) -> list[str]:
    lines = []
    if who.get("agent") is None:
        lines.append("no identity")
        if who.get("pending"):
            lines.append(f"  waits for  {cell(who['pending'])}")
    else:
        lines.append(session.output.strong(cell(who.get("address"))))
        lines.append(f"  role       {cell(who.get('role'))}")
        if who.get("description"):
            lines.append(f"  about      {cell(who['description'])}")
        lines.append(f"  unread     {cell(who.get('unread'))}")
    if who.get("project"):
        lines.append(f"  project    {cell(who['project'])}")
    if who.get("session"):
        lines.append(
            f"  session    {cell(who['session'].get('cli'))} {cell(who['session'].get('id'))}"
        )
    if who.get("lease"):
        since = ago(who["lease"].get("since"), session.now_ms())
        lines.append(f"  lease      epoch {cell(who['lease'].get('epoch'))}, held since {since}")
    for policy in who.get("policies") or ():
        classes = ", ".join(map(cell, policy["classes"])) or "nothing"
        told = (
            f"{cell(policy['level'])} ({classes}), mail from {', '.join(map(cell, policy['from']))}"
        )
        lines.append(f"  policy     {told}, ends {ago(policy['until'], session.now_ms())}")
    if who.get("external"):
        until = ago(who["external"], session.now_ms())
        lines.append(f"  outside    read what came from outside; its mark ends {until}")
    if who.get("daemon_version") not in (None, who.get("version")):
        lines.append(
            f"  daemon     {cell(who['daemon_version'])}, command {cell(who.get('version'))}"
        )
    if who.get("next"):
        lines.append(f"next: {cell(who['next'])}")
    return lines
