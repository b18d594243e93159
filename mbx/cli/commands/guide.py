"""`mbx guide`."""

from mbx.cli.command import command
from mbx.cli.session import Session
from mbx.mcp.guide import GUIDE


@command(
    "guide",
    "Print how an agent works with its mailbox.",
    examples="""
    mbx guide
    """,
)
def guide(session: Session) -> None:
    """Print the guide that agents get over MCP: the loop, the policy line, the kinds of mail."""
    if session.output.as_json:
        session.output.document({"guide": GUIDE})
    else:
        session.output.text(GUIDE.rstrip())
