"""`mbx whoami`."""

from mbx import __version__
from mbx.cli.command import command
from mbx.cli.output import ago, cell
from mbx.cli.session import Session
from mbx.paths import quoted
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
    named = session.environ.get("MBX_AGENT")
    if named and who.get("session") and who.get("agent") is None and not who.get("pending"):
        who["next"] = f"mbx identity claim {quoted(named)}"  # it was not given: this says why
    if session.output.as_json:
        session.output.document(who)
        return
    session.output.text(*_lines(who, session))


def _held(who: JsonObject, session: Session) -> list[str]:
    lines = [session.output.strong(cell(who.get("address")))]
    lines.append(f"  role       {cell(who.get('role'))}")
    if who.get("description"):
        lines.append(f"  about      {cell(who['description'])}")
    return [*lines, f"  unread     {cell(who.get('unread'))}"]


def _nothing_held(who: JsonObject) -> list[str]:
    lines = ["no identity"]
    if who.get("pending"):
        lines.append(f"  waits for  {cell(who['pending'])}")
    if who.get("lost"):
        lines.append(f"  lost       {cell(who['lost'])}")
    return lines


def _lines(who: JsonObject, session: Session) -> list[str]:
    lines = _held(who, session) if who.get("agent") is not None else _nothing_held(who)
    if who.get("project"):
        lines.append(f"  project    {cell(who['project'])}")
    if who.get("session"):
        lines.append(
            f"  session    {cell(who['session'].get('cli'))} {cell(who['session'].get('id'))}"
        )
    elif who.get("lineage"):
        lines.append(f"  session    none: {cell(who['lineage'])}")
    if who.get("lease"):
        since = ago(who["lease"].get("since"), session.now_ms())
        lines.append(f"  lease      epoch {cell(who['lease'].get('epoch'))}, held since {since}")
    for policy in who.get("policies") or ():
        classes = ", ".join(map(cell, policy["classes"])) or "nothing"
        told = (
            f"{cell(policy['level'])} ({classes}), mail from {', '.join(map(cell, policy['from']))}"
        )
        lines.append(f"  policy     {told}, ends {ago(policy['until'], session.now_ms())}")
        lines += [
            f"             not for mail from {cell(part['from'])}: a newer policy governs there"
            for part in policy.get("superseded") or ()
        ]
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
