"""A bare asyncio server: every line on its socket gets the one answer that was read from stdin.

Run as a program with the socket's path as its argument; it says "ready" on a line when it serves.
"""

import asyncio
import sys
from typing import cast


class Echo(asyncio.Protocol):
    """One connection."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody connected."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Lines, or parts of them."""
        if self._transport and (count := data.count(b"\n")):
            self._transport.write(self._answer * count)


async def serve(path: str, answer: bytes) -> None:
    """Until killed."""
    loop = asyncio.get_running_loop()
    server = await loop.create_unix_server(lambda: Echo(answer), path)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.stdin.buffer.read()))
