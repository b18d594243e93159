"""`mbx peers …`: list, show, ping, addr, remove."""

import click

from mbx.cli.authority import carry_out, draft_option
from mbx.cli.command import command, completed
from mbx.cli.output import ago, cell
from mbx.cli.session import Session
from mbx.wire import JsonObject

PING_S = 5.0
"""How long an answer of a paired host is waited for."""

_AGAIN_S = 0.02
_LABEL_CHARS = 10


@command(
    "list",
    "List paired hosts, their links and what waits for them.",
    examples="""
    mbx peers list
    mbx peers list --all
    mbx peers list --json
    """,
)
@click.option("--all", "everything", is_flag=True, help="Also those that were removed.")
def list_(session: Session, everything: bool) -> None:
    """List the hosts that are paired with this one: whether a link stands, and what waits.

    A host that says that it has removed this one stays in the list until you remove it too. It
    needs no lease and changes nothing.
    """
    answer = session.ask("peers.list", all=everything or None)
    if session.output.as_json:
        session.output.document(answer)
        return
    now_ms = session.now_ms()
    rows = [_row(one, now_ms) for one in answer["peers"]]
    if not rows:
        session.output.text("no paired hosts", "next: mbx pair  (then mbx join, on the other host)")
        return
    heads = ("HOST", "LINK", "SEEN", "WAITING", "OWNER", "ABOUT")
    bold = {(no, 1) for no, one in enumerate(answer["peers"]) if one["state"] != "up"}
    session.output.table(heads, rows, flexible=5, bold=bold)
    for one in answer["peers"]:
        if one.get("next"):
            session.output.text(f"next: {cell(one['next'])}")
    fault = answer.get("network_fault") or answer.get("listener_fault")
    if fault is not None:
        session.output.text(f"this host: {cell(fault)}", "next: mbx doctor")


@command(
    "show",
    "Show one paired host: key, addresses, link, streams.",
    examples="""
    mbx peers show desktop
    """,
)
@click.argument("label", metavar="HOST", shell_complete=completed("peers"))
def show(session: Session, label: str) -> None:
    """Show everything about one paired host.

    Its key id is shown in groups, so that two people can compare it: `mbx peers list --json` on
    that host tells its own.
    """
    answer = session.ask("peers.show", name=label)
    if session.output.as_json:
        session.output.document(answer)
    else:
        session.output.text(*_lines(answer, session.now_ms()))


@command(
    "ping",
    "Ask a paired host for a sign of life.",
    examples="""
    mbx peers ping desktop
    """,
)
@click.argument("label", metavar="HOST", shell_complete=completed("peers"))
def ping(session: Session, label: str) -> int:
    """Say how long a question takes to a paired host and back.

    Without a link, one is tried for at once, however long the next try would be away. Exit 1 if
    that fails, or no answer comes within 5 seconds.
    """
    said = _answered(session, label)
    answers = said["round_trip_ms"] is not None
    if session.output.as_json:
        session.output.document({**said, "answers": answers})
    else:
        session.output.text(*_pinged(said, session.now_ms()))
    return 0 if answers else 1


@command(
    "addr",
    "Change where a paired host is dialled, or what it is called here.",
    examples="""
    mbx peers addr desktop 192.168.1.20
    mbx peers addr desktop desktop.local:24629 [fd00::20]:24629
    mbx peers addr desktop --label tower
    mbx peers addr desktop
    """,
)
@click.argument("label", metavar="HOST", shell_complete=completed("peers"))
@click.argument("addresses", metavar="[ADDRESS...]", nargs=-1)
@click.option("--label", "new_label", metavar="NAME", help="Call it so on this host from now on.")
@draft_option
def addr(
    session: Session,
    label: str,
    addresses: tuple[str, ...],
    new_label: str | None,
    draft_file: str | None,
) -> None:
    """Sign other addresses for a paired host, in the order they are tried, or another label.

    ADDRESS is a name, an IPv4 or an IPv6 address, with :PORT if it is not 24629. They replace the
    ones before. The host stays the one whose key you compared: another key needs a new pairing.

    A link that was stopped because two copies of that host were met goes on once you have signed;
    without ADDRESS the addresses stay. Stop the copy first.
    """
    carry_out(
        session,
        "peer-change",
        draft_file,
        _tell_changed,
        name=label,
        addresses=list(addresses) or None,
        label=new_label,
    )


@command(
    "remove",
    "End a pairing: nothing is sent there or taken from there any more.",
    examples="""
    mbx peers remove old-laptop
    mbx peers remove old-laptop --reason "sold"
    """,
)
@click.argument("label", metavar="HOST", shell_complete=completed("peers"))
@click.option("--reason", metavar="TEXT", help="Why, for the record.")
@draft_option
def remove(session: Session, label: str, reason: str | None, draft_file: str | None) -> None:
    """Sign the end of a pairing: its link ends at once, and nothing it sends is taken any more.

    Mail that waits for it returns to its senders; mail that is here stays. That host is told when
    it next has or tries a link. It is remembered: only a new pairing brings it back.
    """
    carry_out(session, "unpair", draft_file, _tell_removed, name=label, reason=reason)


# -- words ----------------------------------------------------------------------------------------


def link_words(one: JsonObject, now_ms: int) -> str:
    """How the link to a host is, in few words."""
    state, link = one["state"], one.get("link") or {}
    if state == "up":
        return f"up {_span(link.get('since'), now_ms)}"
    if state != "down":
        return {"stopped": "stopped", "removed": "removed", "removed-us": "removed us"}[state]
    return "down"


def _span(at: object, now_ms: int) -> str:
    return ago(at, now_ms).removesuffix(" ago")


def _row(one: JsonObject, now_ms: int) -> list[str]:
    return [
        cell(one["label"]),
        link_words(one, now_ms),
        ago(one.get("last_seen"), now_ms),
        _waiting(one, now_ms),
        cell(one["owner"]),
        about(one, now_ms),
    ]


def about(one: JsonObject, now_ms: int) -> str:
    """Why the link is as it is, and since when; that it was stopped lately goes before."""
    parted = one.get("parted")
    if parted:
        return cell(f"was stopped {ago(parted['at'], now_ms)}: {parted['reason']}")
    since = (one.get("link") or {}).get("refused_since")
    return cell(one.get("reason")) + (f" (for {_span(since, now_ms)})" if since else "")


def _waiting(one: JsonObject, now_ms: int) -> str:
    count = one["queued"]
    return f"{count:,}, {_span(one.get('oldest_at'), now_ms)}" if count else "-"


def _lines(one: JsonObject, now_ms: int) -> list[str]:
    from mbx.core.text import visible

    link, sending, receiving = one.get("link") or {}, one["sending"], one["receiving"]
    parted = one.get("parted")
    told = {
        "host": f"{cell(one['label'])}, calls itself {cell(one['told_label'])}",
        "key id": _grouped(cell(one["host"])),
        "owner": f"{cell(one['owner'])} ({cell(one.get('owner_key') or 'no power here')})",
        "addresses": ", ".join(map(cell, one["addresses"])) or "none: it is for that host to dial",
        "says": f"it is at {', '.join(map(cell, one['told_addresses']))}"
        if one["told_addresses"]
        else "-",
        "link": link_words(one, now_ms),
        "reason": cell(one.get("reason")) if parted else about(one, now_ms),
        "stopped": f"{ago(parted['at'], now_ms)}: {cell(parted['reason'])}" if parted else "-",
        "next try": f"{ago(link['next_try'], now_ms)}, after {cell(link['failures'])} failures"
        if link.get("next_try")
        else "-",
        "seen": ago(one.get("last_seen"), now_ms),
        "paired": ago(one.get("paired_at"), now_ms),
        "ended": ago(one.get("ended_at"), now_ms),
        "waiting": f"{one['queued']:,} messages, {one['queued_bytes']:,} bytes"
        f"; the oldest {ago(one.get('oldest_at'), now_ms)}",
        "sending": f"{cell(sending['seq'])} places, {cell(sending['acked'])} acknowledged,"
        f" head {cell(sending['head'])}",
        "receiving": f"{cell(receiving['seq'])} places, head {cell(receiving['head'])}",
        "record": f"{cell(one['record'])}, version {cell(one['version'])}",
    }
    lines = [f"{name:<{_LABEL_CHARS}} {text}" for name, text in told.items() if text != "-"]
    return lines + ([f"next: {visible(str(one['next']))}"] if one.get("next") else [])


def _grouped(key_id: str) -> str:
    """A key id in groups, for two people who compare it by ear."""
    return " ".join(key_id[first : first + 5] for first in range(0, len(key_id), 5))


def _answered(session: Session, label: str) -> JsonObject:
    """What is known once an answer came, the try for a link failed, or it takes too long."""
    deadline = session.clock.monotonic() + PING_S
    first = said = session.ask("peers.ping", name=label)
    while said["round_trip_ms"] is None and session.clock.monotonic() < deadline:
        if not said["up"] and (not said["dials"] or said["failures"] > first["failures"]):
            break
        session.clock.sleep(_AGAIN_S)
        was_up, asked_ms = said["up"], said["asked_ms"]
        said = session.ask("peers.ping", name=label, asked_ms=asked_ms)
        if said["up"] and not was_up:  # what was asked before went nowhere
            said = session.ask("peers.ping", name=label)
    return said


def _pinged(said: JsonObject, now_ms: int) -> list[str]:
    label = cell(said["label"])
    if said["round_trip_ms"] is not None:
        took = said["round_trip_ms"]
        return [f"{label} answers after {f'{took} ms' if took else 'less than 1 ms'}"]
    if said["up"]:
        return [f"{label} has not answered for {PING_S:g} s, although the link stands"]
    why = f": {cell(said['reason'])}" if said.get("reason") else ""
    lines = [f"no link to {label}{why}; last seen {ago(said.get('last_seen'), now_ms)}"]
    if said.get("next_try"):
        lines.append(f"the next try: {ago(said['next_try'], now_ms)}")
    return lines + ([f"next: {cell(said['next'])}"] if said.get("next") else [])


def _tell_changed(session: Session, answer: JsonObject) -> None:
    again = "already " if answer.get("duplicate") else ""
    before, after = answer.get("before") or {}, answer.get("after") or {}
    label = session.output.strong(cell(after.get("peer")))
    was = f" (was {cell(before['peer'])})" if before.get("peer") != after.get("peer") else ""
    known = ", ".join(map(cell, after.get("addresses") or ())) or "no address"
    session.output.text(f"{again}changed: {label}{was} is dialled at {known}")


def _tell_removed(session: Session, answer: JsonObject) -> None:
    again = "already removed" if answer.get("duplicate") else "removed"
    lines = [f"{again}: {session.output.strong(cell(answer.get('peer')))}"]
    if answer.get("returning"):
        count = answer["returning"]
        many = f"{count:,} messages return to their senders"
        lines.append(f"  {many if count > 1 else '1 message returns to its sender'}")
    session.output.text(*lines, "no mail was deleted; a new pairing is needed to undo this")
