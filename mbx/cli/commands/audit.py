"""`mbx audit`."""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import click

from mbx.cli.command import WHOLE, command, completed
from mbx.cli.output import ago, cell
from mbx.cli.session import Session
from mbx.core.errors import MbxError
from mbx.wire import JsonObject

ROWS_DEFAULT: Final = 20
ROWS_MAX: Final = 200
_TIME_MAX_MS: Final = 253_402_300_799_999
"""The last moment that a calendar of four-digit years has."""
SHORT_CHARS: Final = 12
"""Characters of ids of records, sessions and messages in the table; --json has them whole."""


@command(
    "audit",
    "See what was done here, and whether the log of it is whole.",
    examples="""
    mbx audit
    mbx audit --since 2d --act takeover
    mbx audit --identity ui-dev --limit 50 --json
    mbx audit --verify
    """,
)
@click.option(
    "--since", metavar="WHEN", help="Only later acts: 2h, 3d, 2026-01-31, 2026-01-31T12:00Z."
)
@click.option(
    "--identity",
    metavar="NAME",
    shell_complete=completed("names"),
    help="Only acts about this identity: its name of now, or its id.",
)
@click.option("--act", metavar="ACT", shell_complete=completed("acts"), help="Only this act.")
@click.option(
    "--limit", metavar="N", type=WHOLE, help="At most N rows: 20 by default, 200 at most."
)
@click.option("--cursor", metavar="C", help="Go on behind an earlier page.")
@click.option("--verify", is_flag=True, help="Check the whole log; exit 1 if anything is wrong.")
def audit(session: Session, verify: bool, **filters: Any) -> int:
    """Show the audit log, newest first: claims, releases, takeovers, policies, acted requests.

    Each row tells when, what, about which identity, by which session or record of the owner's. It
    is for the human alone: the command must be typed in a terminal with no agent CLI above it.

    With --verify every row is checked against the one before it, and the log against what this
    host signed of it: with each record of the owner's, and in the folder `floor`. A row that was
    changed, removed, put in or moved is named.
    """
    if verify:
        given = sorted(name for name, value in filters.items() if value is not None)
        if given:
            raise MbxError("usage", f"--verify checks all rows; --{given[0]} does not go with it")
        return _verify(session)
    page = _page(session, filters)
    if session.output.as_json:
        session.output.document(page)
    else:
        _show(session, page)
    return 0


def _page(session: Session, filters: Mapping[str, Any]) -> JsonObject:
    """As many rows as were asked for, if there are so many: a page of the daemon's may be empty."""
    wanted = filters["limit"]
    page = session.ask("audit.list", **filters)
    rows = list(page["rows"])
    while page["has_more"] and len(rows) < (ROWS_DEFAULT if wanted is None else wanted):
        left = (ROWS_DEFAULT if wanted is None else wanted) - len(rows)
        following = {**filters, "limit": left, "cursor": page["next_cursor"]}
        page = session.ask("audit.list", **following)
        rows += page["rows"]
    return {**page, "rows": rows}


def _show(session: Session, page: JsonObject) -> None:
    now_ms = session.now_ms()
    rows = [
        [
            cell(row.get("no")),
            ago(row.get("at"), now_ms),
            cell(row.get("act")),
            cell(row.get("agent")),
            cell(told(row)),
        ]
        for row in page["rows"]
    ]
    if not rows:
        session.output.text("no such acts")
        return
    session.output.table(("ROW", "AT", "ACT", "WHO", "WHAT"), rows, flexible=4)
    if page.get("has_more"):
        session.output.text(f"more: the same with --cursor {cell(page.get('next_cursor'))}")


# -- one row in words -----------------------------------------------------------------------------

Facts = Mapping[str, Any]
"""The `details` of a row."""


def told(row: JsonObject) -> str:
    """What a row tells, on one line; foreign text is in it as it came."""
    facts = row.get("details")
    if not isinstance(facts, dict):
        return "its details cannot be read"
    words = list(_WORDS.get(str(row.get("act")), _any)(facts))
    session = row.get("session")
    if isinstance(session, dict):
        words.insert(0, f"{session.get('cli')} {str(session.get('id'))[:SHORT_CHARS]}")
    if row.get("record") and row.get("act") != "claim":
        words.append(f"record {str(row['record'])[:SHORT_CHARS]}")
    return "; ".join(words)


def _acted(facts: Facts) -> Iterator[str]:
    yield f"{facts.get('did') or 'did not say what'}"
    yield f"for {facts.get('sender')} ({str(facts.get('message'))[:SHORT_CHARS]})"
    yield f"policy {facts.get('policy')}"
    yield f"trust {facts.get('trust')}"


def _takeover(facts: Facts) -> Iterator[str]:
    yield f"to {_session(facts.get('to'))}, epoch {facts.get('epoch')}"
    yield f"from {_session(facts.get('before'))}"
    if facts.get("reason"):
        yield str(facts["reason"])


def _policy(facts: Facts) -> Iterator[str]:
    classes = ", ".join(map(str, facts.get("classes") or ())) or "nothing"
    yield f"version {facts.get('version')}: {facts.get('level')} ({classes})"
    yield f"{_list(facts.get('to'))} on mail from {_list(facts.get('from'))}"
    yield f"until {facts.get('until')}"


def _revoke(facts: Facts) -> Iterator[str]:
    yield f"version {facts.get('version')}: revokes {_list(facts.get('revokes'))}"


def _rename(facts: Facts) -> Iterator[str]:
    yield f"{facts.get('old_name')} is {facts.get('name')}"


def _clock(facts: Facts) -> Iterator[str]:
    yield f"right at {_time(facts.get('after'))}, although it was {_time(facts.get('before'))}"


def _forward(facts: Facts) -> Iterator[str]:
    yield f"{facts.get('name')} to {facts.get('to_name') or facts.get('to')}"
    yield f"{facts.get('moved')} handed on"
    if facts.get("left"):
        yield f"{facts['left']} yet to go"


def _any(facts: Facts) -> Iterator[str]:
    for name, value in facts.items():
        if name not in ("seq", "name") and value is not None:
            yield f"{name} {_list(value)}"


def _time(at_ms: object) -> str:
    """A time in ms UTC."""
    if type(at_ms) is not int or not 0 <= at_ms <= _TIME_MAX_MS:
        return str(at_ms)
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def _session(value: object) -> str:
    if not isinstance(value, dict):
        return "nobody"
    return f"{value.get('cli')} {str(value.get('session'))[:SHORT_CHARS]}"


def _list(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


_WORDS: Final[Mapping[str, Callable[[Facts], Iterator[str]]]] = {
    "acted": _acted,
    "clock": _clock,
    "forward": _forward,
    "hand-on": _forward,
    "policy": _policy,
    "rename": _rename,
    "revoke": _revoke,
    "takeover": _takeover,
}
"""Act -> what its details mean; the others are told name by name."""


# -- verify ---------------------------------------------------------------------------------------


def _verify(session: Session) -> int:
    found = _verified(session)
    if session.output.as_json:
        session.output.document(found)
    elif found["ok"]:
        session.output.text(_whole(session, found))
    else:
        session.output.text(*(cell(fault["words"]) for fault in found["faults"]))
        left = found["faults_total"] - len(found["faults"])
        if left:
            session.output.text(f"and {left} more")
        session.output.text(
            f"the audit log was changed: {_counted(found['faults_total'], 'fault')}"
            f" in {_counted(found['rows'], 'row')}",
            "next: keep a copy of the whole home folder aside, then look at what was changed",
        )
    return 0 if found["ok"] else 1


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _verified(session: Session) -> JsonObject:
    """All pieces of the check together."""
    client = session.client()
    rows = acceptances = total = 0
    faults: list[JsonObject] = []
    cursor: str | None = None
    while True:
        asked = {} if cursor is None else {"cursor": cursor}
        piece = client.call("audit.verify", asked, changes=False)
        rows, acceptances = rows + piece["checked"], acceptances + piece["acceptances"]
        faults, total = faults + piece["faults"], total + piece["faults_total"]
        cursor = piece["next_cursor"]
        if cursor is None:
            break
    return {
        "ok": not total,
        "rows": rows,
        "last": piece["last"],
        "acceptances": acceptances,
        "floor": piece["floor"],
        "faults": faults,
        "faults_total": total,
    }


def _whole(session: Session, found: JsonObject) -> str:
    last = found["last"] or {}
    anchored = f"{found['acceptances']} acceptances"
    if found["floor"] is not None:
        anchored += f" and the floor (row {found['floor']})"
    return (
        f"{found['rows']} rows, chain holds, last row {cell(last.get('no'))}"
        f" ({ago(last.get('at'), session.now_ms())}), anchored in {anchored}"
    )
