"""`mbx status`: one screen about the daemon, the caller and its mail, from what others ask too."""

from collections.abc import Callable

from mbx.cli.command import command
from mbx.cli.commands.daemon import STATUS_FIELDS
from mbx.cli.commands.inbox import SHORT_ID_CHARS
from mbx.cli.output import ago, cell
from mbx.cli.session import Session
from mbx.client import NoDaemon
from mbx.core.limits import LIST_MAX_ROWS
from mbx.wire import JsonObject

PAGES_MAX = 10
"""How many pages of mail are looked through for one message: a screen is not worth more."""


@command(
    "status",
    "See daemon, identity and waiting mail on one screen.",
    examples="""
    mbx status
    mbx status --json
    """,
)
def status(session: Session) -> None:
    """Say on one screen whether the daemon runs, who you are and which mail waits for whom.

    It needs no lease, changes nothing and starts nothing.
    """
    said = _gathered(session)
    if session.output.as_json:
        session.output.document(said)
    else:
        session.output.fitted(*_lines(said, session.now_ms()))


def _gathered(session: Session) -> JsonObject:
    """The whole object; its fields are there whether a daemon runs or not."""
    daemon: JsonObject = dict.fromkeys(STATUS_FIELDS) | {"running": False}
    said: JsonObject = {"who": None, "oldest_unread": None, "last_unacked": None, "peers": None}
    try:
        daemon |= _ask(session, "daemon.status")
        who = said["who"] = _ask(session, "session.whoami")
        if who.get("agent") is not None:
            if who.get("unread"):
                said["oldest_unread"] = _first(session, "mail.inbox", _is_unread)
            said["last_unacked"] = _first(session, "mail.sent", _is_open)
        said["peers"] = _ask(session, "peers.list")["peers"]
    except NoDaemon:  # none runs, or it has just ended
        daemon = dict.fromkeys(STATUS_FIELDS) | {"running": False}
    return {"daemon": daemon, **said}


def peers_words(peers: list[JsonObject], now_ms: int) -> str:
    """All paired hosts on one line; those whose links do not stand come first."""
    from mbx.cli.commands.peers import link_words

    told = [
        f"{cell(one['label'])} {link_words(one, now_ms)}"
        + ("" if one["state"] == "up" else f" (seen {ago(one.get('last_seen'), now_ms)})")
        for one in sorted(peers, key=lambda one: bool(one["state"] == "up"))
    ]
    waits = sum(one["queued"] for one in peers)
    if waits:
        told.append(f"{waits:,} {'message waits' if waits == 1 else 'messages wait'}")
    return f"{len(peers)}: {', '.join(told)}"


def _ask(session: Session, method: str, **params: object) -> JsonObject:
    return session.client(starting=False).call(method, params, changes=False)


def _first(
    session: Session, method: str, wanted: Callable[[JsonObject], bool]
) -> JsonObject | None:
    """The first message of a listing that is wanted; None when there is none in `PAGES_MAX`."""
    asked: JsonObject = {"limit": LIST_MAX_ROWS}
    for _ in range(PAGES_MAX):
        page = _ask(session, method, **asked)
        found = next(filter(wanted, page["messages"]), None)
        if found is not None or not page["has_more"]:
            return found
        asked["cursor"] = page["next_cursor"]
    return None


def _is_unread(message: JsonObject) -> bool:
    return message["stage"] not in ("read", "acked")


def _is_open(message: JsonObject) -> bool:
    return any(one["stage"] != "acked" for one in message["recipients"])


def _lines(said: JsonObject, now_ms: int) -> list[str]:
    daemon, who = said["daemon"], said["who"]
    if who is None:
        return ["daemon  not running; the next command that needs it starts it"]
    lines = [f"daemon  running, process {cell(daemon['pid'])}, mbx {cell(daemon['version'])}"]
    if who.get("agent") is None:
        waits = f", waits for {cell(who['pending'])}" if who.get("pending") else ""
        lines.append(f"you     no identity{waits}")
        lines += [f"lost    {cell(who['lost'])}"] if who.get("lost") else []
    else:
        lines += [
            f"you     {cell(who.get('address'))}, {cell(who.get('role'))}",
            f"unread  {_unread(who.get('unread'), said['oldest_unread'], now_ms)}",
            f"sent    {_unacked(said['last_unacked'], now_ms)}",
        ]
    if said.get("peers"):
        lines.append(f"peers   {peers_words(said['peers'], now_ms)}")
    step = who.get("next") or ("mbx inbox" if who.get("unread") else None)
    return [*lines, f"next: {cell(step)}"] if step else lines


def _unread(count: object, oldest: JsonObject | None, now_ms: int) -> str:
    if oldest is None:
        return cell(count)
    told = f"{ago(oldest.get('at'), now_ms)} from {cell(oldest.get('from'))}"
    return f"{cell(count)}; the oldest: {told}: {_named(oldest)}"


def _unacked(message: JsonObject | None, now_ms: int) -> str:
    if message is None:
        return "nothing that waits for an ack"
    waits = [one for one in message["recipients"] if one["stage"] != "acked"]
    whom = f"{cell(waits[0]['address'])} ({cell(waits[0]['stage'])})"
    more = f" and {len(waits) - 1} more" if len(waits) > 1 else ""
    return f"{ago(message.get('at'), now_ms)}, waits for {whom}{more}: {_named(message)}"


def _named(message: JsonObject) -> str:
    return f"{cell(message.get('id'))[:SHORT_ID_CHARS]} {cell(message.get('subject'))}"
