"""`mbx mcp`: its help; the command itself is chosen before click is loaded (`mbx.__main__`)."""

from mbx.cli.command import command
from mbx.cli.session import Session


@command(
    "mcp",
    "Speak MCP on standard input and output, for an agent CLI.",
    examples="""
    mbx mcp
    claude mcp add --scope user mbx -- mbx mcp
    codex mcp add mbx -- mbx mcp
    """,
)
def mcp(session: Session) -> int:
    """Pipe an agent CLI to the daemon: what its `mcpServers` entry starts.

    It reads MCP messages, one JSON object a line, from standard input and answers on standard
    output, in both eras of the protocol (2026-07-28, and the handshake of 2025-11-25 and before).
    It starts the daemon on demand, goes on when the daemon is started again, and ends when its
    input ends. People have no use for it.
    """
    from mbx.connector import main

    return main(session.environ)
