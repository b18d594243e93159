"""`mbx pair`."""

import click

from mbx.cli import pairing
from mbx.cli.command import command
from mbx.cli.session import Session


@command(
    "pair",
    "Invite another machine: show a code, then compare and sign.",
    examples="""
    mbx pair
    mbx pair --listen 192.168.1.4 --label laptop
    mbx pair --listen '[::]:24629' --ttl 5m
    """,
)
@click.option(
    "--listen",
    metavar="ADDR",
    multiple=True,
    help="Where to listen, HOST or HOST:PORT; by default where it does, else everywhere.",
)
@click.option("--ttl", metavar="TIME", help="How long the code is good: 90s, 5m. Default 10m.")
@click.option("--label", metavar="NAME", help="What the other machine is called here.")
def pair(session: Session, listen: tuple[str, ...], ttl: str | None, label: str | None) -> None:
    """Show a code on this terminal; type it on the other machine, where you run `mbx join`.

    Then both terminals show the same twelve digits, if nobody sits in between. Compare them, look
    at the record, and sign it with your passphrase; the other side does the same. A machine that
    has no owner yet takes you for its owner in the same step.

    The code is good once, for ten minutes; five wrong ones make it void. This machine listens from
    now on: let the port (24629 unless told) through its firewall.
    """
    ttl_ms = None if ttl is None else pairing.term_ms(ttl)
    pairing.invite(session, listen, ttl_ms, label)
