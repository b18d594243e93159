"""`mbx policy …`: set, list, show, revoke."""

import re

import click

from mbx.cli.authority import carry_out, chain_warnings, draft_option
from mbx.cli.command import command, completed
from mbx.cli.commands.send import addresses
from mbx.cli.output import ago, cell
from mbx.cli.session import Session
from mbx.core.errors import MbxError
from mbx.project import existing_project
from mbx.wire import JsonObject

_TERM = re.compile(r"([1-9][0-9]{0,4})(m|h|d)")
_UNIT_S = {"m": 60, "h": 3_600, "d": 86_400}
TERM_MAX_S = 365 * 86_400
"""What the daemon takes for a term, to tell how long the level's may be; none may be so long."""

_ID_CHARS = 8
_LABEL_CHARS = 9
_SHOWN = "to level classes from projects at host until reason state".split()
_CALLED = {"host": "signed on"}
"""Field of `policy.show` -> how people are told of it, where that is another word."""


@command(
    "set",
    "Let mail of some make an agent do more, for a time.",
    examples="""
    mbx policy set ui-dev --level collaborate --from api-dev
    mbx policy set ui-dev --level autonomous --from local --project . --ttl 3d
    mbx policy set ui-dev,api-dev --level collaborate --classes read --from role:review
    mbx policy set ui-dev --level yolo --from api-dev --ttl 2h --reason "the big move"
    mbx policy set ben@lap --level collaborate --from ana@desk,host:desk
    """,
)
@click.argument(
    "to", metavar="TO[,...]", nargs=-1, required=True, shell_complete=completed("names")
)
@click.option(
    "--level",
    metavar="LEVEL",
    required=True,
    shell_complete=completed("levels"),
    help="ask (nothing), collaborate, autonomous or yolo.",
)
@click.option(
    "--from",
    "sources",
    metavar="WHO[,...]",
    multiple=True,
    required=True,
    shell_complete=completed("addresses"),
    help="Whose mail: local (all here), host:LABEL, a name or role:ROLE (who has it), also @HOST.",
)
@click.option(
    "--classes",
    metavar="CLASS[,...]",
    multiple=True,
    shell_complete=completed("classes"),
    help="Fewer than the level's own: read, edit, outward, permissions.",
)
@click.option(
    "--project",
    "projects",
    metavar="DIR",
    multiple=True,
    shell_complete=completed("folders"),
    help="Where edits may happen: DIR's git root; repeatable.",
)
@click.option("--ttl", metavar="TIME", help="How long: 90m, 8h, 7d. Default 7d; yolo 8h.")
@click.option("--reason", metavar="TEXT", help="Why, for the record.")
@draft_option
def set_(
    session: Session,
    to: tuple[str, ...],
    level: str,
    sources: tuple[str, ...],
    classes: tuple[str, ...],
    projects: tuple[str, ...],
    ttl: str | None,
    reason: str | None,
    draft_file: str | None,
) -> None:
    """Sign a policy: what mail of some senders may make the agents of TO do, and until when.

    Without a policy an agent may read, answer, share information and ack: that is the level ask.
    collaborate and autonomous add read (inspect, run read-only commands and tests) and edit
    (reversible changes inside the projects); yolo adds outward (push, deploy, delete, spend) and
    permissions. The newest policy about a recipient and a sender is the one that counts.

    It holds on every paired host that has your key, at once or when that host is met next; TO may
    be an identity there (ben@lap).

    It needs your signature: the exact record is shown on your terminal, and your passphrase asked
    for there. It ends by itself: after 30 days at most, yolo after 7.
    """
    folders = [existing_project(one) for one in projects]
    carry_out(
        session,
        "policy",
        draft_file,
        _tell_set,
        to=addresses(to),
        level=level,
        **{"from": addresses(sources)},
        classes=addresses(classes) or None,
        projects=list(dict.fromkeys(folders)) or None,
        ttl_s=None if ttl is None else term_s(ttl),
        reason=reason,
    )


@command(
    "list",
    "List the policies in effect.",
    examples="""
    mbx policy list
    mbx policy list --to ui-dev
    mbx policy list --all --json
    """,
)
@click.option(
    "--to", metavar="NAME", shell_complete=completed("names"), help="Those about this identity."
)
@click.option("--all", "everything", is_flag=True, help="Also those that hold no longer.")
def list_(session: Session, to: str | None, everything: bool) -> None:
    """List what you delegated: to whom, for whose mail, which classes, until when."""
    answer = session.ask("policy.list", to=to, all=everything or None)
    if session.output.as_json:
        session.output.document(answer)
        return
    rows = [_row(entry, session.now_ms()) for entry in answer["policies"]]
    if rows:
        heads: tuple[str, ...] = ("ID", "LEVEL", "UNTIL", "TO", "STATE", "FROM", "CLASSES")
        if answer.get("followed"):  # several hosts have chains
            heads, signed_on = (*heads, "SIGNED ON"), answer["policies"]
            rows = [(*row, cell(one.get("host"))) for row, one in zip(rows, signed_on, strict=True)]
        session.output.table(heads, rows, flexible=4)
    else:
        session.output.text(
            "no policies in effect: every agent asks",
            "next: mbx policy set NAME --level collaborate --from WHO",
        )
    for warning in chain_warnings(answer):
        session.output.note(f"warning: {warning}")
    for one in answer.get("damage") or ():
        session.output.note(
            f"warning: record {cell(one.get('version'))} of the chain of {cell(one.get('host'))}"
            f" {cell(one.get('reason'))}; policies older than it hold no longer"
        )
    if answer.get("clock_behind"):
        session.output.note(
            "warning: the clock is behind what it was, so no policy holds",
            "next: set the clock right; if it is right now, mbx owner clock",
        )


@command(
    "show",
    "Show one policy.",
    examples="""
    mbx policy show 7k2q9xw1
    """,
)
@click.argument("policy_id", metavar="ID", shell_complete=completed("policies"))
def show(session: Session, policy_id: str) -> None:
    """Show one policy, whole, and whether it holds now. ID may be a unique prefix."""
    answer = session.ask("policy.show", id=policy_id)
    if session.output.as_json:
        session.output.document(answer)
        return
    lines = [f"policy {cell(answer['id'])}, version {cell(answer['version'])}"]
    for field in _SHOWN:
        value = answer.get(field)
        shown = ", ".join(map(cell, value)) or "-" if isinstance(value, list) else cell(value)
        lines.append(f"{_CALLED.get(field, field):<{_LABEL_CHARS}} {shown}")
    for part in answer.get("superseded") or ():
        lines.append(
            f"not for mail from {cell(part['from'])} to {cell(part['to'])}: record"
            f" {cell(part['record'])[:_ID_CHARS]} governs there"
        )
    for part in answer.get("disobeyed") or ():
        lines.append(f"not for {cell(part['to'])}: {cell(part['why'])}")
    session.output.text(*lines)


@command(
    "revoke",
    "Take policies back, for ever.",
    examples="""
    mbx policy revoke 7k2q9xw1
    mbx policy revoke --all --reason "something is wrong"
    """,
)
@click.argument("policy_ids", metavar="[ID...]", nargs=-1, shell_complete=completed("policies"))
@click.option("--all", "everything", is_flag=True, help="Everything signed up to now.")
@click.option("--reason", metavar="TEXT", help="Why, for the record.")
@draft_option
def revoke(
    session: Session,
    policy_ids: tuple[str, ...],
    everything: bool,
    reason: str | None,
    draft_file: str | None,
) -> None:
    """Sign a revocation: of the policies named, or with --all of everything signed up to now.

    A revoked policy never holds again, also when it arrives later. Agents ask again at once, here
    and on every paired host that has your key; the policy may have been signed on any of them.
    """
    if everything == bool(policy_ids):
        raise MbxError("usage", "give the ids of policies, or --all", "mbx policy list")
    carry_out(
        session,
        "revoke",
        draft_file,
        _tell_revoked,
        records=list(policy_ids) or None,
        all=everything or None,
        reason=reason,
    )


def term_s(text: str) -> int:
    """Seconds of ``90m``, ``8h`` or ``7d``. Raises MbxError usage."""
    match = _TERM.fullmatch(text)
    if match is None:
        raise MbxError("usage", f"--ttl {text!r} is no time", "write it like 90m, 8h or 7d")
    return min(int(match[1]) * _UNIT_S[match[2]], TERM_MAX_S)


def _tell_set(session: Session, answer: JsonObject) -> None:
    again = "already " if answer.get("duplicate") else ""
    to, senders = (", ".join(map(cell, answer.get(key) or ())) for key in ("to", "from"))
    classes = ", ".join(map(cell, answer.get("classes") or ())) or "nothing"
    session.output.text(
        f"{again}set: policy {cell(answer.get('id'))}, until {cell(answer.get('until'))}",
        f"  mail from {senders} may make {to} do: {classes} ({cell(answer.get('level'))})",
        f"  take it back: mbx policy revoke {cell(answer.get('id'))[:_ID_CHARS]}",
    )


def _tell_revoked(session: Session, answer: JsonObject) -> None:
    again = "already " if answer.get("duplicate") else ""
    revoked = answer.get("revokes")
    what = ", ".join(map(cell, revoked)) if isinstance(revoked, list) else "all signed up to now"
    session.output.text(f"{again}revoked: {what}", f"  by record {cell(answer.get('id'))}")


def _row(entry: JsonObject, now_ms: int) -> tuple[str, ...]:
    return (
        cell(entry.get("id"))[:_ID_CHARS],
        cell(entry.get("level")),
        ago(entry.get("until"), now_ms),
        ", ".join(map(cell, entry.get("to") or ())),
        cell(entry.get("state")),
        ", ".join(map(cell, entry.get("from") or ())),
        ", ".join(map(cell, entry.get("classes") or ())) or "-",
    )
