"""`mbx version`."""

from mbx import PROTOCOL, __version__
from mbx.cli.command import command
from mbx.cli.session import Session


@command("version", "Print the version.", examples="mbx version\nmbx version --json")
def version(session: Session) -> None:
    """Print the version of this command and of the protocol it speaks; asks no daemon."""
    if session.output.as_json:
        session.output.document({"version": __version__, "protocol": PROTOCOL})
    else:
        session.output.text(f"mbx {__version__} (protocol {PROTOCOL})")
