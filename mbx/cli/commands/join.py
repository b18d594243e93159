"""`mbx join`."""

import click

from mbx.cli import pairing
from mbx.cli.command import command
from mbx.cli.session import Session


@command(
    "join",
    "Pair with a machine that shows a code.",
    examples="""
    mbx join 192.168.1.4
    mbx join desk.local --label desk
    mbx join '[2001:db8::7]:24629'
    """,
)
@click.argument("address", metavar="HOST[:PORT]")
@click.option(
    "--label",
    metavar="NAME",
    help="What the other machine is called here; where its owner is adopted, that owner says so.",
)
def join(session: Session, address: str, label: str | None) -> None:
    """Go to a machine on which `mbx pair` waits, with the code that it shows.

    The code is asked for on this terminal. Then both terminals show the same twelve digits, if
    nobody sits in between. Compare them, look at the record, and sign it with your passphrase.

    If this machine has no owner yet, the other one's becomes its own: you see in full what was
    signed for it, and agree here.
    """
    pairing.join(session, address, label)
