"""The socket file at which callers find the daemon: made in private, made again when it is gone.

Whoever holds the daemon lock must be reachable for as long as it runs: a folder that somebody (or a
cleaner of ``/tmp``) removed would leave a daemon that can neither be asked, stopped nor replaced.
But one that lost its store is not the daemon of this place any more, and must not be found there.
"""

import asyncio
import os
import socket
import stat
from collections.abc import Callable
from typing import Final

from mbx.core.errors import MbxError
from mbx.paths import make_folder

_BACKLOG: Final = 511
_CHECK_S: Final = 1.0


class Door:
    """The listening socket at `path`; each caller gets an `answerer` of its own.

    `check` is called at each look, and raises when there is nothing to be let in to.
    """

    def __init__(
        self,
        path: str,
        answerer: Callable[[], asyncio.BaseProtocol],
        log: Callable[..., None],
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._path = path
        self._check = check
        self._answerer = answerer
        self._log = log
        self._server: asyncio.AbstractServer | None = None
        self._inode = 0

    async def open(self) -> None:
        """Listen; the caller holds the daemon lock. Raises MbxError or OSError."""
        listening = _listen(self._path)
        self._inode = os.lstat(self._path).st_ino
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(self._answerer, sock=listening)

    async def serve(self) -> None:
        """Look after the socket file until cancelled."""
        while True:
            await asyncio.sleep(_CHECK_S)
            await self.look()

    async def look(self) -> None:
        """Make the socket file again if it is gone; what else lies in its place is left alone.

        Raises what `check` raises.
        """
        self._check()
        if self._has_something():
            return
        self._log("the socket was removed; it is made again")
        self.close()
        try:
            make_folder(os.path.dirname(self._path))
            await self.open()
        except (MbxError, OSError) as error:  # tried again at the next look
            self._log("the socket could not be made again", why=error)

    def _has_something(self) -> bool:
        return os.path.lexists(self._path)

    def close(self) -> None:
        """Let nobody in any more; those inside stay."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def remove(self) -> None:
        """Take the socket file away, if it is still ours."""
        try:
            if os.lstat(self._path).st_ino == self._inode:
                os.unlink(self._path)
        except FileNotFoundError:
            pass


def _listen(path: str) -> socket.socket:
    """The listening socket, private from the first instant.

    We hold the lock: what is there is old.
    """
    try:
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            os.unlink(path)
    except FileNotFoundError:
        pass
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    old_mask = os.umask(0o177)
    try:
        listening.bind(path)
    except OSError as error:
        listening.close()
        raise MbxError(
            "daemon-unreachable",
            f"the socket {path} cannot be made: {error.strerror}",
            f"move {path} aside" if os.path.lexists(path) else "set MBX_RUN to another folder",
            path=path,
        ) from error
    finally:
        os.umask(old_mask)
    listening.listen(_BACKLOG)
    listening.setblocking(False)
    return listening
