"""The least that a mailbox on the official MCP SDK does for a send: one row, synced to the disk.

Run as a program with the path of its database; a client starts one for itself, as agent CLIs do.
"""

import sqlite3
import sys

from mcp.server import MCPServer

_WAIT_S = 30
"""For the other servers of the same database."""


def serve(path: str) -> None:
    """Until the client is gone."""
    store = sqlite3.connect(path, timeout=_WAIT_S, check_same_thread=False)
    store.execute("PRAGMA journal_mode = WAL")
    store.execute("PRAGMA synchronous = FULL")
    store.execute("CREATE TABLE IF NOT EXISTS mail (recipient TEXT, subject TEXT, body TEXT)")
    server = MCPServer("floor")

    @server.tool()
    def send(to: str, subject: str, body: str) -> dict[str, bool]:
        """Keep a message."""
        with store:
            store.execute("INSERT INTO mail VALUES (?, ?, ?)", (to, subject, body))
        return {"sent": True}

    server.run()


if __name__ == "__main__":
    serve(sys.argv[1])
