"""`mbx diagnostics`."""

import click

from mbx import __version__
from mbx.cli.command import command, completed
from mbx.cli.output import ago, cell
from mbx.cli.session import Session
from mbx.client import Client
from mbx.core.errors import MbxError
from mbx.core.limits import LIST_DEFAULT_ROWS, LIST_MAX_ROWS
from mbx.wire import JsonObject

UNREACHABLE = "daemon-unreachable"
"""The word where no daemon could be asked: nothing is known then, neither bound nor free."""


@command(
    "diagnostics",
    "Show holder, lease, queue and receipts of one mailbox or session.",
    examples="""
    mbx diagnostics --mailbox ben
    mbx diagnostics --cli codex --session 0199-4b --limit 50
    mbx diagnostics --mailbox ben --json
    """,
)
@click.option(
    "--mailbox",
    metavar="NAME",
    shell_complete=completed("names"),
    help="The mailbox NAME, or NAME@HOST.",
)
@click.option("--cli", metavar="CLI", help="With --session: the agent CLI of a conversation.")
@click.option("--session", "session_id", metavar="ID", help="With --cli: its session id.")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(1, LIST_MAX_ROWS),
    default=LIST_DEFAULT_ROWS,
    help=f"Rows of queue and of receipts, {LIST_DEFAULT_ROWS} by default.",
)
def diagnostics(
    session: Session, mailbox: str | None, cli: str | None, session_id: str | None, limit: int
) -> None:
    """Say who holds a mailbox or what a session holds, what waits there and what was acked.

    It shows exactly what was asked for, ids, stages and ages only, never words of mail or secrets.
    It starts no daemon and changes nothing.
    """
    asked = {"mailbox": mailbox, "cli": cli, "session": session_id, "limit": limit}
    given = {name: value for name, value in asked.items() if value is not None}
    try:
        said = _nobody(session).call("diagnostics.show", given, changes=False)
    except MbxError as error:
        if error.code != UNREACHABLE:
            raise
        raise _unreachable(error) from None
    said = said | {"installed_version": __version__}
    if session.output.as_json:
        session.output.document(said)
    else:
        session.output.fitted(*_lines(said, session.now_ms()))


def _nobody(session: Session) -> Client:
    """A client that says nothing of its conversation: a session that arrives may get an identity.

    It starts no daemon.
    """
    return Client(session.paths, {}, session.clock, start=None)


def _unreachable(error: MbxError) -> MbxError:
    """The refusal, with what is known without a daemon: three facts, two of them unknown."""
    facts = {"status": UNREACHABLE, "installed_version": __version__, "daemon_version": None}
    return MbxError(error.code, error.message, error.next_step, **{**error.facts, **facts})


def _lines(said: JsonObject, now_ms: int) -> list[str]:
    lines = [f"status     {cell(said['status'])}", f"mailbox    {cell(said['mailbox'])}"]
    if said["holder"]:
        lines.append(f"holder     {_holder(said['holder'])}")
    if said["lease"]:
        lines.append(f"lease      {_lease(said['lease'], now_ms)}")
    if said.get("remote"):
        lines.append(f"remote     {_remote(said['remote'], now_ms)}")
    for field in ("lost", "pending", "remembered"):
        if said[field]:
            lines.append(f"{field:<10} {cell(said[field])}")
    installed, running = cell(said["installed_version"]), cell(said["daemon_version"])
    lines.append(f"versions   installed {installed}, daemon {running}")
    if said.get("reach"):
        reach = said["reach"]
        lines.append(f"reach      {cell(reach['state'])}: {cell(reach['detail'])}")
    for one in said.get("wakes") or []:
        lines.append(f"  {_wake(one, now_ms)}")
    lines.append(f"queue      {cell(said['queue_total'])} unacked")
    lines += [f"  {_row(one)}  {ago(one['at'], now_ms)}" for one in said["queue"]]
    lines.append(f"receipts   {len(said['receipts'])} shown, newest first")
    for one in said["receipts"]:
        outcome = f", {cell(one['outcome'])}" if one["outcome"] else ""
        lines.append(f"  {_row(one)}  {ago(one['at'], now_ms)}{outcome}")
    return lines


def _remote(remote: JsonObject, now_ms: int) -> str:
    host = remote["host"]
    told = ago(remote.get("told_at"), now_ms)
    link = f"{cell(host['label'])} is {cell(host['state'])}, {cell(host['queued'])} wait for it"
    state, reach = cell(remote.get("state")), cell(remote.get("reach"))
    seen = state if reach in (state, "-") else f"{state} ({reach})"
    return f"{seen} by its host's word, {told}; {link}"


def _wake(wake: JsonObject, now_ms: int) -> str:
    count = "1 message" if wake["messages"] == 1 else f"{cell(wake['messages'])} messages"
    ended = f"{cell(wake['outcome'])}: {cell(wake['reason'])}" if wake["outcome"] else "being tried"
    return f"woken by {cell(wake['way'])} for {count} {ago(wake['at'], now_ms)}, {ended}"


def _row(one: JsonObject) -> str:
    return f"{cell(one['id'])}  {cell(one['stage']):<10}"


def _holder(holder: JsonObject) -> str:
    who = f"{cell(holder['cli'])} {cell(holder['session'])}"
    return f"{who}, process {cell(holder['pid'])}, {cell(holder['evidence'])}"


def _lease(lease: JsonObject, now_ms: int) -> str:
    since = ago(lease["since"], now_ms)
    state = f"{cell(lease['state'])} since {since}, epoch {cell(lease['epoch'])}"
    return f"{state}: {cell(lease['reason'])}"
