"""A scripted listener in the daemon's place, for what the client makes of odd bytes.

Each script serves one connection; after the last one the socket is gone, as after a crash.
"""

import json
import socket
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from mbx.paths import Paths

Script = Callable[[socket.socket], None]
LIMIT_S = 15.0


class Peer:
    """Serve `scripts`, one connection each, on the socket of `paths`."""

    def __init__(self, paths: Paths, *scripts: Script) -> None:
        self._path = paths.socket_path()
        self._scripts: Sequence[Script] = scripts
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._thread = threading.Thread(target=self._serve)
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        Path(self._path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._listener.bind(self._path)
        self._listener.listen(16)
        self._listener.settimeout(LIMIT_S)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._thread.join(LIMIT_S)
        self._listener.close()
        Path(self._path).unlink(missing_ok=True)
        if self._failure is not None and error is None:
            raise self._failure

    def _serve(self) -> None:
        try:
            for number, script in enumerate(self._scripts, start=1):
                connection, _ = self._listener.accept()
                if number == len(self._scripts):
                    Path(self._path).unlink()
                    self._listener.close()
                with connection:
                    connection.settimeout(LIMIT_S)
                    script(connection)
        except OSError as failure:
            self._failure = failure


def requests(connection: socket.socket, count: int = 2) -> list[dict[str, Any]]:
    """The next `count` lines, decoded."""
    received = b""
    while received.count(b"\n") < count:
        piece = connection.recv(65_536)
        if not piece:
            raise ConnectionError("the client closed before it had asked")
        received += piece
    return [json.loads(line) for line in received.splitlines()]


def line(number: int | None, **answer: object) -> bytes:
    """One JSON-RPC answer."""
    return json.dumps({"jsonrpc": "2.0", "id": number, **answer}).encode() + b"\n"


HELLO = line(0, result={"protocol": 1, "version": "0.1.0", "host": "desk"})


def answering(result: object, log: list[dict[str, Any]] | None = None) -> Script:
    """A well-behaved daemon for one call."""

    def script(connection: socket.socket) -> None:
        asked = requests(connection)
        if log is not None:
            log.extend(asked)
        connection.sendall(HELLO + line(1, result=result))

    return script


def saying(*pieces: bytes, log: list[dict[str, Any]] | None = None) -> Script:
    """Take the two requests, write `pieces`, close."""

    def script(connection: socket.socket) -> None:
        asked = requests(connection)
        if log is not None:
            log.extend(asked)
        for piece in pieces:
            connection.sendall(piece)

    return script
