"""`mbx daemon …`: status, start, stop, restart, run."""

import click

from mbx.cli.command import command
from mbx.cli.output import cell
from mbx.cli.session import Session
from mbx.core.errors import MbxError
from mbx.core.limits import STOP_DEADLINE_MS
from mbx.wire import Connection, ConnectionLost, JsonObject, NoAnswer

STOP_S = STOP_DEADLINE_MS / 1000 + 1
"""How long the end of a stopping daemon is waited for; it stops within `STOP_DEADLINE_MS`."""

HASHED_S = 60.0
"""How long the digest of the whole state is waited for: 1.2 s for each 100,000 messages."""
STATUS_FIELDS = ("running", "pid", "version", "home", "socket", "uptime_s", "state_hash")
"""The fields of the status object (CONTRACT 5), all of them there whether a daemon runs or not."""


@command(
    "status",
    "Say whether the daemon runs; never starts it.",
    examples="""
    mbx daemon status
    mbx daemon status --hash --json
    """,
)
@click.option(
    "--hash",
    "with_hash",
    is_flag=True,
    help="With a digest of the whole state; all others wait meanwhile.",
)
def status(session: Session, with_hash: bool) -> None:
    """Say whether the daemon runs, and which one it is."""
    _show_status(session, _status(session, hash=with_hash or None) or {"running": False})


@command(
    "start",
    "Start the daemon in the background.",
    examples="""
    mbx daemon start
    """,
)
def start(session: Session) -> None:
    """Start the daemon unless it runs. Most commands do that by themselves.

    Where a service is installed, it is the service that starts it.
    """
    if running(session) is None:
        _start_by_service(session)
    _show_status(session, session.client().call("daemon.status", {}, changes=False))


@command(
    "stop",
    "Stop the daemon; nothing accepted is lost.",
    examples="""
    mbx daemon stop
    """,
)
def stop(session: Session) -> None:
    """Stop the daemon and wait until it has ended. Held identities stay held.

    A service (mbx daemon install) does not start it again before your next session; any command
    that needs it does.
    """
    was_running = stop_daemon(session)
    service = _service(session)
    if session.output.as_json:
        session.output.document({"running": False, "stopped": was_running, "service": service})
        return
    lines = ["stopped" if was_running else "no daemon was running"]
    if service is not None:
        lines.append(
            f"{cell(service)} starts it again with your next session, and so does any command that"
            " needs it; to end that: mbx daemon uninstall"
        )
    session.output.text(*lines)


@command(
    "restart",
    "Stop the daemon and start it again.",
    examples="""
    mbx daemon restart
    """,
)
def restart(session: Session) -> None:
    """Stop the daemon if it runs, then start the installed version.

    Where a service is installed, it is the service that starts it.
    """
    stop_daemon(session)
    _start_by_service(session)
    _show_status(session, session.client().call("daemon.status", {}, changes=False))


@command(
    "run",
    "Run the daemon in the foreground.",
    examples="""
    mbx daemon run
    """,
)
def run(session: Session) -> int:
    """Run the daemon in the foreground until it is told to stop, for service managers."""
    import os

    from mbx.launch import daemon_argv, daemon_environ

    argv = daemon_argv("--foreground")
    os.execve(argv[0], argv, daemon_environ(session.paths, session.environ))  # noqa: S606


def _status(session: Session, **params: object) -> JsonObject | None:
    """What the running daemon says of itself; None when none runs."""
    from mbx.client import ANSWER_S, NoDaemon

    given = {name: value for name, value in params.items() if value is not None}
    answer_s = HASHED_S if given.get("hash") else ANSWER_S
    try:
        client = session.client(starting=False, answer_s=answer_s)
        connection, said = client.meet("daemon.status", given)
    except NoDaemon:
        return None
    number = _number_here(connection, said)
    connection.close()
    return said if number is None else said | {"pid": number}


def _number_here(connection: Connection, said: JsonObject) -> int | None:
    """The daemon's process as this command sees it; None for one outside of our pid namespace.

    What a daemon in a namespace of its own says of itself is another process's number here.
    """
    peer = connection.peer()
    return int(said["pid"]) if peer is None else peer[0]


def running(session: Session) -> int | None:
    """The process of the daemon that runs; None when none does."""
    said = _status(session)
    return None if said is None else int(said["pid"])


def stop_daemon(session: Session) -> bool:
    """Stop the daemon; False when none ran. Raises MbxError when it does not end."""
    from mbx.client import NoDaemon, state_of, step_for
    from mbx.launch import ProcessEnd

    try:
        connection, said = session.client(starting=False).meet("daemon.status", {})
    except NoDaemon:
        return False
    try:
        pid = _number_here(connection, said)
        end = None if pid is None else ProcessEnd(pid)
        try:
            session.client(starting=False).call("daemon.stop", {}, changes=False)
        except NoDaemon:  # it ended before its answer reached us
            pass
        if end.wait(STOP_S, session.clock) if end else _hangs_up(connection, session):
            return True
    finally:
        connection.close()
    who = "the daemon" if pid is None else f"the daemon (process {pid})"
    raise MbxError(
        "daemon-unreachable",
        f"{who} was told to stop and still runs",
        step_for(pid, "?" if pid is None else state_of(pid)),
    )


def _hangs_up(connection: Connection, session: Session) -> bool:
    """Wait for the end of a daemon that has no number here; False when it goes on."""
    try:
        connection.receive(session.clock.monotonic() + STOP_S)
    except ConnectionLost:
        return True
    except NoAnswer:
        pass
    return False


def _service(session: Session) -> str | None:
    """What the service that starts the daemon of this home is called; None without one."""
    from mbx.cli.service import installed

    found = installed(session)
    return None if found is None else found.name


def _start_by_service(session: Session) -> None:
    """Where a service is installed, it starts the daemon, if it can be asked to from here.

    Whatever keeps it from that, the command goes on and starts the daemon itself.
    """
    from mbx.cli.service import bring_up, installed

    found = installed(session)
    if found is None:
        return
    said = bring_up(session, found.manager, found.job, lambda: running(session))
    if not said.is_done:
        session.output.note(f"{cell(found.name)} does not start it: {cell(said.why)}")


def _show_status(session: Session, said: JsonObject) -> None:
    whole = {field: said.get(field) for field in STATUS_FIELDS} | said
    if session.output.as_json:
        session.output.document(whole)
        return
    if not whole["running"]:
        session.output.text("no daemon is running", "next: mbx daemon start")
        return
    lines = [f"running  process {cell(whole['pid'])}, mbx {cell(whole['version'])}"]
    for field in ("home", "socket", "uptime_s", "state_hash"):
        if whole[field] is not None:
            lines.append(f"{field:<10} {cell(whole[field])}")
    session.output.text(*lines)
