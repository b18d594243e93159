"""`mbx watch`."""

import click

from mbx.cli.command import command
from mbx.cli.session import Session
from mbx.client import has_arrived
from mbx.core.errors import MbxError

FOREVER_S = 10 * 365 * 24 * 3600.0
"""Without a time-out: ten years."""

NOTHING_ARRIVED = 1
"""Exit status when the time was over first, so that `mbx watch && …` goes on only with mail."""


@command(
    "watch",
    "Wait until mail arrives that wakes you.",
    examples="""
    mbx watch && mbx inbox
    mbx watch --timeout 50
    mbx watch --once
    """,
)
@click.option("--timeout", "timeout_s", metavar="S", type=float, help="Wait at most S seconds.")
@click.option("--once", is_flag=True, help="Look, and do not wait.")
def watch(session: Session, timeout_s: float | None, once: bool) -> int:
    """Block until mail arrives that wakes you, then say how much waits; never what it says.

    Requests, tasks, decisions and alerts wake; messages and replies do so when they need a reply or
    mention you by @name. What is unread already counts; below an agent CLI, only what it was not
    told of before, at most once in 30 seconds. Exit status 0: there is mail; 1: the time was over;
    5: the lease is gone.
    """
    if timeout_s is not None and not 0 <= timeout_s <= FOREVER_S:
        raise MbxError("usage", "--timeout takes seconds, 0 or more", "mbx watch --timeout 50")
    told = session.ask("mail.watch")
    arrived = bool(told["waking"]) if once else has_arrived(told)
    if not once and not arrived:
        wait_s = FOREVER_S if timeout_s is None else timeout_s
        pushed = session.client().watch(session.clock.monotonic() + wait_s)
        told, arrived = pushed or told, pushed is not None
    if session.output.as_json:
        session.output.document({**told, "arrived": arrived})
    elif arrived:
        session.output.text(
            f"{told['waking']} unread that wake, {told['unread']} unread in all", "next: mbx inbox"
        )
    else:
        session.output.text("nothing that wakes has arrived")
    return 0 if arrived else NOTHING_ARRIVED
