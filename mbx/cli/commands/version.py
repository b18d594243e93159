"""`mbx version`."""

from mbx import __version__
from mbx.cli.command import command
from mbx.cli.session import Session
from mbx.client import PROTOCOL


@command("version", "Print the version.", examples="mbx version\nmbx version --json")
def version(session: Session) -> None:
    """Print the version of this command and of the protocol it speaks; asks no daemon."""
    if session.output.as_json:
        session.output.document({"version": __version__, "protocol": PROTOCOL})
    else:
        session.output.text(f"mbx {__version__} (protocol {PROTOCOL})")
