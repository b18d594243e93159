"""`mbx run`: the command line of `mbx.run`."""

import click

from mbx.cli.command import command, completed
from mbx.cli.session import Session


@command(
    "run",
    "Hold an identity while a command runs.",
    examples="""
    mbx run --as nightly --role ci -- ./nightly.sh
    mbx run --as api-dev -- sh -c 'mbx inbox && mbx send --to owner --subject Hi -m Hello'
    MBX_AGENT=api-dev mbx run -- my-agent-cli
    """,
    context_settings={"allow_interspersed_args": False},
)
@click.option(
    "--as",
    "name",
    metavar="NAME",
    shell_complete=completed("claimable_names"),
    help="The identity; by default MBX_AGENT.",
)
@click.option(
    "--role",
    metavar="ROLE",
    shell_complete=completed("roles"),
    help="Register NAME with this role if it does not exist.",
)
@click.argument("argv", metavar="-- CMD...", nargs=-1, type=click.UNPROCESSED)
def run(session: Session, name: str | None, role: str | None, argv: tuple[str, ...]) -> int:
    """Hold an identity for CMD: for cron, CI, scripts and agent command lines mbx does not know.

    Everything below CMD acts as NAME. Signals reach CMD, its exit status comes back (128 + number
    when a signal ended it), and the identity is given back at the end.
    """
    from mbx.run import run_as

    return run_as(
        list(argv),
        name=name,
        role=role,
        environ=session.environ,
        client=session.client(holder=True),
        new_key=session.new_key,
        warn=session.output.note,
    )
