"""`mbx hook` and `mbx statusline`: their help; both are chosen before click is loaded."""

import click

from mbx.cli.command import command
from mbx.cli.session import Session
from mbx.core.clients import CLIENTS, STATUS_LINES


@command(
    "hook",
    "Print what an agent CLI's hook says at an event; setup installs it.",
    examples="""
    mbx hook SessionStart --cli claude
    """,
)
@click.argument("event")
@click.option("--cli", type=click.Choice(sorted(CLIENTS)), required=True, help="Whose event it is.")
def hook(session: Session, event: str, cli: str) -> int:
    """Say what is new for the session of this process, in the form of its client.

    It reads the event as JSON from standard input, prints what the daemon prepared or nothing, and
    ends with 0 within a second, whatever happens. It starts no daemon. Status 2 keeps a turn going
    or refuses a write, where the client wants to be told so. docs/hooks.md has each client's table.
    """
    from mbx.hooks.events import main

    return main([event, "--cli", cli], session.environ)


@command(
    "statusline",
    "Print the status line of this process's session; setup installs it.",
    examples="""
    mbx statusline claude
    """,
)
@click.argument("cli", type=click.Choice(sorted(STATUS_LINES)))
def statusline(session: Session, cli: str) -> int:
    """Print the name that the session holds and its unread mail, on one line.

    Nothing is printed where the daemon is away, or where it is not beyond doubt which conversation
    asks. It starts no daemon and ends with 0.
    """
    from mbx.hooks.statusline import main

    return main(cli, session.environ)
